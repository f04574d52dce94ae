// Elements from values. Everything that comes from a process is text here, never markup.

/** A new element. props: attributes; `class`, `on` ({event: handler}) and `text` are what they say. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "text") {
      element.textContent = value;
    } else if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Text, where it is another one. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** An attribute, where it is another one; null takes it away. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** A text that is there only if it says something. */
export function say(element, text) {
  setText(element, text);
  element.hidden = !text;
}

/** Children of `parent` for `items`, in their order; an element stays the same as long as its key is there. */
export function keyed(parent, items, key, make, update = () => {}) {
  const kept = parent.keyed ?? new Map();
  const next = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const element = kept.get(name) ?? make(item);
    next.set(name, element);
    kept.delete(name);
    update(element, item);
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const element of kept.values()) element.remove();
  parent.keyed = next;
  // What moves to another place loses the keyboard on its way.
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

/** A table's body: rows of texts, each with a key in front. */
export function fill(body, rows) {
  keyed(body, rows, (row) => row[0], (row) => h("tr", {}, ...row.slice(1).map(() => h("td"))), (element, row) => {
    row.slice(1).forEach((text, i) => setText(element.children[i], text));
  });
}
