// Draws the charts of the learning view with uPlot, from the JSON of /admin/learning.
"use strict";
(async () => {
  const boxes = [...document.querySelectorAll("[data-chart]")];
  if (!boxes.length) return;
  const answer = await fetch("/admin/learning", { headers: { accept: "application/json" } });
  if (!answer.ok) return;
  const found = await answer.json();
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const plots = [];

  const colours = () => dark.matches
    ? { text: "#b3aca5", grid: "#3d3835", lines: ["#fb923c", "#7dd3fc", "#86efac", "#f0abfc", "#fde047"] }
    : { text: "#5f5a55", grid: "#e5e0da", lines: ["#c2410c", "#0369a1", "#15803d", "#a21caf", "#a16207"] };
  const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3], [1, 4]];

  function draw() {
    while (plots.length) plots.pop().destroy();
    const shade = colours();
    for (const box of boxes) {
      const chart = found.charts[Number(box.dataset.chart)];
      if (!chart) continue;
      const axis = { stroke: shade.text, grid: { stroke: shade.grid, width: 1 }, ticks: { stroke: shade.grid, width: 1 } };
      const series = chart.lines.map((line, index) => ({
        label: line.name,
        stroke: shade.lines[index % shade.lines.length],
        dash: dashes[index % dashes.length],
        width: 2,
        spanGaps: true,
        points: { size: 4, show: found.x.length < 60 },
        value: (_, value) => (value === null ? "–" : Number(value).toPrecision(3)),
      }));
      plots.push(new uPlot({
        width: Math.max(box.clientWidth, 200),
        height: 200,
        scales: { x: { time: false } },
        series: [{ label: "version", value: (_, value) => (value === null ? "–" : "v" + value) }, ...series],
        axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? "v" + tick : "")) }, { ...axis, size: 60 }],
      }, [found.x, ...chart.lines.map((line) => line.values)], box));
    }
  }
  draw();
  dark.addEventListener("change", draw);
  let waiting = 0;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 150); });
})();
