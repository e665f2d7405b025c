// The leaderboard: every block shows one measure of models x attacks, at the epsilon chosen; sorted, filtered, and all of it in the address.
(function () {
  const percent = (value) => ak.fixed(100 * value, 1), dash = "\u2013";
  const measures = {
    robust: { best: "down", text: percent }, median: { best: "up", text: (value) => ak.number(value) },
    passes: { best: "up", text: (value) => ak.count(value) }, seconds: { best: "up", text: (value) => ak.number(value, 3) },
  };
  const field = (id) => document.getElementById(id), controls = field("board-controls");
  const inputs = { measure: field("measure"), models: field("filter-models"), attacks: field("filter-attacks"), finished: field("filter-finished") };
  const measure = () => inputs.measure.value;
  controls.hidden = false;

  const radius = ak.radius;

  class Block {
    constructor(host) {
      this.host = host;
      this.table = ak.data.tables[Number(host.dataset.table)];
      this.block = this.table.blocks[Number(host.dataset.block)];
      this.key = this.table.key + ":" + this.block.key;
      this.matrix = host.querySelector(".matrix");
      this.said = host.querySelector(".block-said");
      this.source = host.querySelector(".source");
      this.curves = new Map();
      this.epsilonText = ak.recall("epsilon:" + this.key) || (this.block.radii.length ? this.block.radii[0].text : "0");
      if (radius(String(this.epsilonText)) === null) this.epsilonText = this.block.radii.length ? this.block.radii[0].text : "0";
      this.sort = ak.recall("sort:" + this.key);
      if (!Array.isArray(this.sort)) this.sort = ["all", null];
      this.open = ak.recall("cell:" + this.key);
      this.epsilons();
      this.rows();
      this.heads();
    }

    get epsilon() { return radius(String(this.epsilonText)); }

    epsilons() {
      this.input = ak.el("input", { type: "text", class: "epsilon", value: this.epsilonText, inputmode: "text", "aria-label": `\u03b5 for ${this.block.name}`, spellcheck: "false" });
      this.input.addEventListener("input", () => {
        const good = radius(this.input.value) !== null;
        this.input.setAttribute("aria-invalid", String(!good));
        if (good) this.choose(this.input.value.trim());
      });
      this.presets = this.block.radii.map(({ text }) => {
        const button = ak.el("button", { type: "button", class: "plain" }, text);
        button.addEventListener("click", () => { this.input.value = text; this.input.removeAttribute("aria-invalid"); this.choose(text); });
        return button;
      });
      this.host.querySelector(".epsilon-controls").append(ak.el("label", { class: "check" }, `${this.block.label} \u2264 `, this.input), ...this.presets);
    }

    choose(text) {
      this.epsilonText = text;
      ak.remember("epsilon:" + this.key, text);
      this.show();
    }

    // A cell's value for the measure: [value, interval or null, why there is none].
    value(cell) {
      if (!cell) return [null, null, "not run on this model"];
      if (measure() === "median") return [cell.median.value, cell.median.value === null ? null : cell.median, cell.curve ? "nothing found for half of the images or more" : "works at a fixed \u03b5"];
      if (measure() !== "robust") return [cell[measure()], null, "no image had to be attacked"];
      const near = cell.robust_accuracy.find((row) => row.value !== null && ak.sameRadius(row.epsilon, this.epsilon));
      if (near) return [near.value, near, ""];
      if (!cell.curve) return [null, null, typeof cell.epsilon === "number" ? `looks at \u03b5 = ${this.radiusText(cell.epsilon)} only` : "says nothing about this \u03b5"];
      if (!this.curves.has(cell)) this.curves.set(cell, ak.onGrid(ak.floats(cell.curve), cell));
      const share = ak.robust(this.curves.get(cell), this.epsilon);
      if (Number.isNaN(share)) return [null, null, "images stopped before: nothing is known of so small a radius"];
      const [low, high] = ak.wilson(share, cell.images);
      return [share, { low, high }, ""];
    }

    // What is certified of all images, in the measure shown: nothing below it will ever be found.
    bound(certified) {
      const near = certified.accuracy.find((row) => row.value !== null && ak.sameRadius(row.epsilon, this.epsilon));
      if (measure() === "robust") return near ? percent(near.value) : null;
      return measure() === "median" && certified.median !== null ? ak.number(certified.median) : null;
    }

    rows() {
      this.lines = this.block.rows.map((row, place) => ({ row, model: this.table.models[row.model], element: this.matrix.tBodies[0].rows[place], buttons: [] }));
      for (const line of this.lines) {
        line.link = line.element.querySelector("a");
        [line.row.all, ...line.row.cells].forEach((cell, column) => {
          const place = line.element.cells[column + 3], key = column ? column - 1 : "all";
          if (!column) place.classList.add("all");
          line.buttons.push(cell ? ak.el("button", { type: "button", class: "cell", "aria-expanded": "false", onclick: () => this.tell(line, key) }) : null);
          if (cell) place.replaceChildren(line.buttons[column]);
        });
      }
    }

    heads() {
      this.buttons = [...this.matrix.tHead.querySelectorAll("th[data-column]")].map((head) => {
        const button = ak.el("button", { type: "button", class: "sort" }, ...head.childNodes), column = head.dataset.column;
        head.append(button);
        button.addEventListener("click", () => {
          const up = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") !== "ascending" : this.usual(column) === "up";
          this.sort = [column, up ? "up" : "down"];
          ak.remember("sort:" + this.key, this.sort);
          this.show();
        });
        return head;
      });
      if (!this.buttons.some((head) => head.dataset.column === String(this.sort[0]))) this.sort = ["all", null];
    }

    usual(column) { return column === "model" ? "up" : column === "clean" ? "down" : measures[measure()].best; }

    show() {
      const [column, direction] = this.sort, way = direction || this.usual(column), kind = measures[measure()];
      const wanted = inputs.models.value.trim().toLowerCase(), attack = inputs.attacks.value.trim().toLowerCase();
      const shown = this.block.attacks.map((head) => !attack || head.label.toLowerCase().includes(attack) || head.text.toLowerCase().includes(attack));
      for (const line of this.lines) {
        line.element.hidden = (wanted && !line.model.name.toLowerCase().includes(wanted)) || (inputs.finished.checked && !line.model.complete);
        line.link.href = `${line.model.page}#curves?${new URLSearchParams([["epsilon:" + this.block.key, JSON.stringify(this.epsilon)]])}`;
        line.values = [line.row.all, ...line.row.cells].map((cell) => this.value(cell));
        line.values.forEach(([value, interval, why], index) => {
          const place = line.element.cells[index + 3], button = line.buttons[index];
          place.dataset.v = value === null ? "" : value;
          place.title = value === null ? why : "";
          if (index) place.hidden = !shown[index - 1];
          if (!button) { place.textContent = dash; return; }
          const few = !index && line.row.all.attacks < this.block.attacks.length ? ak.el("small", {}, `${line.row.all.attacks} of ${this.block.attacks.length} attacks`) : null;
          const span = interval && measure() === "robust" ? ak.el("small", {}, `${percent(interval.low)} to ${percent(interval.high)}`) : null;
          const bound = !index && line.row.all.certified ? this.bound(line.row.all.certified) : null;
          const certified = bound === null ? null : ak.el("small", {}, `certified \u2265 ${bound}`);
          button.replaceChildren(...[value === null ? dash : kind.text(value), span, few, certified].filter(Boolean));
        });
      }
      for (const head of this.buttons) {
        if (/^\d+$/.test(head.dataset.column)) head.hidden = !shown[Number(head.dataset.column)];
        if (head.dataset.column === String(column)) head.setAttribute("aria-sort", way === "up" ? "ascending" : "descending"); else head.removeAttribute("aria-sort");
      }
      const key = (line) => (column === "model" ? line.model.name : column === "clean" ? line.model.clean_accuracy.value : line.values[column === "all" ? 0 : Number(column) + 1][0]);
      // What has no value stays last in both directions.
      const order = [...this.lines].sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === null || y === null) return (x === null) - (y === null);
        const less = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
        return (way === "up" ? less : -less) || a.model.name.localeCompare(b.model.name);
      });
      this.matrix.tBodies[0].append(...order.map((line) => line.element));
      for (const button of this.presets) button.setAttribute("aria-pressed", String(radius(button.textContent) === this.epsilon));
      this.host.querySelector(".epsilon-controls").hidden = measure() !== "robust";
      const what = { robust: `${this.block.what[0].toUpperCase()}${this.block.what.slice(1)}, %, at ${this.block.label} \u2264 ${this.epsilonText}; all attacks: what resists every one`,
        median: `Median ${this.block.label} distance of the smallest change found; all attacks: the nearest of each image`,
        passes: "Forwards + backwards per attacked image; all attacks: their sum", seconds: "Seconds per image; all attacks: their sum" }[measure()];
      this.said.textContent = what + ".";
      this.panel();
      return this.lines.filter((line) => !line.element.hidden).length;
    }

    tell(line, column) {
      const same = this.open && this.open[0] === line.model.name && this.open[1] === column;
      this.open = same ? null : [line.model.name, column];
      ak.remember("cell:" + this.key, this.open);
      this.panel();
    }

    // Where the number of the open cell comes from.
    panel() {
      for (const line of this.lines) line.buttons.forEach((button, index) => {
        if (button) button.setAttribute("aria-expanded", String(Boolean(this.open) && this.open[0] === line.model.name && this.open[1] === (index ? index - 1 : "all")));
      });
      const line = Array.isArray(this.open) && this.lines.find((one) => one.model.name === this.open[0]);
      const cell = line && (this.open[1] === "all" ? line.row.all : line.row.cells[this.open[1]]);
      if (!cell) return this.source.replaceChildren();
      const together = this.open[1] === "all", label = together ? "All attacks" : this.block.attacks[this.open[1]].label, lines = [];
      const range = (row) => (row.low === null || row.high === null ? "" : ` (${percent(row.low)} to ${percent(row.high)})`);
      for (const row of cell.robust_accuracy) if (row.value !== null) lines.push([`${this.block.goal ? this.block.what : "robust"} at ${this.block.label} \u2264 ${this.radiusText(row.epsilon)}`, `${percent(row.value)} %${range(row)}`]);
      if (cell.curve) lines.push(["median", cell.median.value === null ? "\u221e" : ak.number(cell.median.value)]);
      if (cell.certified) {
        for (const row of cell.certified.accuracy) if (row.value !== null) lines.push([`certified at ${this.block.label} \u2264 ${this.radiusText(row.epsilon)}`, `${percent(row.value)} %${range(row)}`]);
        lines.push(["median certified radius", `${ak.number(cell.certified.median)}, of ${cell.certified.images} images`]);
      }
      if (cell.passes !== null) lines.push(["forwards + backwards per attacked image", ak.count(cell.passes)]);
      if (cell.seconds !== null) lines.push(["seconds per image", ak.number(cell.seconds, 3)]);
      for (const run of (together ? line.row.cells.filter(Boolean).map((one) => one.run) : [cell.run]).filter((run, place, all) => all.indexOf(run) === place).map((run) => this.table.runs[run])) {
        lines.push(["run folder", run.folder + (run.complete ? "" : `, not finished: ${run.results} of ${run.expected} results`)], ["folder sha256", run.sha256], ["threat model", run.threat_model],
          ["made with", `almakit ${run.almakit || "?"}, torch ${run.torch || "?"}, Python ${run.python || "?"}, ${run.device || "?"}${run.started ? ", " + run.started : ""}`]);
      }
      this.source.replaceChildren(ak.el("strong", {}, `${label} on ${line.model.name}, ${this.block.name}`), ak.el("dl", {}, ...lines.flatMap(([name, text]) => [ak.el("dt", {}, name), ak.el("dd", {}, text)])));
    }

    radiusText(epsilon) {
      const known = this.block.radii.find((row) => row.epsilon === epsilon);
      return known ? known.text : ak.radiusText(epsilon, this.block.distance);
    }
  }

  const blocks = [...document.querySelectorAll(".block-card")].map((host) => new Block(host));
  function show() {
    const left = new Set();
    for (const block of blocks) { block.show(); block.lines.forEach((line) => { if (!line.element.hidden) left.add(line.model); }); }
    const all = ak.data.tables.reduce((sum, table) => sum + table.models.length, 0);
    field("filtered").textContent = left.size === all ? "" : `${left.size} of ${all} models`;
  }
  for (const [key, input] of Object.entries(inputs)) {
    const kept = ak.recall(key);
    if (input.type === "checkbox") input.checked = kept === true;
    else if (typeof kept === "string" && (input.tagName !== "SELECT" || kept in measures)) input.value = kept;
    input.addEventListener("input", () => { ak.remember(key, input.type === "checkbox" ? (input.checked || null) : input.value); show(); });
  }
  show();
})();
