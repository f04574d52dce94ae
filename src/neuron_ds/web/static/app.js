// The page: what the stream brings goes into the store, and what is in the store, narrowed to the focus, is drawn.

import { Latency, Memory } from "./bars.js";
import { Details } from "./details.js";
import { byId, h, keyed, say, setAttribute, setText } from "./dom.js";
import { Focus } from "./focus.js";
import { bytes, duration, latency as latencyText, percent, si } from "./format.js";
import { Graphs } from "./graphs.js";
import { Heatmap } from "./heatmap.js";
import { Log } from "./log.js";
import { Processes } from "./processes.js";
import { Past, Store } from "./store.js";
import { Stream } from "./stream.js";

const store = new Store();
const focus = new Focus();
const heatmap = new Heatmap(focus);
const graphs = new Graphs(byId("graphs"));
const processes = new Processes(focus);
const latency = new Latency();
const memory = new Memory();
const details = new Details();
const log = new Log();

/** What the server told of the core or process in focus: undefined if it is gone, null while we wait. */
let told = null;
let past = null;
let asking = null;
let drawing = 0;

const stream = new Stream("api/stream", {
  hello(hello) {
    store.hello(hello);
    setText(byId("source"), `${hello.title} · ${hello.version}`);
    past = null;
  },
  frame(picture) {
    log.announce(store.take(picture));
    if (focus.any) {
      past?.add(picture.wall_s, inFocus());
      ask();
    }
    plan();
  },
  state(name, words) {
    setAttribute(byId("connection"), "data-state", name);
    setText(byId("connection"), words);
    document.body.classList.toggle("old", name !== "live");
  },
});

setInterval(() => {
  const age = stream.age_ms;
  setText(byId("age"), age === null || age < 2 * stream.period_ms ? "" : `· picture ${duration(age / 1000)} old`);
}, 500);

focus.addEventListener("change", () => {
  told = past = asking = null;
  if (focus.any) ask();
  draw();
});
byId("clear").addEventListener("click", () => {
  focus.clear();
  byId("main").focus();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.type !== "search") focus.clear();
});
setAttribute(byId("metrics"), "aria-controls", "heatmap");

/** The figures of what is in focus, as of the latest frame. */
function inFocus() {
  if (focus.core) {
    const cell = store.cell(focus.core.device, focus.core.core);
    return cell && { ...cell, memory_bytes: sum(cell.memory) };
  }
  return store.process(focus.process);
}

/** Ask for the details of the focus; one question at a time. */
async function ask() {
  const key = focus.key;
  if (asking === key || !store.frame) return;
  asking = key;
  try {
    const get = async (address) => {
      const answer = await fetch(address);
      if (answer.status === 404) return undefined;
      if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
      return answer.json();
    };
    const wanted = past ? [focus.address] : [focus.address, `${focus.address}/history`];
    const [found, history] = await Promise.all(wanted.map(get));
    if (focus.key !== key) return;
    told = found;
    if (history) past = new Past(history);
    plan();
  } catch {
    // the connection is lost, which the stream says, or the server is only about to answer: the next frame asks again
  } finally {
    if (asking === key) asking = null;
  }
}

function plan() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    draw();
  });
}

function draw() {
  const { frame } = store;
  if (!frame) return;
  document.body.dataset.frame = frame.number;
  const chosen = focus.process === null ? null : store.process(focus.process);
  say(byId("empty"), frame.empty);
  say(byId("error"), frame.error);
  drawFocus(chosen);
  drawTotals(frame, chosen);
  heatmap.draw(frame.devices, focus.process === null ? null : cellsOf(chosen));
  const kind = focus.core ? "core" : focus.process !== null ? "process" : "whole";
  const columns = kind === "whole" ? store.past.columns : past?.columns;
  if (columns) graphs.draw(kind, columns);
  processes.draw(focus.core ? frame.processes.filter(usesCore) : frame.processes);
  const narrowed = frame.processes.filter((p) => (focus.core ? usesCore(p) : focus.process === null || p.id === focus.process));
  latency.draw(narrowed, told?.latencies_us);
  memory.draw(memoryRows(frame, chosen));
  log.findings(frame.findings.filter((f) => isMine(f, logical(f))), frame.findings_total - frame.findings.length);
  log.events(store.events.filter((e) => isMine(e, e.core)));
  if (focus.any) details.draw(title(chosen), told, chosen);
  else details.clear();
}

const usesCore = (process) =>
  process.slabs.some((slab) => slab.device === focus.core.device && slab.cores.includes(focus.core.core));

function title(chosen) {
  if (focus.core) return `Device ${focus.core.device}, core ${focus.core.core}`;
  return chosen ? `Process ${chosen.tag} (pid ${chosen.pid})` : `Process ${focus.process}`;
}

function drawFocus(chosen) {
  byId("focus").hidden = !focus.any;
  const gone = focus.process !== null && !chosen ? ", which is not there any more" : "";
  setText(byId("focus-text"), focus.any ? `Only ${title(chosen).replace(/^[DP]/, (c) => c.toLowerCase())}${gone}` : "");
}

/** The cells of a process by "device.core": those it uses at once, their figures when the server has told them. */
function cellsOf(process) {
  const cells = new Map();
  for (const slab of process?.slabs ?? []) {
    for (const core of slab.cores) cells.set(`${slab.device}.${core}`, { state: "unknown" });
  }
  for (const [device, , , , rows] of told?.devices ?? []) {
    for (const cell of store.cells(rows)) cells.set(`${device}.${cell.core}`, cell);
  }
  return cells;
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

function drawTotals(frame, chosen) {
  const totals = focus.any ? totalsOf(chosen) : totalsOfAll(frame);
  keyed(byId("totals"), totals, ([name]) => name, () => h("div", {}, h("dt"), h("dd")), (element, [name, text]) => {
    setText(element.firstChild, name);
    setText(element.lastChild, text);
  });
}

/** Of the core or process in focus. */
function totalsOf(chosen) {
  const it = inFocus();
  if (!it) return [];
  const about = focus.core
    ? [["State", it.state], ["Physical cores", it.physical.join(", ")]]
    : [["State", it.state], ["Cores", String(sum(chosen.slabs.map((slab) => slab.cores.length)))]];
  const memory = focus.core ? [["Device memory", bytes(it.memory_bytes)]] : [
    ["p50, p99", `${latencyText(it.latency_p50_us)}, ${latencyText(it.latency_p99_us)}`],
    ["Device memory", bytes(sum(it.device_memory))],
    ["Host memory", bytes(sum(it.host_memory))],
  ];
  return [
    ...about, ["Utilization", percent(it.utilization)], ["Executions", `${si(it.executions_s)}/s`],
    ["Errors", `${si(it.errors_s)}/s`], ["Compute", si(it.flops_s, "FLOP/s")], ...memory,
  ];
}

function totalsOfAll(frame) {
  const { whole, host } = frame;
  const cells = frame.devices.flatMap((device) => device.cells);
  const count = (state) => cells.filter((cell) => cell.state === state).length;
  const marked = ["hung", "slow"].map((state) => [state, count(state)]).filter(([, n]) => n).map(([state, n]) => `${n} ${state}`);
  return [
    ["Devices", String(frame.devices.length)],
    ["Cores busy", `${count("busy")} of ${cells.length}${marked.length ? `, ${marked.join(", ")}` : ""}`],
    ["Processes", String(frame.processes.length)],
    ["Utilization", percent(whole.utilization)],
    ["Executions", `${si(whole.executions_s)}/s`],
    ["Errors", `${si(whole.errors_s)}/s`],
    ["Compute", si(whole.flops_s, "FLOP/s")],
    ["Device memory", bytes(whole.device_memory_bytes)],
    ["Host", `CPU ${percent(whole.host_cpu)}, memory ${percent(whole.host_memory)}${host.vcpus ? `, ${host.vcpus} vCPU` : ""}`],
  ];
}

const pairs = (kinds, sizes) => kinds.map((kind, i) => [kind, sizes[i] ?? 0]);

/** Of each device, and of the host: of everything, or of what is in focus. */
function memoryRows(frame, chosen) {
  const { device_memory, host_memory } = store.names;
  const on = (device, parts, more = {}) => ({ key: `device ${device.device}`, where: "device", title: `Device ${device.device}`, total_bytes: device.memory_total_bytes, parts, ...more });
  if (focus.core) {
    const cell = store.cell(focus.core.device, focus.core.core);
    return cell ? [on({ device: cell.device, memory_total_bytes: null }, pairs(device_memory, cell.memory), { title: `Core ${cell.core}` })] : [];
  }
  if (focus.process !== null) {
    if (!chosen) return [];
    const rows = (told?.devices ?? []).map(([device, , error, , cells]) => {
      const sums = device_memory.map((_, i) => sum(store.cells(cells).map((cell) => cell.memory[i])));
      const whole = frame.devices.find((each) => each.device === device);
      return on({ device, memory_total_bytes: whole?.memory_total_bytes ?? null }, pairs(device_memory, sums), { unknown: error });
    });
    return [...rows, { key: "host", where: "host", title: "Host", total_bytes: null, parts: pairs(host_memory, chosen.host_memory) }];
  }
  const host = host_memory.map((_, i) => sum(frame.processes.map((p) => p.host_memory[i])));
  return [
    ...frame.devices.map((device) => on(device, pairs(device_memory, device.memory), { unknown: device.error })),
    ...(frame.processes.length ? [{ key: "host", where: "host", title: "Host", total_bytes: null, parts: pairs(host_memory, host) }] : []),
  ];
}

/** A finding names the physical core. */
function logical({ device, core }) {
  if (core === null) return null;
  const cells = cellsOn(device);
  return cells.find((cell) => cell.physical.includes(core))?.core ?? core;
}

const cellsOn = (device) => store.frame.devices.find((d) => d.device === device)?.cells ?? [];

/** Whether an event or a finding belongs to the focus. */
function isMine(what, core) {
  if (focus.core) return what.device === focus.core.device && (core === null || core === focus.core.core);
  if (focus.process !== null) return what.process === focus.process;
  return true;
}
