// A chart as a vector drawing: drawn once more on a pen that writes down what a canvas would paint, with a title and a key below.
(function () {
  const r = (value) => Math.round(100 * value) / 100;

  class Path {
    constructor(from) { this.d = from instanceof Path ? from.d : typeof from === "string" ? from : ""; }
    moveTo(x, y) { this.d += `M${r(x)},${r(y)}`; }
    lineTo(x, y) { this.d += `${this.d ? "L" : "M"}${r(x)},${r(y)}`; }
    bezierCurveTo(...at) { this.d += `C${at.map(r).join(",")}`; }
    rect(x, y, wide, high) { this.d += `M${r(x)},${r(y)}h${r(wide)}v${r(high)}h${r(-wide)}Z`; }
    closePath() { this.d += "Z"; }
    arcTo(x, y) { this.lineTo(x, y); }
    arc(x, y, radius, from, to) {
      const at = (angle) => `${r(x + radius * Math.cos(angle))},${r(y + radius * Math.sin(angle))}`, half = (from + to) / 2;
      this.d += `${this.d ? "L" : "M"}${at(from)}A${r(radius)},${r(radius)} 0 0,1 ${at(half)}A${r(radius)},${r(radius)} 0 0,1 ${at(to)}`;
    }
  }

  // Six digits and an opacity: not every program knows colours of eight.
  const paint = (kind, colour, alpha) => {
    const eight = /^#([0-9a-f]{6})([0-9a-f]{2})$/i.exec(colour), opacity = alpha * (eight ? parseInt(eight[2], 16) / 255 : 1);
    return { [kind]: eight ? "#" + eight[1] : colour, ...(opacity < 1 ? { [kind + "-opacity"]: r(opacity) } : {}) };
  };

  class Pen {
    constructor(root) {
      this.root = root;
      this.clips = 0;
      this.kept = [];
      this.state = { strokeStyle: "#000", fillStyle: "#000", lineWidth: 1, font: "12px sans-serif", textAlign: "start", textBaseline: "alphabetic", globalAlpha: 1, lineCap: "butt", lineJoin: "miter", dash: [], moves: "", clips: [] };
      for (const name of Object.keys(this.state)) if (!["dash", "moves", "clips"].includes(name)) Object.defineProperty(this, name, { get: () => this.state[name], set: (value) => { this.state[name] = value; } });
      for (const name of ["moveTo", "lineTo", "bezierCurveTo", "rect", "closePath", "arc", "arcTo"]) this[name] = (...at) => this.path[name](...at);
      this.path = new Path();
    }
    save() { this.kept.push({ ...this.state }); }
    restore() { this.state = this.kept.pop() || this.state; }
    beginPath() { this.path = new Path(); }
    setLineDash(dash) { this.state.dash = [...dash]; }
    translate(x, y) { this.state.moves += `translate(${r(x)},${r(y)})`; }
    rotate(angle) { this.state.moves += `rotate(${r((180 * angle) / Math.PI)})`; }
    clearRect() { this.root.replaceChildren(); }
    clip(path) {
      const id = `clip-${++this.clips}`;
      this.root.append(ak.svg("clipPath", { id }, ak.svg("path", { d: (path || this.path).d })));
      this.state.clips = [...this.state.clips, id];
    }
    put(tag, attributes, ...children) {
      if (this.state.moves) attributes.transform = this.state.moves;
      let element = ak.svg(tag, attributes, ...children);
      for (const id of this.state.clips) element = ak.svg("g", { "clip-path": `url(#${id})` }, element);
      this.root.append(element);
    }
    stroke(path) {
      const { d } = path || this.path, { dash, lineCap } = this.state;
      if (d) this.put("path", { d, fill: "none", "stroke-width": r(this.lineWidth), "stroke-linejoin": "round", ...paint("stroke", this.strokeStyle, this.globalAlpha), ...(dash.length ? { "stroke-dasharray": dash.map(r).join(" ") } : {}), ...(lineCap === "butt" ? {} : { "stroke-linecap": lineCap }) });
    }
    fill(path) {
      const { d } = path || this.path;
      if (d) this.put("path", { d, ...paint("fill", this.fillStyle, this.globalAlpha) });
    }
    fillRect(x, y, wide, high) { this.put("rect", { x: r(x), y: r(y), width: r(wide), height: r(high), ...paint("fill", this.fillStyle, this.globalAlpha) }); }
    fillText(text, x, y) {
      const size = parseFloat(/([\d.]+)px/.exec(this.font)[1]), anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] || "start";
      const down = { top: 0.8, hanging: 0.8, middle: 0.33 }[this.textBaseline] || 0;
      this.put("text", { x: r(x), y: r(y + down * size), "font-size": r(size), "text-anchor": anchor, ...paint("fill", this.fillStyle, this.globalAlpha) }, text);
    }
  }

  // The text of an SVG file of a chart, handed to `done`. `key`: what its lines are, as [name, colour, dash, mark].
  ak.asSvg = function (options, data, title, key, done) {
    const drawing = ak.svg("g", {}), pen = new Pen(drawing), { getContext } = HTMLCanvasElement.prototype, RealPath = window.Path2D;
    let chart;
    HTMLCanvasElement.prototype.getContext = () => pen;
    window.Path2D = Path;
    try { chart = new uPlot(options, data, document.createElement("div")); } finally { HTMLCanvasElement.prototype.getContext = getContext; }
    // uPlot paints in a microtask of its own, which was queued before this one.
    queueMicrotask(() => {
      window.Path2D = RealPath;
      const ratio = uPlot.pxRatio, wide = chart.width, text = { "font-family": "system-ui, sans-serif", "font-size": 12, fill: ak.css("text") };
      const rows = [], head = 26;
      let left = 12, row = 0;
      for (const [name, colour, dash, mark] of key) {
        const labelWidth = 50 + 7.2 * name.length;
        if (left > 12 && left + labelWidth > wide) { left = 12; row++; }
        const y = head + chart.height + 16 + 18 * row, line = ak.svg("line", { x1: left, y1: y - 4, x2: left + 26, y2: y - 4, "stroke-width": 2.4, ...paint("stroke", colour, 1), ...(dash && dash.length ? { "stroke-dasharray": dash.join(" ") } : {}) });
        rows.push(mark ? ak.svg("path", { d: mark(left + 13, y - 4, 4.5), ...paint("fill", colour, 1) }) : line, ak.svg("text", { x: left + 32, y, ...text }, name));
        left += labelWidth;
      }
      const high = head + chart.height + (key.length ? 18 * (row + 1) + 8 : 4);
      drawing.setAttribute("transform", `translate(0,${head}) scale(${1 / ratio})`);
      drawing.setAttribute("font-family", text["font-family"]);
      const whole = ak.svg("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}` }, ak.svg("title", {}, title),
        ak.svg("rect", { width: wide, height: high, fill: ak.css("card") }), ak.svg("text", { x: 12, y: 18, ...text, "font-weight": 600 }, title), drawing, ...rows);
      chart.destroy();
      done('<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(whole) + "\n", wide, high);
    });
  };
})();
