// The table of processes: sorted by any column, filtered by tag or pid; a row's name narrows everything to it.

import { byId, h, keyed, setAttribute, setText } from "./dom.js";
import { bytes, digits, latency, percent, short, si, spans, UNKNOWN } from "./format.js";

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const vcpu = (p) => (p.vcpu_user === null ? null : p.vcpu_user + p.vcpu_system);

/** Key, title, what sorts, its text. Numbers begin with the largest. */
const COLUMNS = [
  { key: "tag", title: "Process", of: (p) => p.tag, show: (p) => p.tag, text: true },
  { key: "pid", title: "Pid", of: (p) => p.pid, show: (p) => `${p.pid}${p.foreign ? " (elsewhere)" : ""}` },
  { key: "state", title: "State", of: (p) => p.state, show: state, text: true },
  { key: "where", title: "Device/cores", of: (p) => p.slabs[0]?.device ?? 0, show: where, text: true },
  { key: "utilization", title: "Utilization", of: (p) => p.utilization, show: (p) => percent(p.utilization) },
  { key: "executions_s", title: "Exec/s", of: (p) => p.executions_s, show: (p) => si(p.executions_s) },
  { key: "errors", title: "Errors", of: (p) => p.errors, show: (p) => digits(String(p.errors)) },
  { key: "flops_s", title: "TFLOP/s", of: (p) => p.flops_s, show: (p) => (p.flops_s === null ? UNKNOWN : short(p.flops_s / 1e12)) },
  { key: "p50", title: "p50", of: (p) => p.latency_p50_us, show: (p) => latency(p.latency_p50_us) },
  { key: "p99", title: "p99", of: (p) => p.latency_p99_us, show: (p) => latency(p.latency_p99_us) },
  { key: "device_memory", title: "Device mem.", of: (p) => sum(p.device_memory), show: (p) => bytes(sum(p.device_memory)) },
  { key: "host_memory", title: "Host mem.", of: (p) => sum(p.host_memory), show: (p) => bytes(sum(p.host_memory)) },
  { key: "vcpu", title: "Host CPU", of: vcpu, show: (p) => percent(vcpu(p)) },
  { key: "models", title: "Models", of: (p) => p.models, show: (p) => String(p.models) },
  { key: "runtime", title: "Runtime", of: (p) => p.runtime_version, show: (p) => p.runtime_version || UNKNOWN, text: true },
];
const SIGNS = { running: "", dead: "✝ ", unreadable: "⚠ " };

function state(process) {
  const odd = process.slabs.filter((slab) => slab.error).length;
  const some = process.state === "running" && odd ? `, ${odd} of ${process.slabs.length} slabs unreadable` : "";
  return `${SIGNS[process.state]}${process.state}${some}`;
}

function where(process) {
  return process.slabs.map((slab) => `${slab.device}/${spans(slab.cores) || "none"}`).join("  ");
}

export class Processes {
  constructor(focus) {
    this.focus = focus;
    this.order = { key: "pid", down: false };
    const table = byId("processes");
    this.heads = COLUMNS.map((column) => {
      const button = h("button", { type: "button", on: { click: () => this.sort(column) } }, column.title, h("span", { "aria-hidden": "true" }));
      return h("th", { scope: "col", class: column.text ? null : "number" }, button);
    });
    table.createTHead().append(h("tr", {}, ...this.heads));
    this.body = table.createTBody();
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !getSelection().toString()) focus.toProcess(row.process);
    });
    this.filter = byId("filter");
    this.filter.addEventListener("input", () => this.shown && this.draw(this.shown));
  }

  sort(column) {
    const down = this.order.key === column.key ? !this.order.down : !column.text && column.key !== "pid";
    this.order = { key: column.key, down };
    if (this.shown) this.draw(this.shown);
  }

  /** processes: of the frame; those that use the core in focus, if one is. */
  draw(processes) {
    this.shown = processes;
    const sought = this.filter.value.trim().toLowerCase();
    const { of } = COLUMNS.find((column) => column.key === this.order.key);
    const found = processes.filter((p) => !sought || p.tag.toLowerCase().includes(sought) || String(p.pid).startsWith(sought));
    found.sort((a, b) => compare(of(a), of(b), this.order.down) || a.pid - b.pid);
    COLUMNS.forEach((column, i) => {
      const sorted = column.key === this.order.key;
      setAttribute(this.heads[i], "aria-sort", sorted ? (this.order.down ? "descending" : "ascending") : null);
      setText(this.heads[i].firstChild.lastChild, sorted ? (this.order.down ? " ↓" : " ↑") : "");
    });
    keyed(this.body, found, (p) => p.id, (p) => this.row(p), (row, p) => {
      const chosen = this.focus.process === p.id;
      setAttribute(row, "class", chosen ? "chosen" : null);
      setAttribute(row, "data-state", p.state);
      const button = row.firstElementChild.firstElementChild;
      setText(button, p.tag || String(p.pid));
      setAttribute(button, "aria-pressed", chosen);
      COLUMNS.slice(1).forEach((column, i) => setText(row.children[i + 1], column.show(p)));
      setAttribute(row.children[2], "title", p.error || null);
    });
    byId("no-processes").hidden = found.length > 0;
    setText(byId("no-processes"), processes.length && !found.length ? "None of that tag or pid." : "None.");
  }

  row(process) {
    const cells = COLUMNS.slice(1).map((column) => h("td", { class: column.text ? null : "number" }));
    const row = h("tr", {}, h("th", { scope: "row" }, h("button", { type: "button", class: "link" })), ...cells);
    row.process = process.id;
    return row;
  }
}

function compare(a, b, down) {
  if (a === b) return 0;
  if (a === null) return 1; // what is not known comes last, either way
  if (b === null) return -1;
  return (a < b ? -1 : 1) * (down ? -1 : 1);
}
