// Robust-accuracy curves: for each distance one epsilon, one legend, one chart per model.
(function () {
  const HEIGHT = 330;

  class Block {
    constructor(host, number) {
      this.host = host;
      this.number = number;
      this.key = host.dataset.group;
      this.group = ak.groups[this.key];
      this.name = ak.distanceName(this.group.distance);
      this.what = this.group.what;
      this.attacks = ak.data.attacks.map((attack, index) => ({ ...attack, index })).filter((attack) => attack.group === this.key);
      this.minimal = this.attacks.filter((attack) => !attack.fixed);
      this.fixed = this.attacks.filter((attack) => attack.fixed);
      this.models = [...new Set(this.attacks.map((attack) => attack.model))];
      this.envelopes = ak.data.envelopes.filter((envelope) => envelope.group === this.key).map((envelope) => ({ ...envelope, sorted: ak.onGrid(ak.floats(envelope.curve), envelope) }));
      this.certified = ak.data.certified.filter((part) => part.group === this.key).map((part) => ({ ...part, sorted: ak.floats(part.curve) }));
      this.hidden = new Set(ak.recall("hidden:" + this.key) || []);
      this.log = Boolean(ak.recall("log:" + this.key));
      this.ranges();
      this.epsilon = Number(ak.recall("epsilon:" + this.key)) || this.start;
      this.controls();
      this.plots = this.models.map((model) => new Plot(this, model));
      this.legend();
      this.update();
    }

    // The view of interest ends a little after the strongest attacks are through; tails of weak ones lie beyond it.
    ranges() {
      let largest = 0, interest = 0, smallest = Infinity, medians = [];
      for (const attack of this.minimal) {
        const found = ak.curve(attack.index).filter((value) => value > 0 && Number.isFinite(value));
        if (!found.length) continue;
        largest = Math.max(largest, found[found.length - 1]);
        smallest = Math.min(smallest, ak.quantile(found, 0.002));
        medians.push(ak.quantile(found, 0.5));
      }
      for (const model of this.models) {
        const found = this.strongest(model).filter((value) => value > 0 && Number.isFinite(value));
        if (found.length) interest = Math.max(interest, ak.quantile(found, 0.995));
      }
      for (const { fixed } of this.fixed) {
        largest = Math.max(largest, 1.05 * fixed.epsilon);
        interest = Math.max(interest, 0.8 * fixed.epsilon);
        if (fixed.epsilon > 0) smallest = Math.min(smallest, fixed.epsilon / 2);
      }
      this.whole = largest > 0 ? 1.02 * largest : 1;
      this.view = largest > 0 ? Math.min(1.35 * interest, this.whole) : 1;
      this.floor = Number.isFinite(smallest) ? smallest / 1.5 : this.whole / 100;
      medians.sort((a, b) => a - b);
      const own = this.group.radii.length ? this.group.radii[0].epsilon : null;  // the run's own
      this.start = own !== null ? own : medians.length ? Number(medians[0].toPrecision(2)) : this.fixed.length ? this.fixed[0].fixed.epsilon : this.view / 2;
      this.full = false;
    }

    strongest(model) {
      const envelope = this.envelopes.find((candidate) => candidate.model === model);
      const only = this.minimal.find((attack) => attack.model === model);
      return envelope ? envelope.sorted : only ? ak.curve(only.index) : new Float32Array();
    }

    limits() {
      if (this.zoom) return this.zoom;
      const top = this.full ? this.whole : this.view;
      return this.log ? [Math.min(this.floor, top / 10), top] : [0, top];
    }

    controls() {
      const id = "epsilon-" + this.number;  // not the key: a distance may be called anything
      this.slider = ak.el("input", { type: "range", id, min: 0, max: 1000, step: 1, "aria-describedby": id + "-said" });
      this.field = ak.el("input", { type: "text", class: "epsilon", inputmode: "text", spellcheck: "false", "aria-label": `\u03b5 for ${this.name}, exact value` });
      this.logBox = ak.el("input", { type: "checkbox" });
      this.logBox.checked = this.log;
      this.said = ak.el("p", { class: "said", id: id + "-said", "aria-live": "polite" });
      this.rangeButton = ak.el("button", { type: "button", class: "plain" }, "Whole range");
      this.slider.addEventListener("input", () => this.choose(this.fromSlider(Number(this.slider.value) / 1000), "slider"));
      this.field.addEventListener("input", () => {
        const value = ak.radius(this.field.value);
        this.field.setAttribute("aria-invalid", String(value === null));
        if (value !== null) this.choose(value, "field");
      });
      this.logBox.addEventListener("change", () => { this.log = this.logBox.checked; this.zoom = null; ak.remember("log:" + this.key, this.log); this.redraw(); });
      this.rangeButton.addEventListener("click", () => { this.full = this.zoom ? false : !this.full; this.zoom = null; this.redraw(); });
      this.chartsHost = ak.el("div", { class: "charts" });
      this.legendHost = ak.el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": `${this.what} at \u03b5, ${this.group.label}` });
      this.host.append(
        ak.el("div", { class: "controls" },
          ak.el("label", { for: id, class: "epsilon-label" }, "Read at \u03b5 ="), this.field, this.slider,
          ak.el("label", { class: "check" }, this.logBox, "log axis"), this.rangeButton),
        ak.el("div", { class: this.models.length > 1 ? "reading" : "reading beside" }, this.chartsHost, ak.el("div", {}, this.said, this.legendHost)),
      );
    }

    fromSlider(fraction) {
      const [low, high] = this.limits();
      return this.log ? low * (high / low) ** fraction : low + fraction * (high - low);
    }

    toSlider(epsilon) {
      const [low, high] = this.limits();
      return this.log ? Math.log(Math.max(epsilon, low) / low) / Math.log(high / low) : (epsilon - low) / (high - low);
    }

    choose(epsilon, source) {
      this.epsilon = source === "slider" || source === "chart" ? Number(epsilon.toPrecision(4)) : epsilon;
      ak.remember("epsilon:" + this.key, this.epsilon);
      this.update(source);
    }

    toggle(index, button) {
      if (this.hidden.has(index)) this.hidden.delete(index); else this.hidden.add(index);
      button.setAttribute("aria-pressed", String(!this.hidden.has(index)));
      ak.remember("hidden:" + this.key, [...this.hidden]);
      this.plots.forEach((plot) => plot.visibility());
    }

    // One row per attack, one column per model: the legend is the readout.
    legend() {
      const names = [...new Map(this.attacks.map((attack) => [attack.label, attack])).values()];
      const body = ak.el("tbody");
      this.cells = [];
      for (const shown of names) {
        const same = this.attacks.filter((attack) => attack.label === shown.label);
        const button = ak.el("button", { type: "button", class: "series", "aria-pressed": String(!this.hidden.has(same[0].index)), title: shown.text }, ak.swatch(shown), shown.label);
        button.addEventListener("click", () => same.forEach((attack) => this.toggle(attack.index, button)));
        const row = ak.el("tr", {}, ak.el("th", { scope: "row" }, button));
        for (const model of this.models) {
          const attack = same.find((candidate) => candidate.model === model), cell = ak.el("td");
          row.append(cell);
          if (attack && attack.fixed) cell.append(`${ak.percent(attack.fixed.value)} at \u03b5 = ${attack.fixed.text}`, ak.el("small", { class: "interval below" }, `${ak.fixed(100 * attack.fixed.low, 1)} to ${ak.fixed(100 * attack.fixed.high, 1)}`));
          else if (attack) this.cells.push([cell, ak.curve(attack.index), model]);
        }
        body.append(row);
      }
      const extra = (curves, name, kind) => {
        if (!curves.length) return;
        const row = ak.el("tr", { class: "together" }, ak.el("th", { scope: "row" }, ak.el("span", { class: "series" }, ak.el("span", { class: "swatch " + kind, "aria-hidden": "true" }), name)));
        for (const model of this.models) {
          const cell = ak.el("td"), part = curves.find((candidate) => candidate.model === model);
          row.append(cell);
          if (part) this.cells.push([cell, part.sorted, model]);
        }
        body.append(row);
      };
      extra(this.envelopes, "all attacks together", "together");
      extra(this.certified, "certified, at least", "certified");
      this.heading = ak.el("th", { scope: "col" });
      const heads = this.models.map((model) => ak.el("th", { scope: "col" }, this.models.length > 1 ? ak.data.models[model].name : this.what));
      this.legendHost.append(ak.el("table", { class: "readout" }, ak.el("thead", {}, ak.el("tr", {}, this.heading, ...heads)), body));
    }

    update(source) {
      if (source !== "slider") this.slider.value = Math.round(1000 * Math.min(1, Math.max(0, this.toSlider(this.epsilon))));
      const text = ak.radiusText(this.epsilon, this.group.distance);
      if (source !== "field") { this.field.value = text; this.field.removeAttribute("aria-invalid"); }
      this.slider.setAttribute("aria-valuetext", `\u03b5 = ${text}`);
      this.heading.textContent = `${this.name}, \u03b5 = ${text}`;
      for (const [cell, sorted, model] of this.cells) {
        const share = ak.robust(sorted, this.epsilon);
        cell.replaceChildren(ak.percent(share), ak.el("small", { class: "interval below" }, ak.interval(share, sorted.length)));
      }
      if (source) this.tiles(text);
      this.said.textContent = this.sentence();
      this.plots.forEach((plot) => plot.chart.redraw(false));
    }

    // The tiles at the head of the page follow the radius that is chosen here.
    tiles(text) {
      for (const tile of document.querySelectorAll(".robust-tile")) {
        const model = Number(tile.dataset.model), sorted = tile.dataset.group === this.key ? this.strongest(model) : [];
        const share = sorted.length ? ak.robust(sorted, this.epsilon) : NaN, [name, value, aside] = tile.children;
        if (Number.isNaN(share)) continue;
        name.textContent = `${this.what}, ${this.group.label} \u2264 ${text}`;
        value.replaceChildren(ak.fixed(100 * share, 1), ak.el("small", {}, " %"));
        aside.textContent = `95 % interval ${ak.interval(share, sorted.length)}`;
      }
    }

    // What holds at this radius, plainly. An attack at a fixed radius is part of it from its radius on.
    sentence() {
      const at = `${this.name} \u2264 ${ak.radiusText(this.epsilon, this.group.distance)}`, done = this.models.filter((model) => this.strongest(model).length);
      if (!this.minimal.length) return `The attacks here look at ${[...new Set(this.fixed.map((attack) => `\u03b5 = ${attack.fixed.text}`))].join(", ")} only; nothing is known at other radii.`;
      if (!done.length) return "No image has been attacked yet.";
      const many = this.attacks.filter((attack) => attack.model === done[0]).length > 1;
      const aim = this.what === "targets not reached" ? "target" : "goal";
      const resist = this.group.goal ? (many ? `reach their ${aim} by no attack here` : `do not reach their ${aim}`) : many ? "resist every attack here" : "resist the attack";
      const share = (model) => ak.percent(ak.robust(this.strongest(model), this.epsilon));
      const proved = this.certified.find((part) => part.model === done[0]);
      const besides = proved ? `; ${ak.percent(ak.robust(proved.sorted, this.epsilon))} provably resist every attack` : "";
      if (done.length === 1) return `At ${at}, ${share(done[0])} of the images ${resist}${besides}.`;
      return `At ${at}, these shares of the images ${resist}: ${done.map((model) => `${share(model)} (${ak.data.models[model].name})`).join(", ")}.`;
    }

    redraw() {
      this.rangeButton.textContent = this.zoom ? "Back from zoom" : this.full ? "Part of interest" : "Whole range";
      this.plots.forEach((plot) => plot.rebuild());
      this.update();
    }
  }

  class Plot {
    constructor(block, model) {
      this.block = block;
      this.model = model;
      this.attacks = block.minimal.filter((attack) => attack.model === model);
      this.fixed = block.fixed.filter((attack) => attack.model === model);
      this.envelope = block.envelopes.find((envelope) => envelope.model === model);
      this.certified = block.certified.find((part) => part.model === model);
      const plotHost = ak.el("div", { class: "plot" }), name = ak.data.models[model].name;
      block.chartsHost.append(ak.el("figure", {}, ak.el("figcaption", {}, name), plotHost));
      this.host = plotHost;
      this.label = `${block.what[0].toUpperCase()}${block.what.slice(1)} of ${name} against ${block.name} perturbations, ${this.attacks.length + this.fixed.length} attacks. The table below reads it at any epsilon.`;
      this.make();
    }

    sources() {
      return [...this.attacks.map((attack) => ak.curve(attack.index)), ...(this.envelope ? [this.envelope.sorted] : []), ...(this.certified ? [this.certified.sorted] : [])];
    }

    data() {
      const [low, high] = this.block.limits(), n = Math.max(200, Math.min(1100, this.host.clientWidth));
      const xs = Array.from({ length: n }, (_, i) => (this.block.log ? low * (high / low) ** (i / (n - 1)) : low + (i / (n - 1)) * (high - low)));
      return [xs, ...this.sources().map((sorted) => xs.map((x) => { const share = ak.robust(sorted, x); return Number.isNaN(share) ? null : 100 * share; }))];
    }

    make() {
      const block = this.block, series = this.attacks.map((attack) => ({
        label: attack.label, scale: "y", width: attack.dash === "solid" ? 2 : 2.2, dash: ak.dashes[attack.dash], stroke: () => ak.methodColour(attack.method), points: { show: false },
        show: !block.hidden.has(attack.index),
      }));
      if (this.envelope) series.push({ label: "all attacks", scale: "y", width: 6, stroke: () => ak.css("muted") + "44", points: { show: false } });
      // Between the certified radii and what the strongest attack found lies what nobody knows.
      if (this.certified) series.push({ label: "certified", scale: "y", width: 1.5, stroke: () => ak.css("muted"), points: { show: false } });
      const colour = ({ method }) => ak.methodColour(method), mark = ({ method }) => ak.marks[ak.data.methods[method].marker] || ak.marks[1];
      const shown = (attacks) => attacks.filter((attack) => !block.hidden.has(attack.index));
      const options = {
        key: () => [...shown(this.attacks).map((attack) => [attack.label, colour(attack), ak.dashes[attack.dash]]), ...shown(this.fixed).map((attack) => [attack.label, colour(attack), [], mark(attack)]),
          ...series.slice(this.attacks.length).map((line) => [line.label, line.stroke(), []])],
        height: HEIGHT,
        bands: this.certified && series.length > 1 ? [{ series: [series.length - 1, series.length], fill: () => ak.css("muted") + "2e" }] : [],
        scales: { x: { time: false, distr: block.log ? 3 : 1, range: () => block.limits() }, y: { range: [0, 100] } },
        axes: [(block.log ? ak.logAxis : ak.axis)(`${block.name} perturbation \u03b5`), ak.axis(`${block.what} (%)`, { size: 46 })],
        series: [{ label: "epsilon" }, ...series],
        cursor: { drag: { x: true, y: false, setScale: false }, y: false, points: { show: false } },
        hooks: {
          draw: [(u) => { ak.rule(u, "x", block.epsilon, ak.css("accent"), [5, 4]); this.fixed.forEach((attack) => { if (!block.hidden.has(attack.index)) this.marker(u, attack); }); }],
          drawSeries: [(u, index) => { if (index <= this.attacks.length) ak.drawMarks(u, index, this.attacks[index - 1].method, 70 + 9 * (index % 5)); }],
          setCursor: [(u) => this.hover(u)],
          setSelect: [(u) => this.zoomed(u)],
        },
      };
      this.chart = ak.chart(this.host, options, this.data(), this.label);
      this.tip = ak.tip(this.chart);
      this.chart.over.addEventListener("click", () => { if (this.chart.cursor.left >= 0 && !this.dragged) block.choose(this.chart.posToVal(this.chart.cursor.left, "x"), "chart"); this.dragged = false; });
      this.chart.over.addEventListener("dblclick", () => { block.zoom = null; block.redraw(); });
    }

    // An attack at a fixed radius: one mark there, with its interval.
    marker(u, { fixed, method }) {
      if (fixed.value === null) return;
      const context = u.ctx, ratio = uPlot.pxRatio, x = u.valToPos(fixed.epsilon, "x", true), y = (share) => u.valToPos(100 * share, "y", true);
      if (x < u.bbox.left - 1 || x > u.bbox.left + u.bbox.width + 1) return;
      context.save();
      context.strokeStyle = context.fillStyle = ak.methodColour(method);
      context.lineWidth = 1.6 * ratio;
      context.beginPath();
      for (const [from, to] of [[[x, fixed.low], [x, fixed.high]], [[x - 4 * ratio, fixed.low], [x + 4 * ratio, fixed.low]], [[x - 4 * ratio, fixed.high], [x + 4 * ratio, fixed.high]]]) {
        context.moveTo(from[0], y(from[1]));
        context.lineTo(to[0], y(to[1]));
      }
      context.stroke();
      context.fill(new Path2D((ak.marks[ak.data.methods[method].marker] || ak.marks[1])(x, y(fixed.value), 4.6 * ratio)));
      context.restore();
    }

    rebuild() { this.chart.destroy(); this.host.replaceChildren(); this.make(); }

    visibility() {
      this.attacks.forEach((attack, i) => this.chart.setSeries(i + 1, { show: !this.block.hidden.has(attack.index) }));
      this.chart.redraw(false);
    }

    zoomed(u) {
      if (u.select.width < 8) return;
      const [low, high] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
      this.dragged = true;
      this.block.zoom = [Math.max(0, low), high];
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      setTimeout(() => this.block.redraw());
    }

    hover(u) {
      if (!this.tip) return;
      const { left, top } = u.cursor;
      if (left === undefined || left < 0) return this.tip("", null);
      const epsilon = u.posToVal(left, "x");
      const lines = this.attacks.filter((attack) => !this.block.hidden.has(attack.index)).map((attack) => [attack, ak.robust(ak.curve(attack.index), epsilon)]).filter(([, value]) => !Number.isNaN(value));
      lines.sort((a, b) => a[1] - b[1]);
      const shown = lines.slice(0, 12).map(([attack, value]) => [ak.swatch(attack), attack.label, ak.percent(value)]);
      if (this.certified) shown.push([null, "certified, at least", ak.percent(ak.robust(this.certified.sorted, epsilon))]);
      if (lines.length > 12) shown.push([null, `and ${lines.length - 12} more`, ""]);
      this.tip(`\u03b5 = ${ak.radiusText(Number(epsilon.toPrecision(4)), this.block.group.distance)}`, shown, left, top);
    }
  }

  ak.curveBlocks = [...document.querySelectorAll(".curve-block")].map((host, number) => new Block(host, number));
})();
