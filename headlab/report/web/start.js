// Reads the data that stands in the page and brings each part to life.

const PAGE = JSON.parse(document.getElementById("page-data").textContent);

function startRun(section) {
  const run = JSON.parse(document.getElementById(`${section.id}-data`).textContent);
  const part = (name) => section.querySelector(`[data-part="${name}"]`);
  let viewer = null;
  const viewerPlace = part("viewer");
  if (viewerPlace && run.maps.length) viewer = new Viewer(viewerPlace, run);
  const openMap = (i) => { viewer.open(i); viewerPlace.closest("details").open = true; viewerPlace.scrollIntoView({ block: "start" }); };
  if (run.heads && part("map")) {
    const detail = part("detail");
    const map = new HeadMap(part("map"), run, (row) => showHead(detail, run, row, openMap));
    const stored = run.maps.find((item) => item.row >= 0);
    const first = stored ? stored.row : Math.max(0, run.names.findIndex((_, row) => carriedBy(run, row).length));
    map.pick(first, true);
    showHead(detail, run, first, openMap);
  }
  if (run.curves && part("curves")) new Curves(part("curves"), [run]);
  if (run.training && part("training")) new Training(part("training"), run.training);
  for (const wrap of section.querySelectorAll("[data-source]")) enhanceTable(wrap, run);
  return run;
}

function start() {
  document.documentElement.classList.add("scripted");
  const runs = [...document.querySelectorAll("section.run")].map(startRun);
  PAGE.steps.forEach((step, i) => { if (step !== null) runs[i].step = step; });
  const compare = document.querySelector('[data-part="compare"]');
  if (compare && PAGE.pairs.length) new Compare(compare, runs, PAGE.pairs);
  const together = document.querySelector('[data-part="curves-together"]');
  if (together) new Curves(together, runs.filter((run) => run.curves));
  for (const place of document.querySelectorAll("[data-copy]")) place.after(copyButton("Copy", () => place.textContent));
  document.documentElement.dataset.ready = "yes";
}

start();
