// Colour scales: the same as those of the figures, and safe for colour-blind readers.

function parseColour(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// 256 colours of a palette of hex colours, as [r, g, b].
function ramp(palette) {
  const stops = palette.map(parseColour);
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((value, channel) => Math.round(value + (stops[low + 1][channel] - value) * (place - low)));
  });
}

function cssColour([r, g, b]) {
  return `rgb(${r}, ${g}, ${b})`;
}

function isDark([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b < 140;
}

// A scale of a column's values: from 0 or the least to the greatest; neutral at 0 where both signs occur.
function makeScale(values, log) {
  const known = values.filter((value) => typeof value === "number");
  if (!known.length) return { colour: () => null, ends: null };
  let low = Math.min(...known), high = Math.max(...known);
  const positive = known.filter((value) => value > 0);
  if (log && positive.length) {
    low = Math.min(...positive);
    const span = Math.log(high / low) || 1;
    return finishScale("sequential", (value) => (value > 0 ? Math.log(value / low) / span : 0), low, high, true);
  }
  if (low < 0) {
    const reach = Math.max(-low, high);
    return finishScale("diverging", (value) => 0.5 + value / (2 * reach), -reach, reach, false);
  }
  if (!(high > 0 && low > 0.6 * high)) low = 0;
  const span = high - low || 1;
  return finishScale("sequential", (value) => (value - low) / span, low, high, false);
}

function finishScale(name, place, low, high, log) {
  const colours = ramp(PAGE.palettes[name]);
  const colour = (value) => (typeof value === "number" ? colours[Math.max(0, Math.min(255, Math.round(place(value) * 255)))] : null);
  return { colour, ends: [low, high], palette: PAGE.palettes[name], log };
}
