// The last minutes as lines: uPlot draws, the figures stand beside it as text.

import uPlot from "./vendor/uPlot.esm.js";
import { h, keyed, setAttribute, setText } from "./dom.js";
import { bytes, latency, percent, si } from "./format.js";

const HEIGHT = 150;
/** Steps of an axis in bytes. */
const POWERS_OF_TWO = Array.from({ length: 60 }, (_, i) => 2 ** i);
const rate = (value) => `${si(value)}/s`;
const flops = (value) => si(value, "FLOP/s");
const line = (name, label, color, more = {}) => ({ name, label, color, ...more });

const UTILIZATION = { key: "utilization", title: "Utilization", show: percent, most: 1, lines: [line("utilization", "utilization", 1)] };
const EXECUTIONS = {
  key: "executions", title: "Executions and errors", show: rate,
  lines: [line("executions_s", "executions", 1), line("errors_s", "errors", 3, { dash: [2, 3] })],
};
const FLOPS = { key: "flops", title: "Floating-point operations", show: flops, lines: [line("flops_s", "FLOP/s", 1)] };
const LATENCY = {
  key: "latency", title: "Latency", show: latency,
  lines: [line("latency_p50_us", "p50", 1), line("latency_p99_us", "p99", 2, { dash: [6, 3] })],
};

/** Graphs of everything, a core, a process. */
export const KINDS = {
  whole: [
    { ...UTILIZATION, key: "whole utilization", lines: [
      line("utilization", "mean of all cores", 1),
      line("utilization_high", "highest", 2, { dash: [6, 3] }), line("utilization_low", "lowest", 3, { dash: [2, 3] }),
    ] },
    EXECUTIONS,
    { ...LATENCY, key: "whole latency", lines: [
      line("latency_p50_us", "middle p50", 1), line("latency_p99_us", "worst p99", 2, { dash: [6, 3] }),
    ] },
    FLOPS,
    { key: "whole memory", title: "Device memory", show: bytes, lines: [line("device_memory_bytes", "used", 1)] },
    { key: "host", title: "Host", show: percent, most: 1, lines: [
      line("host_cpu", "processors", 1), line("host_memory", "memory", 2, { dash: [6, 3] }),
    ] },
  ],
  core: [UTILIZATION, EXECUTIONS, FLOPS, { key: "core memory", title: "Device memory", show: bytes, lines: [line("memory_bytes", "used", 1)] }],
  process: [UTILIZATION, EXECUTIONS, LATENCY, FLOPS],
};

class Graph {
  constructor(spec) {
    this.spec = spec;
    this.values = spec.lines.map(() => h("b"));
    this.legend = spec.lines.map((each, i) => {
      const sign = h("i", { "aria-hidden": "true", "data-color": each.color, "data-dash": each.dash ? "" : null });
      return h("li", {}, sign, `${each.label} `, this.values[i]);
    });
    this.canvas = h("div", { class: "canvas", role: "img" });
    this.element = h("figure", {}, h("figcaption", {}, h("h3", { text: spec.title }), h("ul", { class: "legend" }, ...this.legend)), this.canvas);
    this.element.graph = this;
    this.data = null;
    this.size = new ResizeObserver(() => this.plot?.setSize({ width: this.width, height: HEIGHT }));
    this.size.observe(this.canvas);
  }

  get width() {
    return Math.max(120, this.canvas.clientWidth);
  }

  draw(columns) {
    this.data = [columns.wall_s, ...this.spec.lines.map((each) => columns[each.name] ?? [])];
    if (!this.plot) this.make();
    else this.plot.setData(this.data);
    if (this.plot.cursor.idx == null || this.plot.cursor.left < 0) this.tell(columns.wall_s.length - 1);
  }

  /** The figures at one moment as text. */
  tell(at) {
    const said = this.spec.lines.map((each, i) => {
      const text = this.spec.show(this.data[i + 1][at]);
      setText(this.values[i], text);
      return `${each.label} ${text}`;
    });
    setAttribute(this.canvas, "aria-label", `${this.spec.title} over the last minutes; now ${said.join(", ")}`);
  }

  make() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    this.plot?.destroy();
    this.plot = new uPlot({
      width: this.width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [0, this.spec.most ?? (high > 0 ? high * 1.08 : 1)] } },
      axes: [
        { ...axis, size: 30, values: (_, times) => times.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour12: false })), space: 90 },
        { ...axis, size: 62, space: 28, ...(this.spec.show === bytes ? { incrs: POWERS_OF_TWO } : {}), values: (_, values) => values.map((v) => this.spec.show(v).replace("FLOP/s", "")) },
      ],
      series: [{}, ...this.spec.lines.map((each) => ({
        stroke: color(`--series-${each.color}`), width: 1.8, dash: each.dash, points: { show: false }, spanGaps: false,
      }))],
      hooks: { setCursor: [(plot) => this.data && this.tell(plot.cursor.idx ?? this.data[0].length - 1)] },
    }, this.data, this.canvas);
  }

  end() {
    this.size.disconnect();
    this.plot?.destroy();
  }
}

export class Graphs {
  constructor(place) {
    this.place = place;
    document.addEventListener("theme", () => this.all.forEach((graph) => graph.data && graph.make()));
  }

  get all() {
    return [...this.place.children].map((element) => element.graph);
  }

  draw(kind, columns) {
    if (kind !== this.kind) {
      this.all.forEach((graph) => graph.end());
      this.place.replaceChildren();
      this.place.keyed = null;
      this.kind = kind;
    }
    keyed(this.place, KINDS[kind], (spec) => spec.key, (spec) => new Graph(spec).element, (element) => element.graph.draw(columns));
  }
}
