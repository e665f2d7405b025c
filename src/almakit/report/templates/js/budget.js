// Distance against budget: the median each attack reaches for the propagations it spends, one chart per model and distance.
(function () {
  const host = document.getElementById("budget-charts");
  if (!host) return;
  const notes = document.getElementById("budget-notes");

  function chart(model, group) {
    const attacks = ak.data.attacks.filter((attack) => attack.model === model && attack.group === group.key && !attack.fixed && attack.forwards !== null);
    const points = attacks.map((attack) => ({ attack, x: attack.forwards + attack.backwards, y: attack.median })).filter((point) => point.x > 0);
    const shown = points.filter((point) => point.y !== null && point.y > 0), name = ak.data.models[model].name, label = group.label;
    const lost = points.filter((point) => point.y === null).map((point) => point.attack.label);
    if (lost.length) notes.append(ak.el("li", {}, `${name}, ${label}: ${lost.join(", ")} found nothing for half of the images or more, so there is no median to show.`));
    if (!shown.length) return;
    const xs = [...new Set(shown.map((point) => point.x))].sort((a, b) => a - b), methods = [...new Set(shown.map((point) => point.attack.method))];
    const rows = methods.map((method) => xs.map((x) => { const point = shown.find((p) => p.x === x && p.attack.method === method); return point ? point.y : null; }));
    const ys = shown.map((point) => point.y), plotHost = ak.el("div", { class: "plot" });
    const wide = (values, by) => [Math.min(...values) / by, Math.max(...values) * by];
    host.append(ak.el("figure", {}, ak.el("figcaption", {}, `${name}, ${label}`), plotHost));
    const options = {
      key: () => shown.map(({ attack }) => [attack.label, ak.methodColour(attack.method), [], ak.marks[ak.data.methods[attack.method].marker] || ak.marks[1]]),
      height: 300,
      scales: { x: { time: false, distr: 3, range: () => wide(xs, 1.5) }, y: { distr: 3, range: () => wide(ys, 1.12) } },
      axes: [ak.logAxis("forwards + backwards per attacked image"), ak.logAxis(`median ${label}`, { size: 60 })],
      series: [{}, ...methods.map((method) => ({
        label: ak.data.methods[method].label, scale: "y", spanGaps: true, width: 1.5, stroke: () => ak.methodColour(method),
        points: { show: true, size: 9, width: 2, stroke: () => ak.methodColour(method), fill: () => ak.css("card"), filter: () => null },
      }))],
      cursor: { drag: { x: false, y: false }, x: false, y: false, points: { show: false } },
      hooks: { draw: [(u) => dots(u, shown)], setCursor: [(u) => hover(u)] },
    };
    const u = ak.chart(plotHost, options, [xs, ...rows], `Median ${label} distance against propagations for ${name}: ` +
      shown.map((point) => `${point.attack.label} reaches ${ak.number(point.y)} with ${ak.count(point.x)}`).join("; ") + ".");
    const tip = ak.tip(u);
    function hover(self) {
      const { left, top } = self.cursor;
      if (!tip || left === undefined || left < 0) return tip && tip("", null);
      const near = shown.map((point) => [point, Math.hypot(self.valToPos(point.x, "x") - left, self.valToPos(point.y, "y") - top)]).sort((a, b) => a[1] - b[1])[0];
      if (near[1] > 40) return tip("", null);
      const point = near[0];
      tip(point.attack.label, [[null, `median ${label}`, ak.number(point.y)], [null, "forwards / backwards", `${ak.count(point.attack.forwards)} / ${ak.count(point.attack.backwards)}`],
        [null, "success", ak.percent(point.attack.success)], [null, "seconds per image", ak.number(point.attack.seconds, 3)]], left, top);
    }
  }

  // Filled: the method's largest budget; hollow: smaller ones. Like the curves' solid and dotted lines.
  function dots(u, points) {
    const ratio = uPlot.pxRatio, context = u.ctx;
    context.save();
    for (const point of points) {
      const shape = ak.marks[ak.data.methods[point.attack.method].marker] || ak.marks[1];
      const path = new Path2D(shape(u.valToPos(point.x, "x", true), u.valToPos(point.y, "y", true), 4.6 * ratio));
      context.lineWidth = 2 * ratio;
      context.strokeStyle = ak.methodColour(point.attack.method);
      context.fillStyle = point.attack.dash === "solid" ? context.strokeStyle : ak.css("card");
      context.fill(path);
      context.stroke(path);
    }
    context.restore();
  }

  if (ak.data.attacks.every((attack) => attack.fixed)) notes.append(ak.el("li", {}, "Attacks at a fixed radius have no median to show here."));
  for (const group of ak.data.groups) ak.data.models.forEach((_, model) => chart(model, group));
  const methods = [...new Set(ak.data.attacks.filter((attack) => !attack.fixed).map((attack) => attack.method))];
  const legend = document.getElementById("budget-legend");
  for (const method of methods) {
    const like = { method, dash: "solid" };
    legend.append(ak.el("li", {}, ak.swatch(like), ak.data.methods[method].label));
  }
})();
