// Elements whose text is always text, numbers as people read them, copying.

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  return fill(node, attributes, children);
}

const SVG = "http://www.w3.org/2000/svg"; // a name, nothing that is fetched

function makeSvg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e6 || (size > 0 && size < 5e-4)) return value.toExponential(2);
  return size >= 1000 ? value.toFixed(0) : size >= 100 ? value.toFixed(1) : value.toFixed(3);
}

function choice(label, options, chosen, onchange) {
  const select = make("select", { onchange: () => onchange(select.value) });
  for (const [value, text] of options) select.append(make("option", { value, text, selected: value === chosen }));
  return { field: make("label", { class: "field" }, make("span", { text: label }), select), select };
}

function toggle(label, checked, onchange) {
  const box = make("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  return { field: make("label", { class: "field check" }, box, make("span", { text: label })), box };
}

// Resolves to true where the text reached the clipboard.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { class: "off-screen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

function toCsv(columns, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : value === true ? "True" : value === false ? "False" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function copyButton(label, text) {
  const said = make("span", { class: "soft", role: "status" });
  const button = make("button", {
    type: "button", class: "small", text: label,
    onclick: async () => { said.textContent = (await copyText(text())) ? " copied" : " the browser refused to copy"; },
  });
  return make("span", { class: "copy" }, button, said);
}

// A canvas that is sharp on dense screens; drawn in CSS pixels.
function sizeCanvas(canvas, width, height) {
  const most = 8192;
  const ratio = Math.min(window.devicePixelRatio || 1, most / Math.max(width, height, 1));
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}
