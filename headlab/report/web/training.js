// One column of all heads from step to step of a training, on one colour scale.

class Training {
  constructor(place, series) {
    this.series = series;
    this.stage = make("div", {});
    this.note = make("p", { class: "soft" });
    this.walker = new Walker("Training step", 400, (at) => this.show(at));
    const model = choice("Model", series.map((one, i) => [String(i), one.name]), "0", (value) => { this.model = Number(value); this.draw(); });
    this.model = 0;
    const sorted = Object.keys(series[0].values).sort((a, b) => spread(series[0].values[b]) - spread(series[0].values[a]));
    this.column = sorted[0]; // what changes most
    const columns = sorted.map((name) => [name, `${series[0].titles[name]} — ${name}`]);
    const column = choice("Column", columns, this.column, (value) => { this.column = value; this.draw(); });
    place.append(make("div", { class: "controls" }, series.length > 1 ? model.field : null, column.field, ...this.walker.parts), this.stage, this.note);
    this.draw();
  }

  draw() {
    const { steps, values } = this.series[this.model];
    this.scale = makeScale(values[this.column].flat(), false);
    const ends = this.scale.ends ? this.scale.ends.map(formatNumber).join(" to ") : "no values";
    this.note.textContent = `One colour scale for all steps: ${ends}. Layers down, heads across.`;
    this.walker.reset(steps.length);
  }

  // Draws one step and says what is in it.
  show(at) {
    const one = this.series[this.model], values = one.values[this.column][at];
    const frame = { names: one.names, heads: { ...one.heads, [this.column]: values }, title: `step ${one.steps[at]}` };
    this.stage.replaceChildren(smallMap(frame, this.column, this.scale, 24));
    const best = values.reduce((top, value, row) => (typeof value === "number" && (top < 0 || value > values[top]) ? row : top), -1);
    return `step ${one.steps[at]}` + (best < 0 ? "" : `; greatest: ${one.names[best]} ${formatNumber(values[best])}`);
  }
}

// Greatest less smallest number in a list of lists.
function spread(rows) {
  const numbers = rows.flat().filter((value) => typeof value === "number");
  return numbers.length ? Math.max(...numbers) - Math.min(...numbers) : 0;
}
