// Charts: uPlot with the page's colours and fonts, a width that follows the page, a readout that follows the pointer or the arrow keys.
(function () {
  const all = new Set();
  const font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";

  ak.redrawCharts = () => all.forEach((chart) => chart.redraw());

  ak.axis = (label, extra) => Object.assign({
    label, font, labelFont: font, labelSize: 20, labelGap: 0, gap: 4, size: 30, stroke: () => ak.css("muted"),
    grid: { stroke: () => ak.css("grid"), width: 1 }, ticks: { stroke: () => ak.css("line"), width: 1, size: 5 },
    values: (u, splits) => splits.map((value) => (value === null ? null : ak.tick(value))),
  }, extra);

  ak.tick = function (value) {
    if (value === null) return null;
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size < 1e-3 || size >= 1e5 ? ak.number(value, 2).replace(/\.0(?=\u00b7)/, "").replace(/^1\u00b710/, "10") : String(Number(value.toPrecision(6))).replace("-", "\u2212");
  };

  // Numbers for a logarithmic axis: decades where there are many, 1-2-5 where there are few, even steps within a part of one.
  ak.logSplits = function (u, axis, low, high) {
    const decades = Math.log10(high / low), out = [];
    if (decades < 0.7) {
      const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
      for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-9); k++) out.push(Number((k * step).toPrecision(8)));
      return out;
    }
    const every = Math.max(1, Math.ceil(decades / 6));
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      if (((power % every) + every) % every) continue;
      for (const k of decades < 2.6 ? [1, 2, 5] : [1]) out.push(Number(`${k}e${power}`));
    }
    return out.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  };
  ak.logAxis = (label, extra) => ak.axis(label, Object.assign({ splits: ak.logSplits, filter: (u, splits) => splits }, extra));

  // host: an empty element; options: uPlot's; label: what the chart shows, for those who do not see it.
  ak.chart = function (host, options, data, label) {
    host.setAttribute("role", "img");
    host.setAttribute("aria-label", label);
    const width = () => Math.max(200, Math.floor(host.clientWidth));
    const full = Object.assign({ legend: { show: false }, width: width(), padding: [10, 12, 0, 0] }, options);
    const chart = new uPlot(full, data, host);
    all.add(chart);
    const observer = new ResizeObserver(() => {
      if (host.clientWidth && width() !== chart.width) chart.setSize({ width: width(), height: chart.height });
    });
    observer.observe(host);
    const title = label.split(/[.:] /)[0], kinds = { PNG: savePng, SVG: saveSvg, CSV: saveCsv };
    host.append(ak.el("p", { class: "save" }, "Save ", ...Object.entries(kinds).flatMap(([kind, save]) => [ak.el("button", {
      type: "button", class: "link", "aria-label": `Save as ${kind}: ${title}`,
      onclick: () => save(chart, { ...full, width: chart.width }, title, `${title.toLowerCase().replaceAll("\u2113", "l").replaceAll("\u221e", "inf").replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80)}.${kind.toLowerCase()}`),
    }, kind), " "])));
    chart.hooks.destroy = [...(chart.hooks.destroy || []), () => { all.delete(chart); observer.disconnect(); }];
    return chart;
  };

  // A chart as a file, drawn anew with a title and a key, or the numbers behind it. `options.key` lists what the lines are.
  function drawn(chart, options, title, done) {
    const lines = () => chart.series.slice(1).filter((series) => series.show && series.label).map((series) => [series.label, series.stroke(chart, 1), series.dash]);
    ak.asSvg(options, chart.data, title, (options.key || lines)(), done);
  }

  function saveSvg(chart, options, title, name) {
    drawn(chart, options, title, (text) => offer(name, new Blob([text], { type: "image/svg+xml" })));
  }

  function savePng(chart, options, title, name) {
    drawn(chart, options, title, (text, width, height) => {
      const picture = ak.el("img", { src: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text) });
      picture.decode().then(() => {
        const canvas = ak.el("canvas", { width: 2 * width, height: 2 * height });
        canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => offer(name, blob));
      });
    });
  }

  function saveCsv(chart, options, title, name) { offer(name, new Blob([sheet(chart)], { type: "text/csv" })); }

  // Cells that a spreadsheet would work out are text.
  const cell = (value) => (typeof value === "number" ? String(value) : value === null || value === undefined ? "" : `"${(/^[=+\-@\t\r]/.test(value) ? "'" : "") + value.replaceAll('"', '""')}"`);
  function sheet(chart) {
    const heads = chart.series.map((series, index) => series.label || (index ? "y" + index : "x"));
    const rows = Array.from({ length: chart.data[0].length }, (_, place) => chart.data.map((column) => column[place]));
    return [heads, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  function offer(name, blob) {
    const link = ak.el("a", { download: name, href: URL.createObjectURL(blob) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // A box beside the pointer. `lines` is a list of [swatch or null, name, value]; null hides it.
  ak.tip = function (chart) {
    const box = ak.el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    chart.over.append(box);
    return function (title, lines, left, top) {
      box.hidden = !lines;
      if (!lines) return;
      box.replaceChildren(
        ak.el("div", { class: "tip-title" }, title),
        ...lines.map(([swatch, name, value]) => ak.el("div", { class: "tip-line" }, swatch, ak.el("span", { class: "tip-name" }, name), ak.el("b", {}, value))),
      );
      const chartWidth = chart.over.clientWidth, wide = box.offsetWidth, beside = left + 14 + wide > chartWidth ? left - wide - 14 : left + 14;
      box.style.transform = `translate(${Math.max(-40, beside)}px, ${Math.max(0, Math.min(top - 10, chart.over.clientHeight - box.offsetHeight))}px)`;
    };
  };

  // Arrow keys walk along a chart's points; the readout says where.
  ak.walkable = function (host, chart, announce) {
    host.tabIndex = 0;
    host.classList.add("walkable");
    let index = -1;
    host.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -1e9, End: 1e9 }[event.key];
      if (!steps) return;
      event.preventDefault();
      index = Math.max(0, Math.min(chart.data[0].length - 1, index + steps));
      chart.setCursor({ left: chart.valToPos(chart.data[0][index], "x"), top: 10 }, true);
      announce(index);
    });
  };

  // Marks along a line, for methods beyond the colours.
  ak.drawMarks = function (chart, seriesIndex, method, every) {
    const shape = ak.marks[ak.data.methods[method].marker];
    if (!shape || !chart.series[seriesIndex].show) return;
    const ratio = uPlot.pxRatio, xs = chart.data[0], ys = chart.data[seriesIndex], context = chart.ctx;
    context.save();
    context.fillStyle = ak.methodColour(method);
    let last = -Infinity;
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || ys[i] === undefined) continue;
      const x = chart.valToPos(xs[i], "x", true), y = chart.valToPos(ys[i], chart.series[seriesIndex].scale, true);
      if (x - last < every * ratio || x < chart.bbox.left || x > chart.bbox.left + chart.bbox.width) continue;
      last = x;
      context.fill(new Path2D(shape(x, y, 4 * ratio)));
    }
    context.restore();
  };

  // A line across the plotting area, at a value of x or of y.
  ak.rule = function (chart, scale, value, colour, dash) {
    const horizontal = scale !== "x", position = chart.valToPos(value, scale, true), box = chart.bbox, context = chart.ctx;
    const [from, length] = horizontal ? [box.top, box.height] : [box.left, box.width];
    if (!Number.isFinite(position) || position < from - 1 || position > from + length + 1) return;
    context.save();
    context.strokeStyle = colour;
    context.lineWidth = 1.5 * uPlot.pxRatio;
    context.setLineDash((dash || []).map((length) => length * uPlot.pxRatio));
    context.beginPath();
    if (horizontal) { context.moveTo(box.left, position); context.lineTo(box.left + box.width, position); }
    else { context.moveTo(position, box.top); context.lineTo(position, box.top + box.height); }
    context.stroke();
    context.restore();
  };
})();
