// Pruning curves: lines with intervals, the band of random orders, tooltips, several runs in one figure.

const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4"];

// `runs` is [{title, curves}]; what they have in common is drawn together.
class Curves {
  constructor(place, runs) {
    this.runs = runs;
    this.metrics = [...new Set(runs.flatMap((run) => run.curves.map((curve) => curve.metric)))];
    Object.assign(this, { metric: this.metrics[0], scale: "value", front: false, hidden: new Set() });
    const titles = new Map(runs.flatMap((run) => run.curves.map((curve) => [curve.metric, curve.title])));
    const metric = choice("Metric", this.metrics.map((name) => [name, titles.get(name)]), this.metric, (value) => { this.metric = value; this.draw(); });
    const scale = choice("Scale", [["value", "value"], ["drop", "drop from all heads"]], "value", (value) => { this.scale = value; this.draw(); });
    const front = toggle("best cuts (Pareto)", false, (value) => { this.front = value; this.draw(); });
    this.stage = make("div", { class: "curve" });
    this.tip = make("p", { class: "readout", role: "status", "aria-live": "polite", text: "Point at a mark, or move to it with Tab." });
    this.legend = make("div", { class: "chips", role: "group", "aria-label": "Lines" });
    this.note = make("p", { class: "soft" });
    place.append(make("div", { class: "controls", role: "group", "aria-label": "Pruning curve" }, metric.field, scale.field, front.field),
      this.stage, this.tip, this.legend, this.note);
    this.draw();
    let waiting = null;
    addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => this.draw(), 150); });
  }

  chosen() {
    return this.runs.map((run) => ({ title: run.title, curve: run.curves.find((curve) => curve.metric === this.metric) })).filter((item) => item.curve);
  }

  lines() {
    const several = this.runs.length > 1;
    return this.chosen().flatMap(({ title, curve }, r) => {
      let next = 0;
      return curve.lines.map((line) => ({
        ...line, dash: DASHES[r % DASHES.length], key: `${r}/${line.name}`,
        label: (several ? `${title}: ` : "") + (line.random ? `${line.name} (${line.orders} orders, mean and ${line.orders >= 20 ? "middle 95 %" : "range"})` : line.name),
        colour: line.random ? PAGE.palettes.grey : PAGE.palettes.lines[(several ? r + next++ * 2 : next++) % PAGE.palettes.lines.length],
      }));
    });
  }

  // [middle, low, high] of a point on the chosen scale.
  heights(point) {
    return this.scale === "value" ? [point.value, point.low, point.high] : [point.drop, point.ci_low, point.ci_high];
  }

  draw() {
    const lines = this.lines(), shown = lines.filter((line) => !this.hidden.has(line.key));
    const width = Math.max(300, Math.min(760, this.stage.clientWidth || 760)), height = Math.round(width < 500 ? 0.85 * width : 0.5 * width);
    const margin = { left: 62, right: 18, top: 12, bottom: 42 };
    const points = shown.flatMap((line) => line.points);
    const values = points.flatMap((point) => this.heights(point)).concat(this.baselines()).filter(Number.isFinite);
    const bounds = this.scale === "value" ? this.chosen()[0].curve.bounds : [];
    const axis = makeAxis(values.length ? values : [0, 1], height - margin.bottom, margin.top, bounds);
    const most = Math.max(10, ...points.map((point) => point.x));
    const x = (share) => margin.left + (share / most) * (width - margin.left - margin.right);
    const title = this.chosen()[0].curve;
    const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${title.title} against the per cent of heads removed` });
    this.grid(svg, axis, x, most, { width, height, margin }, title);
    for (const line of shown) if (line.random) this.band(svg, line, x, axis);
    for (const line of shown) this.line(svg, line, x, axis);
    if (this.front) this.drawFront(svg, x, axis);
    this.stage.replaceChildren(svg);
    this.describe(lines);
  }

  baselines() {
    if (this.scale === "drop") return [0];
    return [...new Set(this.chosen().flatMap(({ curve }) => curve.lines.flatMap((line) => line.points.map((point) => point.baseline))))].filter(Number.isFinite);
  }

  grid(svg, axis, x, most, { width, height, margin }, title) {
    for (const value of axis.ticks) {
      svg.append(makeSvg("line", { x1: margin.left, x2: width - margin.right, y1: axis.y(value), y2: axis.y(value), class: "grid-line" }));
      svg.append(makeSvg("text", { x: margin.left - 6, y: axis.y(value) + 4, "text-anchor": "end", text: tidy(value) }));
    }
    const step = most > 60 ? 20 : most > 25 ? (width < 500 ? 20 : 10) : 5;
    for (let share = 0; share <= most + 0.01; share += step) svg.append(makeSvg("text", { x: x(share), y: height - 22, "text-anchor": "middle", text: `${share} %` }));
    svg.append(makeSvg("text", { x: (margin.left + width - margin.right) / 2, y: height - 4, "text-anchor": "middle", text: "heads removed" }));
    const unit = title.unit ? ` (${title.unit})` : "";
    const words = this.scale === "value" ? `${title.title}${unit}${title.better ? ", " + title.better : ""}` : `drop in ${title.title}${unit}, above 0 is worse`;
    const middle = (margin.top + height - margin.bottom) / 2;
    svg.append(makeSvg("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(13 ${middle}) rotate(-90)`, text: words }));
    for (const value of this.baselines()) svg.append(makeSvg("line", { x1: margin.left, x2: width - margin.right, y1: axis.y(value), y2: axis.y(value), class: "baseline" }));
  }

  band(svg, line, x, axis) {
    const known = line.points.filter((point) => this.heights(point).every(Number.isFinite));
    const up = known.map((point) => `${x(point.x)},${axis.y(this.heights(point)[2])}`), down = known.map((point) => `${x(point.x)},${axis.y(this.heights(point)[1])}`).reverse();
    if (known.length) svg.append(makeSvg("polygon", { points: [...up, ...down].join(" "), class: "band" }));
  }

  line(svg, line, x, axis) {
    const known = line.points.filter((point) => Number.isFinite(this.heights(point)[0]));
    const path = known.map((point) => `${x(point.x)},${axis.y(this.heights(point)[0])}`).join(" ");
    svg.append(makeSvg("polyline", { points: path, fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash || null }));
    for (const point of known) {
      const [middle, low, high] = this.heights(point);
      if (!line.random && Number.isFinite(low) && Number.isFinite(high)) {
        svg.append(makeSvg("line", { x1: x(point.x), x2: x(point.x), y1: axis.y(low), y2: axis.y(high), stroke: line.colour, class: "interval" }));
      }
      const words = this.words(line, point);
      const show = () => { this.tip.textContent = words; };
      svg.append(makeSvg("circle", { cx: x(point.x), cy: axis.y(middle), r: 4.5, fill: line.colour, class: "mark", tabindex: "0", role: "img",
        "aria-label": words, onpointerenter: show, onfocus: show, onclick: show }, makeSvg("title", { text: words })));
    }
  }

  drawFront(svg, x, axis) {
    const at = (point) => `${x(point.x)},${axis.y(this.scale === "value" ? point.value : point.drop)}`;
    for (const { curve } of this.chosen()) {
      const known = curve.front.filter((point) => Number.isFinite(point.drop) && point.x <= 100);
      svg.append(makeSvg("polyline", { points: known.map(at).join(" "), class: "front" }));
    }
  }

  words(line, point) {
    const range = line.random ? "from" : "95 % interval";
    const interval = Number.isFinite(point.ci_low) ? ` (${range} ${formatNumber(point.ci_low)} to ${formatNumber(point.ci_high)})` : "";
    const examples = point.n_examples ? `; ${point.n_examples} examples` : "";
    return `${line.label}: ${point.n_removed} of ${point.n_heads} heads removed (${point.x.toFixed(0)} %): ${formatNumber(point.value)}, drop ${formatNumber(point.drop)}${interval}${examples}`;
  }

  describe(lines) {
    this.legend.replaceChildren(...lines.map((line) => {
      const swatch = makeSvg("svg", { viewBox: "0 0 26 8", width: "26", height: "8", "aria-hidden": "true" },
        makeSvg("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: line.colour, "stroke-width": 3, "stroke-dasharray": line.dash || null }));
      return make("button", { type: "button", class: "chip", "aria-pressed": String(!this.hidden.has(line.key)),
        onclick: () => { if (!this.hidden.delete(line.key)) this.hidden.add(line.key); this.draw(); } }, swatch, make("span", { text: line.label }));
    }));
    const several = this.runs.length > 1;
    const settings = [...new Set(this.chosen().map(({ title, curve }) => (several ? `${title}: ` : "") + curve.settings))];
    const bounds = this.scale === "value" && this.chosen()[0].curve.bounds.length ? ", cut at what the metric can reach" : "";
    const front = this.front ? " Black: cuts that no other cut beats (none removes as many heads at a smaller drop)." : "";
    this.note.textContent = `${settings.join(" ")} Bars: 95 % interval of the drop (paired bootstrap over examples)${bounds}. Dashed: the model with all heads.${front}`;
  }
}

// A vertical axis: logarithmic where positive values span more than twenty-fold; it stays within the bounds of a metric.
function makeAxis(values, bottom, top, [least = -Infinity, greatest = Infinity] = []) {
  let low = Math.min(...values), high = Math.max(...values);
  if (low > 0 && high > 20 * low) {
    const span = Math.log(high / low);
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const step of [1, 2, 5]) if (step * 10 ** power >= low && step * 10 ** power <= high) ticks.push(step * 10 ** power);
    }
    return { ticks: ticks.length > 9 ? ticks.filter((tick) => Number.isInteger(Math.log10(tick) + 1e-12) || String(tick).startsWith("1")) : ticks,
      y: (value) => bottom - (Math.log(Math.max(value, low) / low) / span) * (bottom - top) };
  }
  if (high === low) { high += 0.5; low -= 0.5; }
  const step = roundStep((high - low) / 5);
  low = Math.max(Math.floor(low / step) * step, least);
  high = Math.min(Math.ceil(high / step) * step, greatest);
  const ticks = Array.from({ length: Math.round((high - low) / step) + 1 }, (_, i) => low + i * step);
  return { ticks, y: (value) => bottom - ((value - low) / (high - low)) * (bottom - top) };
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

function tidy(value) {
  return String(Number(value.toPrecision(4)));
}
