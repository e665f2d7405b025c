// The history of an attack on one image, one panel per recorded quantity, all along the same steps.
(function () {
  const host = document.getElementById("trace-panels");
  if (!host || !ak.data.traces.length) return;
  const select = document.getElementById("trace-select"), readout = document.getElementById("trace-readout"), other = document.getElementById("trace-second");
  const known = {
    distance: ["distance", "log"], mu: ["multiplier \u03bc", "log"], rho: ["penalty weight \u03c1", "log"], constraint: ["constraint", "zero"],
    rate: ["step size", "log"], step_size: ["step size", "log"], radius: ["radius", "log"], epsilon: ["radius \u03b5", "log"], loss: ["loss", "linear"], margin: ["margin", "zero"],
  };
  const order = ["distance", "mu", "rho", "constraint", "rate", "step_size"];
  const name = (trace) => {
    const attack = ak.data.attacks[trace.attack], many = ak.data.models.length > 1 ? `${ak.data.models[trace.model].name}, ` : "";
    return `${many}${attack.label}, ${ak.distanceName(attack.distance)}: image ${trace.id}` + (trace.target === null ? "" : ` to ${ak.className(trace.model, trace.target)}`);
  };
  ak.data.traces.forEach((trace, index) => { select.append(ak.option(index, name(trace))); other.append(ak.option(index, name(trace))); });
  let charts = [];

  const quantities = (trace) => {
    const names = Object.keys(trace.values).filter((key) => key !== "step" && key !== "success" && trace.values[key].some((value) => typeof value === "number"));
    return [...order.filter((key) => names.includes(key)), ...names.filter((key) => !order.includes(key))];
  };

  // Two histories on the steps they share: the second one's value at a step, or nothing.
  function joined(one, two, key) {
    const numbers = (trace) => new Map((trace.values.step || trace.values[key].map((_, i) => i)).map((step, i) => [step, trace.values[key] ? trace.values[key][i] : null]));
    const left = numbers(one), right = two && two.values[key] ? numbers(two) : null;
    const steps = [...new Set([...left.keys(), ...(right ? right.keys() : [])])].sort((a, b) => a - b);
    const column = (map) => steps.map((step) => { const value = map.get(step); return typeof value === "number" ? value : null; });
    return right ? [steps, column(left), column(right)] : [steps, column(left)];
  }

  function draw() {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    host.replaceChildren();
    const one = ak.data.traces[select.value], two = other.value === "" ? null : ak.data.traces[other.value];
    const traces = two ? [one, two] : [one];
    document.getElementById("trace-key").replaceChildren(...traces.map((trace, i) => ak.el("li", {}, line(i), name(trace))));
    for (const key of quantities(one)) {
      const [title, kind] = known[key] || [key, "linear"], data = joined(one, two, key);
      const positive = data.slice(1).flat().filter((value) => value !== null && value > 0), log = kind === "log" && positive.length > 1 && Math.max(...positive) / Math.min(...positive) > 3;
      if (log) for (let row = 1; row < data.length; row++) data[row] = data[row].map((value) => (value !== null && value > 0 ? value : null));
      const plotHost = ak.el("div", { class: "plot" }), shown = key === "distance" ? `${ak.distanceName(ak.data.attacks[one.attack].distance)} distance` : title;
      host.append(ak.el("figure", {}, ak.el("figcaption", {}, shown + (log ? " (log)" : "")), plotHost));
      const values = data.slice(1).flat().filter((value) => value !== null);
      const chart = ak.chart(plotHost, {
        height: 190,
        scales: { x: { time: false }, y: log ? { distr: 3, range: () => [Math.min(...positive) / 1.2, Math.max(...positive) * 1.2] } : {} },
        axes: [ak.axis("step"), (log ? ak.logAxis : ak.axis)(null, { size: 58 })],
        series: [{}, ...traces.slice(0, data.length - 1).map((trace, i) => ({ label: name(trace), scale: "y", width: 1.8, dash: i ? [5, 4] : [], stroke: () => ak.css("series-" + i), points: { show: false }, spanGaps: false }))],
        cursor: { y: false, sync: { key: "trace" }, drag: { x: true, y: false } },
        hooks: {
          drawClear: [(u) => shade(u, one)],
          draw: [(u) => { if (kind === "zero") ak.rule(u, "y", 0, ak.css("muted")); }],
          setCursor: [(u) => say(u, traces)],
        },
      }, data, `${shown} over the steps, ${name(one)}: from ${ak.number(values[0])} to ${ak.number(values[values.length - 1])}.`);
      ak.walkable(plotHost, chart, () => say(chart, traces));
      charts.push(chart);
    }
  }

  // Steps at which the image was adversarial.
  function shade(u, trace) {
    const success = trace.values.success, steps = trace.values.step;
    if (!success || !steps) return;
    const context = u.ctx, box = u.bbox;
    context.save();
    context.fillStyle = ak.css("good-soft");
    let from = null;
    for (let i = 0; i <= success.length; i++) {
      if (i < success.length && success[i]) { if (from === null) from = steps[i]; continue; }
      if (from === null) continue;
      const left = Math.max(box.left, u.valToPos(from, "x", true)), right = Math.min(box.left + box.width, u.valToPos(i < steps.length ? steps[i] : steps[steps.length - 1], "x", true));
      if (right > left) context.fillRect(left, box.top, right - left, box.height);
      from = null;
    }
    context.restore();
  }

  function say(u, traces) {
    const index = u.cursor.idx;
    if (index === null || index === undefined || !u.data[0].length) { readout.textContent = "Point at a chart, or focus it and use the arrow keys, to read its values."; return; }
    const step = u.data[0][index], trace = traces[0], place = (trace.values.step || []).indexOf(step);
    if (place < 0) return;
    readout.textContent = `Step ${step}: ` + quantities(trace).map((key) => `${(known[key] || [key])[0]} ${ak.number(trace.values[key][place])}`).join(", ") +
      (trace.values.success ? (trace.values.success[place] ? ", adversarial" : ", not adversarial") : "") + ".";
  }

  function line(i) {
    return ak.svg("svg", { viewBox: "0 0 32 12", width: 32, height: 12, class: "swatch", "aria-hidden": "true" },
      ak.svg("line", { x1: 1, y1: 6, x2: 31, y2: 6, "stroke-width": 2.2, class: "stroke-" + i, "stroke-dasharray": i ? "5 4" : "" }));
  }

  ak.showTrace = function (attack, image) {
    const index = ak.data.traces.findIndex((trace) => trace.attack === attack && trace.image === image);
    if (index < 0) return false;
    select.value = String(index);
    draw();
    document.getElementById("trace").scrollIntoView();
    select.focus();
    return true;
  };
  ak.hasTrace = (attack, image) => ak.data.traces.some((trace) => trace.attack === attack && trace.image === image);
  select.addEventListener("change", draw);
  other.addEventListener("change", draw);
  draw();
  say({ cursor: {}, data: [[]] }, []);
})();
