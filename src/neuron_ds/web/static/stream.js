// The connection: opens the stream, notices when it is gone or silent, and opens it again, waiting longer each time.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;
/** So many periods without a frame, and at least so long, and the picture is called old; twice that, and we call again. */
const LATE_PERIODS = 3;
const LATE_MS = 4000;

export class Stream {
  /** heard: {hello, frame, state} are called with what the server says, and with (name, words) of the connection. */
  constructor(url, heard) {
    this.url = url;
    this.heard = heard;
    this.period_ms = 1000;
    this.wait_ms = FIRST_WAIT_MS;
    this.last = null;
    this.opened = 0;
    setInterval(() => this.watch(), 1000);
    addEventListener("online", () => this.again(0));
    this.open();
  }

  /** Milliseconds since the last frame, null before the first. */
  get age_ms() {
    return this.last === null ? null : performance.now() - this.last;
  }

  open() {
    clearTimeout(this.timer);
    this.source?.close();
    this.opened = performance.now();
    const source = (this.source = new EventSource(this.url));
    source.addEventListener("hello", (event) => {
      const hello = JSON.parse(event.data);
      this.period_ms = hello.period_s * 1000;
      this.heard.hello(hello);
    });
    source.addEventListener("frame", (event) => {
      this.last = performance.now();
      this.wait_ms = FIRST_WAIT_MS;
      this.heard.frame(JSON.parse(event.data));
      this.heard.state("live", "live");
    });
    source.addEventListener("error", () => source === this.source && this.lost());
  }

  async lost() {
    this.source.close();
    this.heard.state("lost", "connection lost, trying again");
    this.again(this.wait_ms);
    this.wait_ms = Math.min(LONGEST_WAIT_MS, this.wait_ms * 2);
    try {
      const answer = await fetch("api/frame", { method: "HEAD" });
      if (answer.status === 401) this.heard.state("lost", "the server wants a token: open the address that it printed");
    } catch {
      // it isn't there, as we said
    }
  }

  again(wait_ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), wait_ms);
  }

  watch() {
    if (this.source.readyState === EventSource.CLOSED) return;
    const late_ms = Math.max(LATE_MS, LATE_PERIODS * this.period_ms);
    const silent_ms = performance.now() - Math.max(this.last ?? 0, this.opened);
    if (silent_ms > 2 * late_ms) this.open();
    if (silent_ms > late_ms) this.heard.state("late", "no news from the server");
  }
}
