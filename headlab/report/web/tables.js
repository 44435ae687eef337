// Tables that stand in the page: sorted by a press on a heading, copied as CSV with all digits.

function enhanceTable(wrap, data) {
  const table = wrap.querySelector("table");
  const body = table.tBodies[0];
  const source = data[wrap.dataset.source];
  const rows = [...body.rows];
  const columns = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const values = columns.map((column) => (column === "head" && wrap.dataset.source === "heads" && data.names ? data.names : source[column]));
  const order = rows.map((_, i) => i);
  [...table.tHead.rows[0].cells].forEach((cell, i) => {
    const button = make("button", { type: "button", class: "sort", text: cell.textContent, title: cell.title || null });
    cell.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "ascending" : "descending");
      order.sort((a, b) => compareValues(values[i][a], values[i][b], down ? 1 : -1) || a - b);
      body.append(...order.map((row) => rows[row]));
    });
  });
  wrap.before(copyButton("Copy as CSV", () => toCsv(columns, order.map((row) => values.map((column) => column[row])))));
}

// Missing values come last, whichever way.
function compareValues(a, b, sign) {
  const missing = (value) => value === null || value === undefined;
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  if (typeof a === "string" && typeof b === "string") return sign * a.localeCompare(b, "en", { numeric: true });
  return sign * (Number(a) - Number(b));
}
