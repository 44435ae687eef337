// The picked head: its row, labels with evidence, what its removal costs, and its stored maps.

const EVIDENCE = ["score", "null", "threshold", "low", "high", "q", "n", "offset"];

function showHead(place, run, row, onmap) {
  const name = run.names[row];
  const kind = run.heads.kind[row];
  place.replaceChildren(make("h4", { text: `${name}: ${kind}, layer ${run.heads.layer[row]}, head ${run.heads.head[row]}` }));
  place.append(labelPart(run, row), costPart(run, row), mapPart(run, row, onmap), rowPart(run, row));
}

function labelPart(run, row) {
  const part = make("div", {});
  if (!run.labels.length) return part;
  const carried = carriedBy(run, row);
  part.append(make("p", {}, carried.length ? "Labels: " : "No label holds.", ...carried.map((i) => badgeOf(run.labels[i]))));
  const columns = EVIDENCE.filter((suffix) => run.labels.some((item) => run.heads[`${item.name}_${suffix}`]));
  const headings = { score: "score", null: "chance", threshold: "threshold", low: "95 % low", high: "95 % high", q: "q", n: "n", offset: "offset" };
  const body = make("tbody", {}, ...run.labels.map((item) => {
    const value = run.heads[item.name][row];
    return make("tr", { class: value ? "carried" : null }, make("th", { scope: "row", text: item.title, title: item.text }),
      make("td", { text: value === null ? "undefined" : value ? "yes" : "no" }),
      ...columns.map((suffix) => make("td", { class: "n", text: formatNumber((run.heads[`${item.name}_${suffix}`] || [])[row]) })));
  }));
  const head = make("tr", {}, ...["label", "carried", ...columns.map((suffix) => headings[suffix])].map((text) => make("th", { scope: "col", text })));
  part.append(make("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Evidence of the labels" }, make("table", {}, make("thead", {}, head), body)));
  return part;
}

function badgeOf(item) {
  const badge = make("span", { class: "badge wide", text: item.title, title: item.text });
  badge.style.backgroundColor = item.colour;
  badge.style.color = item.dark ? "#fff" : "#111";
  return badge;
}

// Place of a head in a column: how many heads have a smaller value.
function below(values, row) {
  return values.filter((value) => typeof value === "number" && value < values[row]).length;
}

function costPart(run, row) {
  const list = make("ul", { class: "costs" });
  for (const column of Object.keys(run.heads).filter((name) => name.startsWith("score_"))) {
    const values = run.heads[column], value = values[row];
    const title = run.definitions[column][0];
    if (typeof value !== "number") { list.append(make("li", { text: `${title}: undefined.` })); continue; }
    const known = values.filter((other) => typeof other === "number").length;
    const unit = run.definitions[column][1];
    let text = `${title} ${formatNumber(value)}${unit ? ` (${unit})` : ""}: more than ${below(values, row)} of ${known - 1} other heads.`;
    if (column === "score_ablation") text += value > 0 ? ` Removed alone, it raises the loss by ${formatNumber(value)}.` : ` Removed alone, it does not raise the loss (${formatNumber(value)}).`;
    list.append(make("li", { text: text + cutPart(run, column.slice(6), values, row) }));
  }
  for (const column of Object.keys(run.heads).filter((name) => name.endsWith("_drop"))) {  // of headlab sweep --single
    const values = run.heads[column], value = values[row], q = run.heads[column.replace(/_drop$/, "_q")]?.[row];
    if (typeof value !== "number") continue;
    const [title, unit] = run.definitions[column];
    const known = values.filter((other) => typeof other === "number").length;
    const tested = typeof q === "number" ? `, q = ${formatNumber(q)}` : "";
    list.append(make("li", { text: `${title} ${formatNumber(value)}${unit ? ` (${unit})` : ""}${tested}: more than ${below(values, row)} of ${known - 1} other heads.` }));
  }
  if (!list.children.length) return make("p", { class: "soft", text: "What its removal costs was not measured in this run." });
  return make("div", {}, make("h5", { text: "What its removal costs" }), list);
}

// The first tested cut of an order that includes the head; only where the order ran over the whole model.
function cutPart(run, strategy, values, row) {
  const signature = run.meta.signature || {};
  const within = signature.within;
  if (within !== "model" || !run.curves || signature.kinds) return "";
  const position = below(values, row) + 1;
  const parts = [];
  for (const curve of run.curves) {
    const line = curve.lines.find((item) => item.name === strategy);
    const cut = line && line.points.find((point) => point.n_removed >= position);
    if (cut) parts.push(`${curve.title}: drop ${formatNumber(cut.drop)} [${formatNumber(cut.ci_low)}, ${formatNumber(cut.ci_high)}] at ${cut.n_removed} of ${cut.n_heads} heads removed`);
  }
  return parts.length ? ` In the ${strategy} order it is number ${position} to go; the first tested cut without it — ${parts.join("; ")}.` : "";
}

function mapPart(run, row, onmap) {
  const own = run.maps.map((map, i) => [map, i]).filter(([map]) => map.row === row).slice(0, 4);
  if (!own.length) return make("p", { class: "soft", text: "No attention map of this head is stored (headlab dump --maps N --heads " + run.names[row] + ")." });
  const thumbs = make("div", { class: "thumbs" });
  for (const [map, i] of own) {
    const canvas = make("canvas", { "aria-hidden": "true" });
    thumbs.append(make("button", { type: "button", class: "thumb", onclick: () => onmap(i),
      "aria-label": `Attention map on text ${run.texts[map.text].id}: open in the viewer` }, canvas, make("span", { text: `text ${run.texts[map.text].id}` })));
    decodeMap(map).then((weights) => drawThumb(canvas, weights, map.shape, 132, false, map.floor));
  }
  return make("div", {}, make("h5", { text: "Attention maps: queries down, keys across" }), thumbs);
}

function rowPart(run, row) {
  const list = make("dl", {});
  for (const column of run.numeric) {
    const [title, unit, text] = run.definitions[column] || [column, "", ""];
    list.append(make("dt", { text: title, title: `${column}: ${text}` }), make("dd", { text: formatNumber(run.heads[column][row]) + (unit ? ` ${unit}` : "") }));
  }
  return make("details", {}, make("summary", { text: "Its row of the table" }), make("div", {}, list));
}
