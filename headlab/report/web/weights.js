// Stored attention maps: unpacking, choosing rows and columns, and turning weights into coloured images.

const decoded = new WeakMap();

// Weights of a packed map as Float32Array, row after row; unpacked once.
function decodeMap(map) {
  if (!decoded.has(map)) decoded.set(map, unpackMap(map));
  return decoded.get(map);
}

async function unpackMap(map) {
  const packed = Uint8Array.from(atob(map.data), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = map.shape[0] * map.shape[1];
  const weights = new Float32Array(count);
  if (map.bits === 8) {
    const table = Float32Array.from({ length: 256 }, (_, i) => (i / 255) ** 2);
    for (let i = 0; i < count; i++) weights[i] = table[bytes[i]];
  } else {
    for (let i = 0; i < count; i++) weights[i] = (((bytes[i] << 8) | bytes[count + i]) / 65535) ** 2;
  }
  return weights;
}

// The rows and columns that are shown: all, or those that are no special tokens.
function chosenTokens(text, special) {
  const side = (tokens, marks) => {
    const out = new Set(marks);
    return tokens.map((_, i) => i).filter((i) => special || !out.has(i));
  };
  const queries = side(text.queries, text.queries_special);
  return { queries, keys: text.same ? queries : side(text.keys, text.keys_special) };
}

function keysOf(text) {
  return text.same ? text.queries : text.keys;
}

// A canvas with one pixel for each weight, or for the largest of a block where there are more weights than `most`.
function mapImage(weights, nKeys, queries, keys, { log, floor, most }) {
  const block = Math.max(1, Math.ceil(Math.max(queries.length, keys.length) / most));
  const width = Math.max(1, Math.ceil(keys.length / block)), height = Math.max(1, Math.ceil(queries.length / block));
  const largest = new Float32Array(width * height);
  for (let y = 0; y < queries.length; y++) {
    const start = queries[y] * nKeys, line = Math.floor(y / block) * width;
    for (let x = 0; x < keys.length; x++) {
      const at = line + Math.floor(x / block), weight = weights[start + keys[x]];
      if (weight > largest[at]) largest[at] = weight;
    }
  }
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  const colours = attentionColours();
  for (let i = 0; i < largest.length; i++) {
    const colour = colours[Math.round(255 * shade(largest[i], log, floor))];
    image.data.set(colour, 4 * i);
    image.data[4 * i + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  return { canvas, block };
}

let attentionRamp = null;

function attentionColours() {
  attentionRamp = attentionRamp || ramp(PAGE.palettes.attention);
  return attentionRamp;
}

// 0 to 1: the weight itself, or its place between the floor and 1 on a logarithmic scale.
function shade(weight, log, floor) {
  if (!log) return Math.min(1, weight);
  return weight <= floor ? 0 : Math.min(1, 1 - Math.log(weight) / Math.log(floor));
}

function drawThumb(canvas, weights, shape, size, log, floor, queries, keys) {
  queries = queries || Array.from({ length: shape[0] }, (_, i) => i);
  keys = keys || Array.from({ length: shape[1] }, (_, i) => i);
  const scale = size / Math.max(queries.length, keys.length, 1);
  const width = Math.max(8, keys.length * scale), height = Math.max(8, queries.length * scale);
  const pen = sizeCanvas(canvas, width, height);
  const { canvas: image } = mapImage(weights, shape[1], queries, keys, { log, floor, most: 2 * size });
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, width, height);
  pen.strokeStyle = "#c5ccd3";
  pen.strokeRect(0.5, 0.5, width - 1, height - 1);
}

// The greatest weights of one row, as [key position, weight].
function strongest(weights, nKeys, query, keys, count) {
  return keys.map((key) => [key, weights[query * nKeys + key]]).sort((a, b) => b[1] - a[1]).slice(0, count);
}
