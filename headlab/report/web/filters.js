// "L3, previous token, entropy < 1": every part must hold; a part is a head, a layer, a kind, a label or a comparison.

const COMPARISONS = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};

// Returns {keeps(row), error}: rows are indices into the head table.
function parseFilter(text, run) {
  const tests = [];
  for (const part of text.split(/,|\band\b/).map((piece) => piece.trim()).filter(Boolean)) {
    const test = comparisonTest(part, run) || placeTest(part, run) || labelTest(part, run);
    if (!test) return { keeps: () => true, error: `“${part}” is no head, layer, kind, label or comparison such as entropy < 1` };
    tests.push(test);
  }
  return { keeps: (row) => tests.every((test) => test(row)), error: "" };
}

function comparisonTest(part, run) {
  const found = part.match(/^([\w:.-]+)\s*(<=|>=|!=|<|>|=)\s*(-?[\d.]+(?:e-?\d+)?)$/i);
  if (!found) return null;
  const column = run.heads[found[1]];
  if (!column) return null;
  const limit = Number(found[3]);
  return (row) => typeof column[row] === "number" && COMPARISONS[found[2]](column[row], limit);
}

function placeTest(part, run) {
  const wanted = part.toLowerCase();
  if (run.heads.kind.includes(wanted)) return (row) => run.heads.kind[row] === wanted;
  const named = part.match(/^([A-Za-z])(\d+)(?:h(\d+))?$/i);
  if (!named) return null;
  const start = named[1].toUpperCase() + named[2] + "H";
  return (row) => (named[3] === undefined ? run.names[row].startsWith(start) : run.names[row] === start + named[3]);
}

function labelTest(part, run) {
  const wanted = part.toLowerCase().replaceAll("_", " ");
  if (wanted === "none") return (row) => carriedBy(run, row).length === 0;
  const matching = run.labels.map((item, i) => [item, i]).filter(([item]) =>
    item.title.toLowerCase().includes(wanted) || item.name.toLowerCase().replaceAll("_", " ").includes(wanted));
  if (!matching.length) return null;
  const wantedLabels = new Set(matching.map(([, i]) => i));
  return (row) => carriedBy(run, row).some((i) => wantedLabels.has(i));
}

// The labels of a head, main one first, as places in run.labels.
function carriedBy(run, row) {
  return (run.carried && run.carried[row]) || [];
}
