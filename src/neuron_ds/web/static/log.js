// Events and findings as lines, and what is new said aloud, though not more often than every few seconds.

import { byId, h, keyed, say, setAttribute, setText } from "./dom.js";
import { clock, duration } from "./format.js";

const QUIET_MS = 5000;
const SIGNS = { came: "+", left: "−", died: "✝", error: "!", began: "▲", cleared: "✓" };
const SEVERITIES = { critical: "‼ critical", warning: "! warning", info: "i info" };

export class Log {
  constructor() {
    this.waiting = [];
    this.spoken = -Infinity;
  }

  /** Newest first. */
  events(events) {
    byId("no-events").hidden = events.length > 0;
    keyed(byId("events"), [...events].reverse(), (e) => `${e.number} ${e.wall_s}`, (e) => {
      const place = e.device === null ? "" : `device ${e.device}${e.core === null ? "" : ` core ${e.core}`}`;
      const who = [e.tag, e.pid && e.tag !== String(e.pid) ? `pid ${e.pid}` : "", place].filter(Boolean).join(", ");
      return h("li", { "data-kind": e.kind },
        h("time", { text: clock(e.wall_s) }), h("span", { class: "sign", "aria-hidden": "true", text: SIGNS[e.kind] ?? "·" }),
        h("span", {}, h("span", { class: "kind", text: e.kind }), ` ${e.text}`, h("small", { text: ` ${who}` })));
    });
  }

  /** more: how many the server left out. */
  findings(findings, more) {
    say(byId("no-findings"), more ? `And ${more} more.` : findings.length ? "" : "None.");
    keyed(byId("findings"), findings, (f) => [f.kind, f.device, f.slot, f.pid, f.core].join(), () =>
      h("li", {}, h("strong"), h("span"), h("small"), h("p")), (row, f) => {
      setAttribute(row, "data-severity", f.severity);
      setText(row.children[0], `${SEVERITIES[f.severity] ?? f.severity} `);
      setText(row.children[1], f.message);
      setText(row.children[2], ` for ${duration(f.for_s)}`);
      setText(row.children[3], f.advice);
    });
  }

  announce(news) {
    this.waiting.push(...news);
    if (!this.waiting.length || this.timer) return;
    const left_ms = Math.max(0, this.spoken + QUIET_MS - performance.now());
    this.timer = setTimeout(() => {
      this.timer = null;
      this.spoken = performance.now();
      const newest = this.waiting.at(-1).text;
      byId("announcer").textContent = this.waiting.length > 1 ? `${this.waiting.length} events; the newest: ${newest}` : newest;
      this.waiting = [];
    }, left_ms);
  }
}
