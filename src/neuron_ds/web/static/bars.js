// Latency and memory as bars of plain elements, with every figure as text beside them.

import { byId, h, keyed, say, setAttribute, setText } from "./dom.js";
import { bytes, latency, UNKNOWN } from "./format.js";

const MOST_LATENCIES = 16;
const TITLES = {
  tensors: "tensors", constants: "constants", model_code: "model code", runtime_memory: "runtime",
  model_shared_scratchpad: "scratchpad", dma_buffers: "DMA buffers", application_memory: "application",
};
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

/** p50 to p99 of the processes with the highest, on one scale. */
export class Latency {
  constructor() {
    this.list = h("ul", { class: "bars" });
    this.none = h("p", { text: "None was seen in the last period." });
    this.table = h("table", { class: "figures" }, h("caption", { class: "hidden", text: "Percentiles of the last period" }));
    this.body = this.table.createTBody();
    byId("latency").append(this.list, this.table, this.none);
  }

  /** percentiles: of the process in focus, by percent; undefined without one. */
  draw(processes, percentiles) {
    const found = processes.filter((p) => p.latency_p99_us !== null);
    found.sort((a, b) => b.latency_p99_us - a.latency_p99_us);
    const most = found[0]?.latency_p99_us || 1;
    keyed(this.list, found.slice(0, MOST_LATENCIES), (p) => p.id, () => h("li", {}, h("span"), h("span", { class: "bar", "aria-hidden": "true" }, h("i")), h("b")), (row, p) => {
      setText(row.children[0], p.tag);
      const bar = row.children[1].firstChild;
      bar.style.left = `${(100 * p.latency_p50_us) / most}%`;
      bar.style.right = `${100 - (100 * p.latency_p99_us) / most}%`;
      setText(row.children[2], `p50 ${latency(p.latency_p50_us)}, p99 ${latency(p.latency_p99_us)}`);
    });
    this.table.hidden = !percentiles;
    keyed(this.body, Object.entries(percentiles ?? {}), ([p]) => p, ([p]) => h("tr", {}, h("th", { scope: "row", text: `p${p}` }), h("td", { class: "number" })), (row, [, us]) => setText(row.lastChild, latency(us)));
    this.none.hidden = found.length > 0;
  }
}

/** Memory by kind, stacked: of each device and of the host. */
export class Memory {
  constructor() {
    this.list = h("ul", { class: "bars" });
    byId("memory").append(this.list);
  }

  /** rows: {key, title, parts: [[kind, bytes]], total_bytes or null}. */
  draw(rows) {
    const kinds = [...new Set(rows.flatMap((row) => row.parts.map(([kind]) => kind)))];
    const color = (kind) => String(Object.keys(TITLES).indexOf(kind));
    keyed(byId("memory-legend"), kinds, String, (kind) => h("li", {}, h("i", { "aria-hidden": "true", "data-kind": color(kind) }), TITLES[kind] ?? kind));
    const most = { device: largest(rows, "device"), host: largest(rows, "host") };
    keyed(this.list, rows, (row) => row.key, () => h("li", {}, h("span"), h("span", { class: "bar", role: "img" }), h("b"), h("small")), (element, row) => {
      const used = sum(row.parts.map(([, size]) => size));
      setText(element.children[0], row.title);
      const bar = element.children[1];
      keyed(bar, row.parts.filter(([, size]) => size > 0), ([kind]) => kind, ([kind]) => h("i", { "data-kind": color(kind) }), (part, [kind, size]) => {
        part.style.width = `${(100 * size) / (row.total_bytes || most[row.where] || 1)}%`;
        setAttribute(part, "title", `${TITLES[kind] ?? kind} ${bytes(size)}`);
      });
      const parts = row.parts.filter(([, size]) => size > 0).map(([kind, size]) => `${TITLES[kind] ?? kind} ${bytes(size)}`).join(", ");
      setAttribute(bar, "aria-label", `${row.title}: ${parts || "nothing used"}`);
      setText(element.children[2], row.unknown ? UNKNOWN : row.total_bytes ? `${bytes(used)} of ${bytes(row.total_bytes)}` : bytes(used));
      say(element.children[3], row.unknown ?? "");
    });
  }
}

const largest = (rows, where) => Math.max(0, ...rows.filter((row) => row.where === where).map((row) => sum(row.parts.map(([, size]) => size))));
