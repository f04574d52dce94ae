// Light, dark, or as the system has it; remembered by the browser.

import { byId } from "./dom.js";

const NAMES = { system: "as the system", light: "light", dark: "dark" };
const KEY = "neuron-ds-theme";

function remembered() {
  try {
    const name = localStorage.getItem(KEY);
    return name in NAMES ? name : "system";
  } catch {
    return "system";
  }
}

function use(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  byId("theme").textContent = `Colours: ${NAMES[name]}`;
  document.dispatchEvent(new Event("theme"));
}

let current = remembered();
use(current);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));
byId("theme").addEventListener("click", () => {
  const names = Object.keys(NAMES);
  current = names[(names.indexOf(current) + 1) % names.length];
  try {
    localStorage.setItem(KEY, current);
  } catch {
    // then it is not remembered
  }
  use(current);
});
