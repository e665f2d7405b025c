// Attack against attack: every image is a point; below the diagonal the second attack found the smaller change.
(function () {
  const host = document.getElementById("scatter-plot");
  if (!host) return;
  const blockSelect = document.getElementById("scatter-block"), first = document.getElementById("scatter-a"), second = document.getElementById("scatter-b");
  const logBox = document.getElementById("scatter-log"), said = document.getElementById("scatter-said");
  const blocks = [];
  for (const group of ak.data.groups) {
    ak.data.models.forEach((model, number) => {
      const attacks = ak.data.attacks.map((attack, index) => ({ ...attack, index })).filter((attack) => attack.model === number && attack.group === group.key && !attack.fixed);
      if (attacks.length > 1) blocks.push({ name: `${model.name}, ${group.label}`, model: number, label: group.label, attacks });
    });
  }
  if (!blocks.length) {
    document.getElementById("scatter-controls").hidden = true;
    said.textContent = "This needs two attacks that look for the smallest change in the same distance on the same model.";
    return;
  }
  blocks.forEach((block, index) => blockSelect.append(ak.option(index, block.name)));
  let chart = null;

  function fill() {
    const block = blocks[blockSelect.value];
    for (const [select, index] of [[first, 0], [second, 1]]) {
      select.replaceChildren(...block.attacks.map((attack, place) => ak.option(place, attack.label, place === index)));
    }
    draw();
  }

  function draw() {
    const block = blocks[blockSelect.value], a = block.attacks[first.value], b = block.attacks[second.value];
    const xs = ak.cells(a.index), ys = ak.cells(b.index), both = [], edge = [], ids = ak.data.models[block.model].ids;
    let smaller = 0, larger = 0, same = 0, logs = 0, counted = 0, top = 0, bottom = Infinity;
    for (let i = 0; i < xs.length; i++) {
      const x = xs[i], y = ys[i];
      if (Number.isNaN(x) || Number.isNaN(y) || (x === 0 && y === 0)) continue;
      if (y < x * (1 - 1e-3)) smaller++; else if (x < y * (1 - 1e-3)) larger++; else same++;
      if (Number.isFinite(x) && Number.isFinite(y) && x > 0 && y > 0) {
        both.push([x, y, i]);
        logs += Math.log(y / x);
        counted++;
        top = Math.max(top, x, y);
        bottom = Math.min(bottom, x, y);
      } else if (Number.isFinite(x) !== Number.isFinite(y)) {
        edge.push([x, y, i]);
        if (Number.isFinite(x)) { top = Math.max(top, x); bottom = Math.min(bottom, x); } else { top = Math.max(top, y); bottom = Math.min(bottom, y); }
      }
    }
    const total = smaller + larger + same;
    said.textContent = !total ? "No image was attacked by both." :
      `Of ${ak.count(total)} images ${b.label} found the smaller change on ${ak.percent(smaller / total)}, ${a.label} on ${ak.percent(larger / total)}, ` +
      `${ak.percent(same / total)} are equal to one in a thousand` + (counted ? `; geometric mean of ${b.label} / ${a.label}: ${ak.number(Math.exp(logs / counted), 4)}` : "") +
      (edge.length ? `. ${ak.count(edge.length)} found by one only are drawn on the edge.` : ".");
    if (chart) { chart.destroy(); host.replaceChildren(); chart = null; }
    if (!total) return;
    const log = logBox.checked, high = (top || 1) * (log ? 1.3 : 1.06), low = log ? (Number.isFinite(bottom) ? bottom / 1.3 : high / 10) : 0;
    // What was not found lies at the far edge of its axis.
    const points = [...both.map(([x, y, i]) => [x, y, i, false]), ...edge.map(([x, y, i]) => [Math.min(x, high), Math.min(y, high), i, true])].sort((p, q) => p[0] - q[0]);
    const side = Math.min(560, Math.max(280, host.clientWidth)), distr = log ? 3 : 1, axis = log ? ak.logAxis : ak.axis, options = {
      key: () => [],
      height: side, width: side,
      scales: { x: { time: false, distr, range: () => [low, high] }, y: { distr, range: () => [low, high] } },
      axes: [axis(`${a.label}: ${block.label}`), axis(`${b.label}: ${block.label}`, { size: 56 })],
      series: [{ label: a.label }, { label: b.label, scale: "y", paths: () => null, points: { show: false } }],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      hooks: { draw: [(u) => paint(u, points, low, high)], setCursor: [(u) => hover(u)] },
    };
    chart = ak.chart(host, options, [points.map((p) => p[0]), points.map((p) => p[1])], `Scatter plot of ${block.label} distances, ${a.label} against ${b.label}. ${said.textContent}`);
    const tip = ak.tip(chart);
    function nearest(u) {
      const { left, top: down } = u.cursor;
      let best = null, near = 14;
      for (const point of points) {
        const away = Math.hypot(u.valToPos(point[0], "x") - left, u.valToPos(point[1], "y") - down);
        if (away < near) { near = away; best = point; }
      }
      return best;
    }
    chart.over.addEventListener("click", () => {
      const best = nearest(chart);
      if (best && ak.showImage && !ak.showImage(block.model, ids[best[2]], b.index)) said.textContent = `The page holds no picture of ${ids[best[2]]} (almakit report --images raises how many it holds).`;
    });
    function hover(u) {
      const { left, top: down } = u.cursor;
      if (!tip || left === undefined || left < 0) return tip && tip("", null);
      const best = nearest(u);
      if (!best) return tip("", null);
      const i = best[2];
      tip(`${ids[i]} (${ak.className(block.model, ak.data.models[block.model].labels[i])})`, [[null, a.label, ak.number(xs[i])], [null, b.label, ak.number(ys[i])]], left, down);
    }
  }

  function paint(u, points, low, high) {
    const ratio = uPlot.pxRatio, context = u.ctx, at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
    context.save();
    context.beginPath();
    context.rect(u.bbox.left - 4 * ratio, u.bbox.top - 4 * ratio, u.bbox.width + 8 * ratio, u.bbox.height + 8 * ratio);
    context.clip();
    context.strokeStyle = ak.css("muted");
    context.lineWidth = ratio;
    context.beginPath();
    context.moveTo(...at(low, low));
    context.lineTo(...at(high, high));
    context.stroke();
    context.globalAlpha = points.length > 3000 ? 0.35 : points.length > 400 ? 0.55 : 0.8;
    const size = (points.length > 3000 ? 1.8 : 2.8) * ratio;
    for (const [x, y, , edge] of points) {
      const [left, top] = at(x, y);
      context.fillStyle = ak.css(edge ? "bad" : "accent");
      context.beginPath();
      if (edge) context.rect(left - size, top - size, 2 * size, 2 * size); else context.arc(left, top, size, 0, 2 * Math.PI);
      context.fill();
    }
    context.restore();
  }

  blockSelect.addEventListener("change", fill);
  for (const control of [first, second, logBox]) control.addEventListener("change", draw);
  document.getElementById("scatter-swap").addEventListener("click", () => { [first.value, second.value] = [second.value, first.value]; draw(); });
  fill();
})();
