// One column of all heads from step to step of a training, on one colour scale.

class Training {
  constructor(place, series) {
    this.series = series;
    this.stage = make("div", {});
    this.note = make("p", { class: "soft" });
    this.name = make("span", { class: "soft", role: "status" });
    this.slider = make("input", { type: "range", min: "0", value: "0", "aria-label": "Training step", oninput: () => this.show() });
    this.play = make("button", { type: "button", class: "small", text: "Play", "aria-pressed": "false", onclick: () => this.run() });
    const model = choice("Model", series.map((one, i) => [String(i), one.name]), "0", (value) => { this.model = Number(value); this.draw(); });
    this.model = 0;
    const sorted = Object.keys(series[0].values).sort((a, b) => spread(series[0].values[b]) - spread(series[0].values[a]));
    this.column = sorted[0]; // what changes most
    const columns = sorted.map((name) => [name, `${series[0].titles[name]} — ${name}`]);
    const column = choice("Column", columns, this.column, (value) => { this.column = value; this.draw(); });
    place.append(make("div", { class: "controls" }, series.length > 1 ? model.field : null, column.field, this.play, this.slider, this.name), this.stage, this.note);
    this.draw();
  }

  draw() {
    const { steps, values } = this.series[this.model];
    this.scale = makeScale(values[this.column].flat(), false);
    this.slider.max = String(steps.length - 1);
    this.slider.value = String(Math.min(Number(this.slider.value), steps.length - 1));
    const ends = this.scale.ends ? this.scale.ends.map(formatNumber).join(" to ") : "no values";
    this.note.textContent = `One colour scale for all steps: ${ends}. Layers down, heads across.`;
    this.show();
  }

  show() {
    const one = this.series[this.model], at = Number(this.slider.value), values = one.values[this.column][at];
    const frame = { names: one.names, heads: { ...one.heads, [this.column]: values }, title: `step ${one.steps[at]}` };
    this.stage.replaceChildren(smallMap(frame, this.column, this.scale, 24));
    const best = values.reduce((top, value, row) => (typeof value === "number" && (top < 0 || value > values[top]) ? row : top), -1);
    this.name.textContent = `step ${one.steps[at]}` + (best < 0 ? "" : `; greatest: ${one.names[best]} ${formatNumber(values[best])}`);
  }

  run() {
    const playing = Boolean(this.timer);
    if (playing) clearInterval(this.timer);
    this.timer = playing ? null : setInterval(() => {
      this.slider.value = String((Number(this.slider.value) + 1) % this.series[this.model].steps.length);
      this.show();
    }, 400);
    this.play.textContent = playing ? "Play" : "Stop";
    this.play.setAttribute("aria-pressed", String(!playing));
  }
}

// Greatest less smallest number in a list of lists.
function spread(rows) {
  const numbers = rows.flat().filter((value) => typeof value === "number");
  return numbers.length ? Math.max(...numbers) - Math.min(...numbers) : 0;
}
