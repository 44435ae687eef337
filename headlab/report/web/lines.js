// Attention as lines from query tokens (left) to key tokens (right), one colour for each head; only what is in view is drawn.

const ROW = 20; // pixels of a token
const MOST_LINES = 2500; // drawn at once, the strongest of those in view

class Lines {
  // `heads` is [{map, weights, colour}], all on one text.
  constructor(place, text, heads, options, say) {
    Object.assign(this, { text, heads, options, say, focus: null });
    const { queries, keys } = options.tokens;
    this.total = Math.max(queries.length, keys.length) * ROW + 28;
    this.view = Math.min(this.total, 620);
    this.canvas = make("canvas", { tabindex: "0", role: "application",
      "aria-label": "Attention lines from queries, left, to keys, right; arrow up and down pick a query and read out its strongest keys" });
    const spacer = make("div", { class: "spacer" }, this.canvas);
    spacer.style.height = `${this.total}px`;
    this.scroll = make("div", { class: "lines" }, spacer);
    this.scroll.style.height = `${this.view}px`;
    this.note = make("p", { class: "soft" });
    place.append(this.scroll, this.note);
    this.width = Math.min(Math.max((place.clientWidth || 700) - 18, 240), 760);
    this.column = Math.min(150, this.width * 0.3);
    this.drawn = this.count();
    this.scroll.addEventListener("scroll", () => this.later());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.attend(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  y(i) {
    return 24 + (i + 0.5) * ROW - this.scroll.scrollTop;
  }

  inView(y) {
    return y > -ROW && y < this.view + ROW;
  }

  // Calls visit(weight, i, j, h) for the lines with an end in view, or those of the token that is attended to.
  eachLine(visit) {
    const { queries, keys } = this.options.tokens;
    const first = Math.max(0, Math.floor((this.scroll.scrollTop - 24) / ROW) - 1), last = first + Math.ceil(this.view / ROW) + 2;
    const only = (side) => (this.focus && this.focus.side === side ? this.focus.at : null);
    const query = only("query"), key = only("key");
    this.heads.forEach(({ weights, map }, h) => {
      for (let i = query ?? 0; i < (query === null ? queries.length : query + 1); i++) {
        const seen = (i >= first && i <= last) || this.focus;
        const from = key ?? (seen ? 0 : first), to = key === null ? Math.min(keys.length, seen ? keys.length : last + 1) : key + 1;
        for (let j = from, start = queries[i] * map.shape[1]; j < to; j++) {
          const weight = weights[start + keys[j]];
          if (weight >= this.options.threshold && weight > 0) visit(weight, i, j, h);
        }
      }
    });
  }

  // The strongest lines, at most MOST_LINES: counted into bins first, since sorting millions takes long.
  visibleLines() {
    const bins = new Int32Array(512), bin = (weight) => Math.floor(Math.sqrt(Math.min(1, weight)) * 511);
    this.eachLine((weight) => { bins[bin(weight)]++; });
    let least = 511, room = MOST_LINES;
    while (least > 0 && room - bins[least] > 0) room -= bins[least--];
    const found = [];
    let total = 0;
    this.eachLine((weight, i, j, h) => {
      total++;
      const place = bin(weight);
      if (place > least || (place === least && room-- > 0)) found.push([weight, i, j, h]);
    });
    this.left = total - found.length;
    return found;
  }

  count() {
    const { queries, keys } = this.options.tokens;
    let count = 0;
    for (const { weights, map } of this.heads) {
      for (const query of queries) for (const key of keys) {
        const weight = weights[query * map.shape[1] + key];
        count += weight >= this.options.threshold && weight > 0;
      }
    }
    return count;
  }

  draw() {
    const { queries, keys } = this.options.tokens;
    const pen = sizeCanvas(this.canvas, this.width, this.view);
    pen.clearRect(0, 0, this.width, this.view);
    const lines = this.visibleLines();
    const left = this.column, right = this.width - this.column;
    for (const [weight, i, j, h] of lines) {
      const strength = shade(weight, this.options.log, this.heads[h].map.floor);
      pen.globalAlpha = 0.12 + 0.88 * strength;
      pen.lineWidth = 0.6 + 3 * strength;
      pen.strokeStyle = this.heads[h].colour;
      pen.beginPath();
      pen.moveTo(left + 3, this.y(i));
      pen.lineTo(right - 3, this.y(j));
      pen.stroke();
    }
    pen.globalAlpha = 1;
    this.tokens(pen, queries, this.text.queries, "query", left, "right", lines);
    this.tokens(pen, keys, keysOf(this.text), "key", right, "left", lines);
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, this.width, 20);
    pen.fillStyle = "#5b6875";
    pen.font = `12px ${FONT}`;
    pen.textAlign = "right";
    pen.fillText("queries", left, 10);
    pen.textAlign = "left";
    pen.fillText("keys", right, 10);
    const all = queries.length * keys.length * this.heads.length;
    const cut = this.left ? ` Of those in view the strongest ${MOST_LINES}.` : "";
    this.note.textContent = `Lines below ${formatWeight(this.options.threshold)} are not drawn: ${this.drawn} of ${all} are.${cut}`;
  }

  tokens(pen, chosen, names, side, x, align, lines) {
    pen.textBaseline = "middle";
    for (let i = 0; i < chosen.length; i++) {
      const y = this.y(i);
      if (!this.inView(y)) continue;
      const weight = this.focus && this.focus.side !== side ? Math.max(0, ...lines.filter((line) => line[side === "key" ? 2 : 1] === i).map((line) => line[0])) : 0;
      const focused = this.focus && this.focus.side === side && this.focus.at === i;
      pen.font = `${focused ? "bold " : ""}13px ${FONT}`;
      pen.fillStyle = focused || weight > 0 || !this.focus ? "#1d2733" : "#9aa3ab";
      pen.textAlign = align;
      const number = weight > 0 ? formatWeight(weight) : "";
      const room = this.column - 8 - (number ? 40 : 0);
      const token = shorten(pen, names[chosen[i]], room);
      pen.direction = "ltr";
      pen.fillText(`\u2068${token}\u2069`, x, y);
      if (!number) continue;
      const width = pen.measureText(token).width;
      pen.fillStyle = "#b34700";
      pen.fillText(number, align === "left" ? x + width + 6 : x - width - 6, y);
    }
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const at = Math.floor((y - 24 + this.scroll.scrollTop) / ROW);
    const { queries, keys } = this.options.tokens;
    const side = x < this.column + 4 ? "query" : x > this.width - this.column - 4 ? "key" : null;
    const count = side === "query" ? queries.length : keys.length;
    this.attend(side && at >= 0 && at < count ? { side, at } : null);
  }

  key(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = this.focus && this.focus.side === "query" ? this.focus.at : step > 0 ? -1 : this.options.tokens.queries.length;
    const at = Math.max(0, Math.min(this.options.tokens.queries.length - 1, from + step));
    const y = 24 + at * ROW;
    if (y < this.scroll.scrollTop + 24) this.scroll.scrollTop = y - 24;
    if (y > this.scroll.scrollTop + this.view - 2 * ROW) this.scroll.scrollTop = y - this.view + 2 * ROW;
    this.attend({ side: "query", at });
  }

  attend(focus) {
    const same = JSON.stringify(focus) === JSON.stringify(this.focus);
    this.focus = focus;
    if (same) return;
    this.later();
    this.say(focus ? this.readout(focus) : "");
  }

  readout({ side, at }) {
    const { queries, keys } = this.options.tokens;
    const from = (side === "query" ? queries : keys)[at];
    const name = (side === "query" ? this.text.queries : keysOf(this.text))[from];
    const parts = this.heads.slice(0, 6).map((head) => {
      const nKeys = head.map.shape[1];
      const found = side === "query" ? strongest(head.weights, nKeys, from, keys, 3)
        : queries.map((i) => [i, head.weights[i * nKeys + from]]).sort((a, b) => b[1] - a[1]).slice(0, 3);
      const others = side === "query" ? keysOf(this.text) : this.text.queries;
      return `${head.map.name}: ${found.map(([i, weight]) => `\u2068${others[i]}\u2069 (${i}) ${formatWeight(weight)}`).join(", ")}`;
    });
    return `${side} \u2068${name}\u2069 (${from}) ${side === "query" ? "→" : "←"} ${parts.join("; ")}`;
  }
}

function formatWeight(weight) {
  return weight >= 0.0995 ? weight.toFixed(2) : weight >= 0.00995 ? weight.toFixed(3) : weight.toFixed(4);
}
