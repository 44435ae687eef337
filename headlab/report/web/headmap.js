// The head map: one cell for each head, coloured by any column, with label badges, filter, sort and keyboard.

class HeadMap {
  constructor(place, run, onpick) {
    Object.assign(this, { run, onpick, picked: null, log: false, sort: "place", filter: "", wantedLabel: "" });
    this.column = run.labels.length ? "labels" : run.numeric[0] || "layer";
    this.status = make("p", { class: "soft", role: "status" });
    this.legend = make("div", { class: "legend" });
    this.grids = make("div", { class: "grids" });
    this.controls(place);
    place.append(this.status, this.grids, this.legend);
    this.draw();
  }

  controls(place) {
    const { run } = this;
    const title = (column) => (run.definitions[column] ? `${run.definitions[column][0]} — ${column}` : column);
    const columns = run.numeric.map((column) => [column, title(column)]);
    if (run.labels.length) columns.unshift(["labels", "labels"]);
    const colour = choice("Colour", columns, this.column, (value) => { this.column = value; this.draw(); });
    const sort = choice("Order", [["place", "layer and head"], ["layer", "by value in each layer"], ["all", "by value"]], this.sort,
      (value) => { this.sort = value; this.draw(); });
    const log = toggle("log colour", false, (value) => { this.log = value; this.draw(); });
    const input = make("input", { type: "search", placeholder: "L3, sink, entropy < 1", spellcheck: "false",
      oninput: () => { this.filter = input.value; this.mark(); } });
    const parts = [colour.field, sort.field, log.field, make("label", { class: "field" }, make("span", { text: "Filter" }), input)];
    place.append(make("div", { class: "controls", role: "group", "aria-label": "Head map" }, ...parts));
  }

  values() {
    if (this.column !== "labels") return this.run.heads[this.column];
    return this.run.names.map((_, row) => -carriedBy(this.run, row).length);
  }

  draw() {
    const values = this.values();
    this.scale = this.column === "labels" ? null : makeScale(values, this.log);
    this.cells = new Map();
    this.grids.replaceChildren();
    const rows = this.run.names.map((_, row) => row);
    if (this.sort === "all") this.grid("all heads", ranked(rows, values, this.column), 12, false);
    else for (const kind of new Set(this.run.heads.kind)) {
      const own = rows.filter((row) => this.run.heads.kind[row] === kind);
      this.grid(kind === "cross" ? "cross-attention" : kind, this.layers(own, values), 0, true);
    }
    this.drawLegend(values);
    this.mark();
  }

  layers(rows, values) {
    const { layer, head } = this.run.heads;
    const lines = new Map();
    for (const row of rows) {
      if (!lines.has(layer[row])) lines.set(layer[row], []);
      lines.get(layer[row]).push(row);
    }
    const found = [...lines.entries()].sort((a, b) => a[0] - b[0]);
    if (this.sort === "layer") return found.map(([number, line]) => [number, ranked(line, values, this.column)]);
    return found.map(([number, line]) => {
      const placed = Array(Math.max(...line.map((row) => head[row])) + 1).fill(null);
      for (const row of line) placed[head[row]] = row;
      return [number, placed];
    });
  }

  // `lines` is [[layer, rows]], or a flat list that is broken after `width`.
  grid(title, lines, width, layered) {
    if (!layered) {
      const flat = lines;
      lines = [];
      for (let i = 0; i < flat.length; i += width) lines.push([null, flat.slice(i, i + width)]);
    }
    const most = Math.max(...lines.map(([, rows]) => rows.length));
    const grid = make("div", { class: most > 20 ? "cells many" : "cells", role: "grid", "aria-label": `Heads, ${title}` });
    grid.style.gridTemplateColumns = `2.4em repeat(${most}, minmax(${most > 12 ? 17 : 20}px, 1fr))`;
    for (const [number, rows] of lines) {
      const line = make("div", { role: "row", class: "line" });
      line.append(make("span", { role: "rowheader", class: "layer", text: number === null ? "" : String(number),
        "aria-label": number === null ? "heads" : `layer ${number}` }));
      for (let i = 0; i < most; i++) line.append(i < rows.length && rows[i] !== null ? this.cell(rows[i]) : make("span", { class: "no-head" }));
      grid.append(line);
    }
    grid.addEventListener("keydown", (event) => this.key(event));
    this.grids.append(make("div", { class: "grid" }, make("h4", { text: title }), make("div", { class: "scroll" }, grid)));
  }

  cell(row) {
    const { run } = this;
    const carried = carriedBy(run, row);
    const value = this.column === "labels" ? null : run.heads[this.column][row];
    let colour = null, undefinedValue = false;
    if (this.column === "labels") {
      colour = parseColour(carried.length ? run.labels[carried[0]].colour : PAGE.palettes.pale);
      undefinedValue = run.carried[row] === null;
    } else {
      colour = this.scale.colour(value);
      undefinedValue = colour === null;
    }
    const words = [run.names[row]];
    if (this.column !== "labels") words.push(`${run.definitions[this.column] ? run.definitions[this.column][0] : this.column} ${value === null ? "undefined" : formatNumber(value)}`);
    words.push(carried.length ? carried.map((i) => run.labels[i].title).join(", ") : "no label");
    const cell = make("button", { type: "button", role: "gridcell", class: "cell" + (undefinedValue ? " undefined" : "") + (carried.length > 3 ? " two-lines" : ""), tabindex: "-1",
      "aria-label": words.join("; "), title: words.join("\n"), "data-row": row, text: run.marks[row] || "",
      onclick: () => this.pick(row) });
    if (colour && !undefinedValue) {
      cell.style.backgroundColor = cssColour(colour);
      cell.style.color = isDark(colour) ? "#fff" : "#111";
    }
    this.cells.set(row, cell);
    return cell;
  }

  // Filtered-out heads fade; the picked one is outlined; one cell can be reached with Tab.
  mark() {
    const { keeps, error } = parseFilter(this.filter, this.run);
    const wanted = this.wantedLabel;
    let shown = 0;
    for (const [row, cell] of this.cells) {
      const kept = keeps(row) && (wanted === "" || (wanted === "none" ? !carriedBy(this.run, row).length : carriedBy(this.run, row).includes(wanted)));
      cell.classList.toggle("out", !kept);
      cell.setAttribute("aria-disabled", String(!kept));
      cell.setAttribute("aria-selected", String(row === this.picked));
      cell.tabIndex = -1;
      shown += kept;
    }
    const first = [...this.cells.values()].find((cell) => !cell.classList.contains("out"));
    const tab = this.cells.get(this.picked) || first;
    if (tab) tab.tabIndex = 0;
    this.status.textContent = error || `${shown} of ${this.run.names.length} heads. Pick one; arrow keys move, Enter picks.`;
    this.status.classList.toggle("error", Boolean(error));
    for (const button of this.legend.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.label === String(wanted) && wanted !== ""));
  }

  pick(row, quiet) {
    this.picked = row;
    this.mark();
    if (!quiet) this.onpick(row);
  }

  key(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] };
    const step = steps[event.key];
    const from = event.target.closest(".cell");
    if (!step || !from) return;
    event.preventDefault();
    const to = this.neighbour(from, step);
    if (!to) return;
    for (const cell of this.cells.values()) cell.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  neighbour(from, [down, right]) {
    const lines = [...this.grids.querySelectorAll(".line")].map((line) => [...line.children].slice(1));
    const y = lines.findIndex((line) => line.includes(from)), x = lines[y].indexOf(from);
    const fits = (cell) => cell && cell.classList.contains("cell") && !cell.classList.contains("out");
    if (right === -Infinity) return lines[y].find(fits);
    if (right === Infinity) return lines[y].findLast(fits);
    for (let i = 1; i < 2000; i++) {
      const line = lines[y + down * i];
      if (!line || x + right * i < 0 || x + right * i >= line.length) return null;
      if (fits(line[x + right * i])) return line[x + right * i];
    }
    return null;
  }

  drawLegend(values) {
    this.legend.replaceChildren();
    if (this.column === "labels") return this.labelLegend();
    const definition = this.run.definitions[this.column] || [this.column, "", ""];
    const unit = definition[1] ? ` (${definition[1]})` : "";
    if (!this.scale.ends) {
      this.legend.append(make("p", { text: `${definition[0]}: no head has a value here. ${definition[2]}` }));
      return;
    }
    const bar = make("div", { class: "bar", role: "img", "aria-label": `colour scale from ${formatNumber(this.scale.ends[0])} to ${formatNumber(this.scale.ends[1])}` });
    bar.style.background = `linear-gradient(to right, ${this.scale.palette.join(", ")})`;
    const ends = make("div", { class: "ends" }, ...this.scale.ends.map((end) => make("span", { text: formatNumber(end) })));
    const missing = values.filter((value) => typeof value !== "number").length;
    this.legend.append(make("p", {}, make("strong", { text: definition[0] + unit + (this.scale.log ? ", log colour" : "") }), " " + definition[2] +
      (missing ? ` Hatched: undefined (${missing} heads).` : "")), bar, ends);
  }

  labelLegend() {
    const counts = this.run.labels.map((_, i) => this.run.names.filter((__, row) => carriedBy(this.run, row).includes(i)).length);
    const first = new Set(this.run.names.map((_, row) => carriedBy(this.run, row)[0]));
    const chips = this.run.labels.map((item, i) => this.chip(String(i), i, first.has(i) ? item.colour : null, item.dark, item.mark, `${item.title}: ${item.defined ? counts[i] : "undefined"}`, item.defined ? item.text : `Cannot be decided on these texts. ${item.text}`));
    const without = this.run.carried.filter((carried) => carried && !carried.length).length;
    chips.push(this.chip("none", "none", PAGE.palettes.pale, false, "", `none: ${without}`, "No label; hatched where none is defined."));
    this.legend.append(make("div", { class: "chips", role: "group", "aria-label": "Show only heads with a label" }, ...chips));
    this.legend.append(make("p", { class: "soft", text: "Colour = main label, the one whose score is furthest above its threshold, special ones before general ones; letters = all labels, main one first (of more than six, four and how many more). A label that is nowhere the main one has no colour; undefined: it cannot be decided on these texts. Press a label to show only its heads." }));
  }

  chip(name, value, colour, dark, mark, text, title) {
    const badge = make("span", { class: "badge", text: mark });
    badge.style.backgroundColor = colour || "transparent";
    badge.style.color = colour && dark ? "#fff" : "#111";
    return make("button", { type: "button", class: "chip", "data-label": name, "aria-pressed": "false", title,
      onclick: () => { this.wantedLabel = this.wantedLabel === value ? "" : value; this.mark(); } }, badge, make("span", { text }));
  }
}

// Rows from the greatest value down, undefined ones last; by labels, those with most labels first.
function ranked(rows, values, column) {
  const sign = column === "labels" ? -1 : 1;
  const key = (row) => (typeof values[row] === "number" ? sign * values[row] : -Infinity);
  return [...rows].sort((a, b) => key(b) - key(a) || a - b);
}
