// Figures as people read them. null is not known, which is not 0.

export const UNKNOWN = "–";
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** Three digits or so. */
export function short(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.005) return "<0.01";
  if (size < 9.995) return value.toFixed(2).replace(/\.?0+$/, "");
  if (size < 99.95) return value.toFixed(1).replace(/\.0$/, "");
  return value.toFixed(0);
}

/** With a prefix: 1.2 k, 34 M. */
export function si(value, unit = "") {
  if (!known(value)) return UNKNOWN;
  let n = 0;
  while (Math.abs(value) >= 999.5 && n < 6) [value, n] = [value / 1000, n + 1];
  return join(short(value), ["", "k", "M", "G", "T", "P", "E"][n] + unit);
}

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  let n = 0;
  while (value >= 1023.5 && n < 6) [value, n] = [value / 1024, n + 1];
  return `${short(value)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][n]}`;
}

/** A share of 0 to 1. */
export const percent = (value) => (known(value) ? `${(value * 100).toFixed(0)} %` : UNKNOWN);

/** Microseconds. */
export function latency(us) {
  if (!known(us)) return UNKNOWN;
  if (us < 1000) return `${short(us)} µs`;
  if (us < 1e6) return `${short(us / 1000)} ms`;
  return `${short(us / 1e6)} s`;
}

export function duration(s) {
  if (!known(s)) return UNKNOWN;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return `${(s / 3600).toFixed(1)} h`;
}

export const clock = (wall_s) => new Date(wall_s * 1000).toLocaleTimeString([], { hour12: false });

/** A whole number that came as text, for a counter has more digits than a number of JavaScript. */
export const digits = (text) => text.replace(/\B(?=(\d{3})+$)/g, " ");

/** 0–3, 5 */
export function spans(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0, j; i < sorted.length; i = j + 1) {
    for (j = i; sorted[j + 1] === sorted[j] + 1; ) j++;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}–${sorted[j]}`);
  }
  return parts.join(", ");
}

const join = (number, unit) => (unit ? `${number} ${unit}` : number);

/** What the cells and graphs can show: name, title, unit for people, text for a cell, text with its unit. */
export const METRICS = [
  {
    name: "utilization", title: "Utilization", unit: "%",
    cell: (v) => (known(v) ? (v * 100).toFixed(0) : UNKNOWN), full: percent, most: () => 1,
  },
  { name: "flops_s", title: "TFLOP/s", unit: "TFLOP/s", cell: (v) => (known(v) ? short(v / 1e12) : UNKNOWN), full: (v) => (known(v) ? `${short(v / 1e12)} TFLOP/s` : UNKNOWN) },
  { name: "executions_s", title: "Executions/s", unit: "/s", cell: (v) => si(v).replace(" ", ""), full: (v) => (known(v) ? `${si(v)}/s` : UNKNOWN) },
  { name: "errors_s", title: "Errors/s", unit: "/s", cell: (v) => si(v).replace(" ", ""), full: (v) => (known(v) ? `${si(v)}/s` : UNKNOWN) },
];
