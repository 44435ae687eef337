// The attention viewer: one text, one head, several or all, as matrices or as lines.

const MOST_TILES = 300;

class Viewer {
  constructor(place, run) {
    const threshold = 0.05;
    Object.assign(this, { run, text: 0, view: "matrix", special: true, log: false, threshold, chosen: new Set([0]), turn: 0 });
    this.text = run.maps[0].text;
    this.heads = make("div", { class: "chips heads", role: "group", "aria-label": "Heads" });
    this.readout = make("p", { class: "readout", role: "status", "aria-live": "polite" });
    this.stage = make("div", { class: "stage" });
    this.caption = make("p", { class: "soft" });
    this.controls(place);
    place.append(this.heads, this.readout, this.stage, this.caption);
    this.listHeads();
    this.draw();
  }

  controls(place) {
    const { run } = this;
    const texts = run.texts.map((text, i) => [String(i), textName(text)]);
    this.textChoice = choice("Text", texts, String(this.text), (value) => this.setText(Number(value)));
    this.viewChoice = choice("View", [["matrix", "matrix"], ["lines", "lines"]], this.view, (value) => { this.view = value; this.draw(); });
    const special = toggle("special tokens", true, (value) => { this.special = value; this.draw(); });
    const log = toggle("log colour", false, (value) => { this.log = value; this.draw(); });
    const slider = make("input", { type: "range", min: "-3.5", max: "0", step: "0.05", value: String(Math.log10(this.threshold)),
      "aria-label": "Threshold of lines", oninput: () => { this.threshold = 10 ** Number(slider.value); said.textContent = `Lines from ${formatWeight(this.threshold)}`; this.draw(); } });
    const said = make("span", { text: `Lines from ${formatWeight(this.threshold)}` });
    this.slider = make("label", { class: "field" }, said, slider);
    const all = make("button", { type: "button", class: "small", text: "all heads", onclick: () => this.choose(this.own()) });
    const one = make("button", { type: "button", class: "small", text: "first head only", onclick: () => this.choose(this.own().slice(0, 1)) });
    place.append(make("div", { class: "controls", role: "group", "aria-label": "Attention viewer" },
      this.textChoice.field, this.viewChoice.field, special.field, log.field, this.slider, all, one));
  }

  // Places in run.maps of the maps on the chosen text.
  own() {
    return this.run.maps.map((_, i) => i).filter((i) => this.run.maps[i].text === this.text);
  }

  setText(text) {
    const names = new Set([...this.chosen].map((i) => this.run.maps[i].name));
    this.text = text;
    const same = this.own().filter((i) => names.has(this.run.maps[i].name));
    this.chosen = new Set(same.length ? same : this.own().slice(0, 1));
    this.listHeads();
    this.draw();
  }

  choose(places) {
    this.chosen = new Set(places);
    this.markHeads();
    this.draw();
  }

  // Shows one map, from outside.
  open(i) {
    this.text = this.run.maps[i].text;
    this.textChoice.select.value = String(this.text);
    this.chosen = new Set([i]);
    this.listHeads();
    this.draw();
  }

  listHeads() {
    this.heads.replaceChildren(...this.own().map((i) => make("button", { type: "button", class: "chip", "data-map": i, text: this.run.maps[i].name,
      onclick: () => { const next = new Set(this.chosen); if (!next.delete(i)) next.add(i); if (next.size) this.choose([...next]); } })));
    this.markHeads();
  }

  markHeads() {
    for (const chip of this.heads.children) chip.setAttribute("aria-pressed", String(this.chosen.has(Number(chip.dataset.map))));
  }

  async draw() {
    const turn = ++this.turn;
    const chosen = [...this.chosen].sort((a, b) => a - b).map((i) => this.run.maps[i]);
    const shown = chosen.slice(0, MOST_TILES);
    const weights = await Promise.all(shown.map(decodeMap));
    if (turn !== this.turn) return; // something newer was asked for meanwhile
    const text = this.run.texts[this.text];
    const options = { tokens: chosenTokens(text, this.special), log: this.log, threshold: this.threshold };
    const say = (words) => { this.readout.textContent = words || "Point at a cell or a token, or focus the picture and use the arrow keys."; };
    this.stage.replaceChildren();
    this.slider.hidden = this.view !== "lines";
    say("");
    if (this.view === "lines") this.drawLines(text, shown, weights, options, say);
    else if (shown.length === 1) this.drawMatrix(text, shown[0], weights[0], options, say);
    else this.drawTiles(shown, weights, options);
    this.caption.textContent = this.describe(chosen, text);
    this.stage.dataset.drawn = String(turn);
  }

  drawMatrix(text, map, weights, options, say) {
    const matrix = new Matrix(this.stage, text, map, weights, options, say);
    this.stage.append(make("div", { class: "legend" }, attentionBar(this.log, map.floor)));
    this.block = matrix.image.block;
  }

  drawLines(text, maps, weights, options, say) {
    const colours = PAGE.palettes.lines;
    const heads = maps.map((map, i) => ({ map, weights: weights[i], colour: colours[i % colours.length] }));
    if (heads.length > 1) this.stage.append(make("p", { class: "keys" }, ...heads.slice(0, 24).map((head) => {
      const swatch = make("span", { class: "swatch" });
      swatch.style.backgroundColor = head.colour;
      return make("span", {}, swatch, head.map.name + " ");
    })));
    new Lines(this.stage, text, heads, options, say);
  }

  drawTiles(maps, weights, options) {
    const tiles = make("div", { class: "thumbs" });
    maps.forEach((map, i) => {
      const canvas = make("canvas", { "aria-hidden": "true" });
      tiles.append(make("button", { type: "button", class: "thumb", "aria-label": `${map.name}: show alone`, onclick: () => this.choose([this.run.maps.indexOf(map)]) },
        canvas, make("span", { text: map.name })));
      drawThumb(canvas, weights[i], map.shape, maps.length > 60 ? 66 : 132, this.log, map.floor, options.tokens.queries, options.tokens.keys);
    });
    this.stage.append(tiles);
  }

  describe(chosen, text) {
    const map = chosen[0];
    const parts = [`Text ${text.id}: ${text.queries.length} queries, ${keysOf(text).length} keys.`];
    parts.push(`Weights are exact to ${map.bits === 16 ? "0.00002" : "0.004"}; those below ${map.floor.toPrecision(1)} are left out and read as such.`);
    if (this.view === "matrix" && chosen.length === 1 && this.block > 1) parts.push(`Each pixel shows the largest of ${this.block} × ${this.block} weights.`);
    if (!this.special) parts.push("Special tokens are hidden, not removed: rows keep their weights and sum below 1.");
    if (chosen.length > MOST_TILES) parts.push(`The first ${MOST_TILES} of ${chosen.length} heads.`);
    if (this.run.left_out) parts.push(`${this.run.left_out} further maps of this run are in its folder, too many for one page.`);
    return parts.join(" ");
  }
}

function textName(text) {
  const words = text.queries.slice(0, 8).join(" ");
  return `${text.id}: \u2068${words.length > 40 ? words.slice(0, 40) + "…" : words}\u2069${text.same ? "" : " (queries and keys differ)"}`;
}

function attentionBar(log, floor) {
  const bar = make("div", { class: "bar" });
  bar.style.background = `linear-gradient(to right, ${PAGE.palettes.attention.join(", ")})`;
  const ends = make("div", { class: "ends" }, make("span", { text: log ? formatWeight(floor) : "0" }), make("span", { text: "1" }));
  return make("div", {}, make("p", { text: `attention weight${log ? ", log colour" : ""}` }), bar, ends);
}
