// What the server tells of one core or process when asked: who it is, its models, all its counters.

import { byId, fill, h, keyed, setText } from "./dom.js";
import { bytes, digits, si, UNKNOWN } from "./format.js";

const IDENTITY = {
  user: "User", command: "Command", container: "Container", container_id: "Container id", namespace: "Namespace",
  pod: "Pod", pod_uid: "Pod uid",
};

function table(caption, heads) {
  const element = h("table", { class: "figures" }, h("caption", { text: caption }));
  element.createTHead().append(h("tr", {}, ...heads.map((text) => h("th", { scope: "col", text }))));
  return { element, body: element.createTBody() };
}

const scroll = (label, element) => h("div", { class: "scroll tall", role: "region", "aria-label": label, tabindex: "0" }, element);

export class Details {
  constructor() {
    this.section = byId("details");
    this.title = byId("details-title");
    this.facts = h("dl", { class: "facts" });
    this.models = table("Models", ["Name", "Id", "Node", "Device/core", "Device mem.", "Host mem."]);
    this.counters = table("Counters", ["Process", "Core", "Counter", "Value", "Per second", "Meaning"]);
    this.zeros = h("input", { type: "checkbox", on: { change: () => this.shown && this.draw(...this.shown) } });
    this.modelBox = scroll("Models", this.models.element);
    this.note = h("p");
    byId("details-body").append(
      this.note, this.facts, this.modelBox, h("label", {}, this.zeros, " also counters at zero"), scroll("Counters", this.counters.element),
    );
  }

  clear() {
    this.shown = null;
    this.section.hidden = true;
  }

  /** found: the answer of the server; null while there is none, undefined if there is nothing of that name any more. */
  draw(title, found, process) {
    this.shown = [title, found, process];
    this.section.hidden = false;
    setText(this.title, title);
    this.note.hidden = Boolean(found);
    setText(this.note, found === undefined ? "It is not there any more." : "Asking.");
    const facts = found ? [...factsOf(found, process)] : [];
    keyed(this.facts, facts, ([name]) => name, () => h("div", {}, h("dt"), h("dd")), (element, [name, text]) => {
      setText(element.firstChild, name);
      setText(element.lastChild, text);
    });
    const models = found?.models ?? [];
    this.modelBox.hidden = !models.length;
    fill(this.models.body, models.map((m) => [
      `${m.device}/${m.slot}/${m.model_id}/${m.core}/${m.node_id}`, m.name || UNKNOWN, String(m.model_id), String(m.node_id), `${m.device}/${m.core}`, bytes(m.device_bytes), bytes(m.host_bytes),
    ]));
    const lines = (found?.counters ?? []).map(([name, unit, kind, help, value, rate, physical, id, tag]) => ({
      name, unit, help, value, rate, physical, id, tag: tag ?? "", kind,
    }));
    fill(this.counters.body, lines.filter((each) => this.zeros.checked || each.value !== "0").map((each) => [
      `${each.id ?? ""}/${each.physical ?? ""}/${each.name}`, each.tag, each.physical === undefined || each.physical === null ? "all" : String(each.physical),
      each.name, shown(each), each.rate === null ? "" : si(each.rate), each.help,
    ]));
  }
}

function shown({ value, unit }) {
  const number = Number(value);
  if (unit === "bytes") return number >= 2 ** 63 ? "underflow" : bytes(number);
  return unit && unit !== "1" ? `${digits(value)} ${unit}` : digits(value);
}

function* factsOf(found, process) {
  if (process) {
    yield ["Pid", `${process.pid}${process.foreign ? " (of another pid namespace)" : ""}`];
    yield ["State", process.error ? `${process.state}: ${process.error}` : process.state];
  }
  for (const [key, text] of Object.entries(found.identity ?? {})) if (text) yield [IDENTITY[key] ?? key, String(text)];
  for (const [key, text] of Object.entries(found.versions ?? {})) yield [`${key[0].toUpperCase()}${key.slice(1)}`, text];
  for (const [key, text] of Object.entries(found.records ?? {})) yield [`Record ${key}`, text];
}
