// Device × core as a grid of cells with a value, a colour and, where something is wrong, a word. Arrows move in it,
// Enter narrows everything to a cell. Without known value a cell has a dash, never a zero.

import { byId, h, keyed, setAttribute, setText } from "./dom.js";
import { METRICS } from "./format.js";
import { shade } from "./palette.js";

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
/** States that are said in the cell; the others are told by its value. */
const WORDS = { hung: "hung", slow: "slow", unknown: "?" };

export class Heatmap {
  constructor(focus) {
    this.focus = focus;
    this.table = byId("heatmap");
    this.head = this.table.createTHead().insertRow();
    this.body = this.table.createTBody();
    this.at = null;
    this.table.addEventListener("click", (event) => this.choose(event.target.closest("td")));
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.radios = METRICS.map((metric) =>
      h("label", {}, h("input", {
        type: "radio", name: "metric", value: metric.name, on: { change: () => focus.show(metric.name) },
      }), h("span", { text: metric.title })));
    byId("metrics").append(...this.radios);
    this.scale = [h("span"), h("span", { class: "ramp", "aria-hidden": "true" }), h("span")];
    for (let i = 0; i < 24; i++) {
      const step = h("i");
      step.style.background = shade(i / 23).color;
      this.scale[1].append(step);
    }
    byId("scale").append(...this.scale);
  }

  /** devices: as in the frame. mine: the cells of the process in focus by "device.core", null without one. */
  draw(devices, mine) {
    const metric = METRICS.find((each) => each.name === this.focus.metric) ?? METRICS[0];
    for (const radio of this.radios) radio.firstChild.checked = radio.firstChild.value === metric.name;
    const shown = devices.flatMap((device) => device.cells.map((cell) => (mine ? mine.get(keyOf(cell)) : cell)));
    const most = metric.most?.() ?? Math.max(0, ...shown.map((cell) => cell?.[metric.name] ?? 0));
    setText(this.scale[0], "0");
    setText(this.scale[2], metric.full(most));
    const cores = [...new Set(devices.flatMap((device) => device.cells.map((cell) => cell.core)))].sort((a, b) => a - b);
    setAttribute(this.table, "aria-colcount", cores.length + 1);
    setAttribute(this.table, "aria-rowcount", devices.length + 1);
    keyed(this.head, ["device", ...cores], String, (name) =>
      h("th", { scope: "col", text: name === "device" ? "Device, core" : String(name) }));
    keyed(this.body, devices, (device) => device.device, () => h("tr", {}, h("th", { scope: "row" })), (row, device) => {
      const label = row.firstElementChild;
      setText(label, `${device.device}${device.error ? " unreadable" : ""}`);
      setAttribute(label, "title", device.error || null);
      const at = new Map(device.cells.map((cell) => [cell.core, cell]));
      this.drawRow(row, device, cores.map((core) => at.get(core) ?? { device: device.device, core, absent: true }), {
        metric, most, mine,
      });
    });
    this.rove();
  }

  drawRow(row, device, cells, { metric, most, mine }) {
    while (row.children.length - 1 > cells.length) row.lastElementChild.remove();
    while (row.children.length - 1 < cells.length) {
      row.append(h("td", { role: "gridcell", tabindex: "-1" }, h("b"), h("small")));
    }
    cells.forEach((cell, i) => {
      const element = row.children[i + 1];
      element.at = keyOf(cell);
      const shown = mine ? mine.get(keyOf(cell)) : cell;
      const value = shown?.[metric.name];
      const none = cell.absent || !shown;
      const idle = !none && !value && (shown.state === "idle" || shown.state === "loaded");
      const word = none ? "" : WORDS[shown.state] ?? "";
      setText(element.firstChild, none ? "·" : metric.cell(value));
      setText(element.lastChild, word);
      const state = none ? "none" : shown.state;
      setAttribute(element, "data-state", state);
      const { color, text } = none || idle || value === null || value === undefined
        ? { color: "", text: "" } : shade(most ? value / most : 0);
      if (element.color !== color) {
        element.color = element.style.backgroundColor = color;
        element.style.color = text;
      }
      const chosen = this.focus.isCore(cell.device, cell.core);
      setAttribute(element, "aria-selected", chosen);
      setAttribute(element, "aria-label", label(cell, shown, metric, mine));
    });
  }

  /** One cell is reached by Tab: the one that was last used, else the first. */
  rove() {
    const cells = [...this.body.querySelectorAll("td")];
    const reached = cells.find((cell) => cell.at === this.at) ?? cells[0];
    for (const cell of cells) setAttribute(cell, "tabindex", cell === reached ? "0" : "-1");
  }

  choose(cell) {
    if (!cell) return;
    this.at = cell.at;
    this.rove();
    const [device, core] = cell.at.split(".").map(Number);
    this.focus.toCore(device, core);
  }

  key(event) {
    const cell = event.target.closest("td");
    if (!cell || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") {
      this.choose(cell);
    } else {
      const row = cell.parentElement;
      const [down, right] = MOVES[event.key] ?? [0, 0];
      let to = null;
      if (event.key === "Home") to = row.children[1];
      else if (event.key === "End") to = row.lastElementChild;
      else if (right) to = row.children[cell.cellIndex + right];
      else if (down) to = this.body.rows[row.sectionRowIndex + down]?.children[cell.cellIndex];
      else return;
      if (to?.tagName === "TD") {
        this.at = to.at;
        this.rove();
        to.focus();
      }
    }
    event.preventDefault();
  }
}

const keyOf = (cell) => `${cell.device}.${cell.core}`;

function label(cell, shown, metric, mine) {
  const where = `Device ${cell.device}, core ${cell.core}`;
  if (cell.absent) return `${where}: there is none`;
  if (!shown) return `${where}: not used by this process`;
  return `${where}: ${metric.title} ${metric.full(shown[metric.name])}, ${shown.state}`;
}
