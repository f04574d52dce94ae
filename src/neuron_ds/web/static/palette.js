// Viridis: equal steps of a value look like equal steps, also to the colour-blind and in print. The text on a colour is
// black or white, whichever stands out more, which is never less than 4.5 to 1.

const ANCHORS = "440154 482475 414487 355f8d 2a788e 21918c 22a884 44bf70 7ad151 bddf26 fde725".split(" ");
const STEPS = 128;

const parts = (hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);

function at(share) {
  const x = share * (ANCHORS.length - 1);
  const i = Math.min(ANCHORS.length - 2, Math.floor(x));
  const [low, high] = [parts(ANCHORS[i]), parts(ANCHORS[i + 1])];
  return low.map((c, k) => Math.round(c + (high[k] - c) * (x - i)));
}

const LIST = Array.from({ length: STEPS }, (_, i) => {
  const rgb = at(i / (STEPS - 1));
  const light = luminance(rgb);
  return { color: `rgb(${rgb.join(",")})`, text: (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000" : "#fff" };
});

/** {color, text} of a share of 0 to 1. */
export const shade = (share) => LIST[Math.round(Math.min(1, Math.max(0, share)) * (STEPS - 1))];
