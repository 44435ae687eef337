// Several runs side by side: the same column of each, rank correlations, changed labels, and a walk through the runs.

class Compare {
  constructor(place, runs, pairs) {
    this.runs = runs;
    this.pairs = [...pairs].sort((a, b) => b.same_model - a.same_model);
    const withHeads = runs.filter((run) => run.heads);
    const shared = withHeads[0].numeric.filter((column) => withHeads.filter((run) => run.numeric.includes(column)).length > 1);
    this.columns = shared.length ? shared : withHeads[0].numeric;
    this.column = this.columns[0];
    this.place = place;
    const title = (column) => (withHeads[0].definitions[column] || [column])[0];
    const column = choice("Column", this.columns.map((name) => [name, `${title(name)} — ${name}`]), this.column, (value) => { this.column = value; this.draw(); });
    this.maps = make("div", { class: "side-by-side" });
    this.walk = make("div", { class: "walk" });
    place.append(make("div", { class: "controls" }, column.field), this.maps, this.walk);
    this.draw();
    this.correlations();
    this.changes();
  }

  draw() {
    const shown = this.runs.filter((run) => run.heads && run.heads[this.column]);
    const scale = makeScale(shown.flatMap((run) => run.heads[this.column]), false);
    this.maps.replaceChildren(...shown.map((run) => make("figure", {}, smallMap(run, this.column, scale), make("figcaption", { text: run.title }))));
    const ends = scale.ends ? scale.ends.map(formatNumber).join(" to ") : "no values";
    this.maps.append(make("p", { class: "soft", text: `One colour scale for all: ${ends}. Layers down, heads across.` }));
    this.drawWalk(shown, scale);
  }

  // Runs of the same heads, such as checkpoints along a training, one after the other in one picture.
  drawWalk(shown, scale) {
    const heads = (run) => run.names.join(" ");
    const alike = (a, b) => heads(a) === heads(b) && (a.model === b.model || (a.step !== undefined && b.step !== undefined));
    const like = shown.map((run) => shown.filter((other) => alike(run, other))).reduce((best, group) => (group.length > best.length ? group : best), []);
    this.walk.replaceChildren();
    if (this.walker) this.walker.stop();
    if (like.length < 2) return;
    like.sort((a, b) => (a.step ?? 0) - (b.step ?? 0));
    const stage = make("div", {});
    this.walker = new Walker("Run", 900, (at) => {
      const run = like[at];
      stage.replaceChildren(smallMap(run, this.column, scale, 16));
      return run.title + (run.step !== undefined ? ` (step ${run.step})` : "");
    });
    this.walk.append(make("h4", { text: "Runs of the same heads, one after the other" }), make("div", { class: "controls" }, ...this.walker.parts), stage);
    this.walker.reset(like.length);
  }

  correlations() {
    this.place.append(make("h4", { text: "Do runs rank heads alike?" }));
    const rows = this.pairs.flatMap((pair) => pair.correlations.map((row) => [this.runs[pair.left].title, this.runs[pair.right].title, row.column, row.rho, row.p, row.n]));
    this.place.append(plainTable("Rank correlations", ["run", "other run", "column", "rho", "p", "heads"], rows));
    const unlike = this.pairs.some((pair) => !pair.same_model) ? " Heads of unlike models share no more than their place." : "";
    this.place.append(make("p", { class: "soft", text: `Spearman's rank correlation over the heads (kind, layer, head) that both runs have; p is two-sided and not adjusted.${unlike}` }));
    const within = this.runs.filter((run) => run.agreement && run.agreement.length).flatMap((run) => run.agreement.map((row) => [run.title, row.left, row.right, row.rho, row.p, row.n]));
    if (within.length) this.place.append(plainTable("Scores within a run", ["run", "score", "other score", "rho", "p", "heads"], within));
  }

  changes() {
    this.place.append(make("h4", { text: "Labels that changed, among those that both runs decide" }));
    const rows = this.pairs.filter((pair) => pair.same_model).flatMap((pair) => pair.changes.map((row) => [this.runs[pair.left].title, this.runs[pair.right].title, row.head, row.left, row.right]));
    if (!rows.length) this.place.append(make("p", { text: this.pairs.some((pair) => pair.same_model) ? "No label that both runs decide differs between runs of one model." : "No two runs are of one model." }));
    else this.place.append(plainTable("Label changes", ["run", "other run", "head", "labels", "labels in the other run"], rows));
  }
}

function smallMap(run, column, scale, cell = 9) {
  const { kind, layer, head } = run.heads;
  const kinds = [...new Set(kind)];
  const depths = kinds.map((name) => Math.max(...layer.filter((_, row) => kind[row] === name)) + 1);
  const offset = kinds.map((_, i) => depths.slice(0, i).reduce((sum, depth) => sum + depth + 1, 0));
  const canvas = make("canvas", { role: "img", "aria-label": `${column} of ${run.title}, layers down, heads across` });
  const pen = sizeCanvas(canvas, (Math.max(...head) + 1) * cell, (depths.reduce((a, b) => a + b + 1, 0) - 1) * cell);
  run.names.forEach((_, row) => {
    const colour = scale.colour(run.heads[column][row]);
    pen.fillStyle = colour ? cssColour(colour) : "#d8d8d8";
    pen.fillRect(head[row] * cell, (offset[kinds.indexOf(kind[row])] + layer[row]) * cell, cell - 1, cell - 1);
  });
  return canvas;
}

// A sortable table made from rows of values.
function plainTable(title, columns, rows) {
  const numeric = columns.map((_, i) => rows.some((row) => typeof row[i] === "number"));
  const head = make("tr", {}, ...columns.map((name, i) => make("th", { scope: "col", class: numeric[i] ? "n" : null, text: name })));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value, i) => make("td", { class: numeric[i] ? "n" : null, text: formatNumber(value) })))));
  const wrap = make("div", { class: "table", tabindex: "0", role: "region", "aria-label": title, "data-source": "rows" }, make("table", {}, make("thead", {}, head), body));
  const holder = make("div", {}, wrap);
  const source = Object.fromEntries(columns.map((name, i) => [name, rows.map((row) => row[i])]));
  enhanceTable(wrap, { rows: source });
  return holder;
}
