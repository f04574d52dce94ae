// What everything is narrowed to: nothing, a core or a process, and which figure the cells show. The address has both
// behind its #, so that a picture can be passed on and the browser's back button works.

export class Focus extends EventTarget {
  constructor() {
    super();
    this.read();
    addEventListener("hashchange", () => this.follow());
  }

  /** Go by the address. Where we changed it ourselves at once: its event comes too late for who presses twice. */
  follow() {
    const { key, metric } = this;
    this.read();
    if (this.key !== key || this.metric !== metric) this.dispatchEvent(new Event("change"));
  }

  read() {
    const said = new URLSearchParams(location.hash.slice(1));
    const core = /^(\d+)\.(\d+)$/.exec(said.get("core") ?? "");
    this.metric = said.get("metric") ?? "utilization";
    this.process = core ? null : said.get("process");
    this.core = core ? { device: Number(core[1]), core: Number(core[2]) } : null;
  }

  get any() {
    return this.core !== null || this.process !== null;
  }

  /** A name of what is in focus, "" without. */
  get key() {
    if (this.core) return `core ${this.core.device}.${this.core.core}`;
    return this.process === null ? "" : `process ${this.process}`;
  }

  /** Where the server tells more of it. */
  get address() {
    if (this.core) return `api/core/${this.core.device}/${this.core.core}`;
    return `api/process/${encodeURIComponent(this.process)}`;
  }

  isCore(device, core) {
    return this.core?.device === device && this.core?.core === core;
  }

  /** Narrow to a core; to nothing if it was that already. */
  toCore(device, core) {
    this.go({ core: this.isCore(device, core) ? null : `${device}.${core}` });
  }

  toProcess(id) {
    this.go({ process: this.process === id ? null : id });
  }

  clear() {
    if (this.any) this.go({});
  }

  show(metric) {
    this.go({ core: this.core && `${this.core.device}.${this.core.core}`, process: this.process, metric });
  }

  go({ core = null, process = null, metric = this.metric }) {
    const said = new URLSearchParams();
    if (core !== null) said.set("core", core);
    if (process !== null) said.set("process", process);
    if (metric !== "utilization") said.set("metric", metric);
    location.hash = said.toString();
    this.follow();
  }
}
