// One attention map as a matrix: queries down, keys across; the number under the pointer or the arrow keys.

class Matrix {
  constructor(place, text, map, weights, options, say) {
    Object.assign(this, { text, map, weights, options, say, cursor: null });
    const { queries, keys } = options.tokens;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label":
      `Attention matrix of ${map.name}, ${queries.length} queries by ${keys.length} keys; arrow keys read out weights` });
    this.scroll = make("div", { class: "scroll" }, this.canvas);
    place.append(this.scroll);
    this.measure(place.clientWidth || 700);
    this.image = mapImage(weights, map.shape[1], queries, keys, { log: options.log, floor: map.floor, most: 1024 });
    this.draw();
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.move(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  // Cells of ten pixels and more carry tokens; smaller ones positions.
  measure(width) {
    const { queries, keys } = this.options.tokens;
    const most = Math.max(queries.length, keys.length, 1);
    const labels = 78;
    let cell = Math.min(26, (Math.min(width, 900) - labels - 8) / most);
    if (cell < 11 && most <= 90) cell = 11;
    this.named = cell >= 10;
    this.cell = cell;
    this.left = this.named ? labels : 34;
    this.top = this.named ? 74 : 20;
    this.width = keys.length * cell;
    this.height = queries.length * cell;
  }

  draw() {
    const { left, top, width, height, cell } = this;
    const pen = (this.pen = sizeCanvas(this.canvas, left + width + 2, top + height + 2));
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, left + width + 2, top + height + 2);
    pen.imageSmoothingEnabled = false;
    const shown = this.image.block === 1 ? [width, height] : [this.image.canvas.width * this.image.block * cell, this.image.canvas.height * this.image.block * cell];
    pen.drawImage(this.image.canvas, left, top, shown[0], shown[1]);
    pen.strokeStyle = "#c5ccd3";
    pen.strokeRect(left + 0.5, top + 0.5, width, height);
    this.axes(pen);
    this.base = null;
  }

  axes(pen) {
    const { queries, keys } = this.options.tokens;
    const size = Math.min(12, Math.max(9, this.cell - 2));
    pen.font = `${size}px ${FONT}`;
    pen.fillStyle = "#333";
    pen.textBaseline = "middle";
    const step = this.named ? 1 : niceStep(26 / this.cell);
    const names = keysOf(this.text);
    for (let y = 0; y < queries.length; y += step) {
      pen.textAlign = "right";
      pen.fillText(this.named ? shorten(pen, this.text.queries[queries[y]], this.left - 6) : String(queries[y]), this.left - 4, this.top + (y + 0.5) * this.cell);
    }
    for (let x = 0; x < keys.length; x += step) {
      pen.save();
      pen.translate(this.left + (x + 0.5) * this.cell, this.top - 4);
      if (this.named) pen.rotate(-Math.PI / 2);
      pen.textAlign = this.named ? "left" : "center";
      pen.fillText(this.named ? shorten(pen, names[keys[x]], this.top - 6) : String(keys[x]), 0, this.named ? 0 : -4);
      pen.restore();
    }
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left - this.left) / this.cell), y = Math.floor((event.clientY - box.top - this.top) / this.cell);
    const { queries, keys } = this.options.tokens;
    this.move(x >= 0 && y >= 0 && x < keys.length && y < queries.length ? [y, x] : null);
  }

  key(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const { queries, keys } = this.options.tokens;
    const [y, x] = this.cursor || [-step[0], -step[1]];
    this.move([Math.max(0, Math.min(queries.length - 1, y + step[0])), Math.max(0, Math.min(keys.length - 1, x + step[1]))]);
  }

  // The picture is kept and put back, so that moving costs nothing, whatever the size.
  move(cursor) {
    this.cursor = cursor;
    const { canvas, pen, left, top, cell } = this;
    if (!this.base) {
      this.base = document.createElement("canvas");
      this.base.width = canvas.width;
      this.base.height = canvas.height;
      this.base.getContext("2d").drawImage(canvas, 0, 0);
    }
    pen.save();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.base, 0, 0);
    pen.restore();
    if (!cursor) return this.say("");
    const [y, x] = cursor;
    pen.strokeStyle = "#d55e00";
    pen.lineWidth = 1.5;
    pen.strokeRect(left + x * cell - 0.5, top + y * cell - 0.5, Math.max(cell, 3) + 1, Math.max(cell, 3) + 1);
    const query = this.options.tokens.queries[y], key = this.options.tokens.keys[x];
    this.say(weightText(this.text, query, key, this.weights[query * this.map.shape[1] + key], this.map));
  }
}

const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

function weightText(text, query, key, weight, map) {
  const number = weight === 0 ? `below ${map.floor.toPrecision(1)}` : weight < 0.01 ? weight.toFixed(4) : weight.toFixed(3);
  // isolates keep right-to-left tokens from turning the sentence around
  return `${map.name}: query \u2068${text.queries[query]}\u2069 (${query}) → key \u2068${keysOf(text)[key]}\u2069 (${key}): ${number}`;
}

function niceStep(least) {
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step >= least) || 2000;
}

function shorten(pen, token, room) {
  if (pen.measureText(token).width <= room) return token;
  const chars = [...token];
  let length = Math.min(chars.length, 40);
  while (length > 1 && pen.measureText(chars.slice(0, length).join("") + "…").width > room) length--;
  return chars.slice(0, length).join("") + "…";
}
