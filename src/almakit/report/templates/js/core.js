// What every part of the page shares: the data, small builders of elements (text only, never markup), numbers, colours, events.
"use strict";
const ak = {};

(function () {
  ak.data = JSON.parse(document.getElementById("report-data").textContent);
  ak.redrawCharts = () => {};  // until there are charts

  // Elements. Children that are not elements become text, so nothing from outside can become markup.
  ak.el = function (tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "class") element.className = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  };

  ak.option = (value, text, selected) => ak.el("option", { value, selected }, text);

  ak.svg = function (tag, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
  };

  // Numbers. A stored distance: NaN = not attacked yet, Infinity = nothing found, 0 = wrong from the start.
  ak.floats = function (base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer), values = new Float32Array(bytes.length / 4);
    for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(4 * i, true);
    return values;
  };

  // As the tables round: what lies exactly in the middle goes to the even digit (toFixed goes up).
  ak.fixed = function (value, places) {
    const [shown, exact] = [value.toFixed(places), value.toFixed(places + 40)];
    if (!/50*$/.test(exact) || !/^50+$/.test(exact.slice(exact.length - 40))) return shown;
    const below = exact.slice(0, exact.length - 40).replace(/\.$/, "");
    return Number(below[below.length - 1]) % 2 ? shown : below;
  };

  const superscripts = { "-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3", 4: "\u2074", 5: "\u2075", 6: "\u2076", 7: "\u2077", 8: "\u2078", 9: "\u2079" };
  ak.number = function (value, digits) {
    if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
    if (!Number.isFinite(value)) return value > 0 ? "\u221e" : "\u2212\u221e";
    const size = Math.abs(value), wanted = digits || 4;
    if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", "\u2212");
    if (size < 1e-3 || size >= 1e6) {
      const [mantissa, exponent] = value.toExponential(Math.min(wanted, 3) - 1).split("e");
      return mantissa.replace("-", "\u2212") + "\u00b710" + [...exponent.replace("+", "")].map((c) => superscripts[c]).join("");
    }
    const whole = Math.floor(Math.log10(size)) + 1;
    return ak.fixed(value, Math.max(0, wanted - Math.max(whole, 1) + (whole < 1 ? -whole : 0))).replace("-", "\u2212");
  };
  ak.percent = (fraction, places) => (fraction === null || Number.isNaN(fraction) ? "\u2013" : ak.fixed(100 * fraction, places === undefined ? 1 : places) + "\u2009%");
  ak.count = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");

  // Colours come from the style sheet, so the theme decides them in one place.
  ak.css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  ak.methodColour = (method) => ak.css("series-" + ak.data.methods[method].colour);
  ak.dashes = { solid: [], dashed: [9, 4], dotted: [2, 4] };

  // The line that stands for an attack in legends.
  ak.swatch = function (attack) {
    const method = ak.data.methods[attack.method], shape = ak.marks[method.marker];
    const line = ak.svg("line", { x1: 1, y1: 6, x2: 31, y2: 6, "stroke-width": 2.4, class: "stroke-" + method.colour, "stroke-dasharray": ak.dashes[attack.dash].join(" "), "stroke-linecap": "butt" });
    if (attack.fixed) {
      const dot = (shape || ak.marks[1])(16, 6, 4), bar = ak.svg("path", { d: "M16,0V12M13,0.5H19M13,11.5H19", class: "stroke-" + method.colour, "stroke-width": 1.4, fill: "none" });
      return ak.svg("svg", { viewBox: "0 0 32 12", width: 32, height: 12, class: "swatch", "aria-hidden": "true" }, bar, ak.svg("path", { d: dot, class: "fill-" + method.colour }));
    }
    const parts = shape ? [line, ak.svg("path", { d: shape(16, 6, 3.6), class: "fill-" + method.colour })] : [line];
    return ak.svg("svg", { viewBox: "0 0 32 12", width: 32, height: 12, class: "swatch", "aria-hidden": "true" }, ...parts);
  };
  ak.marks = [
    null,
    (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
    (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
    (x, y, r) => `M${x},${y - 1.2 * r}L${x + 1.1 * r},${y + r}H${x - 1.1 * r}Z`,
    (x, y, r) => `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}Z`,
  ];

  // What the reader chose (epsilon, filters, the open image) is part of the address, so that a link shows what they see: #part?key=value&...
  const address = () => location.hash.slice(1).split("?"), chosen = new Map();
  for (const [key, value] of new URLSearchParams(address()[1] || "")) {
    try { chosen.set(key, JSON.parse(value)); } catch { /* not ours */ }
  }
  let settled = false;
  addEventListener("load", () => {
    const part = document.getElementById(address()[0]);
    if (chosen.size && part) part.scrollIntoView();
    settled = true;
  });
  ak.remember = function (key, value) {
    if (!settled) return;
    if (value === null || value === "") chosen.delete(key); else chosen.set(key, value);
    const listed = new URLSearchParams([...chosen].map(([name, kept]) => [name, JSON.stringify(kept)])).toString();
    history.replaceState(null, "", "#" + address()[0] + (listed ? "?" + listed : ""));
  };
  ak.recall = (key) => (chosen.has(key) ? chosen.get(key) : null);

  // Classes by name where the data has names.
  ak.className = function (model, label) {
    if (label === null || label === undefined || label < 0) return "\u2013";
    const names = ak.data.models[model].classes;
    return names && label < names.length ? names[label] : String(label);
  };
  ak.byKey = Object.fromEntries(ak.data.distances.map((distance) => [distance.key, distance]));
  ak.groups = Object.fromEntries(ak.data.groups.map((group) => [group.key, group]));
  ak.distanceName = (key) => (ak.byKey[key] ? ak.byKey[key].label : key);

  // The largest distance that counts as within a radius: Grid.limit in radius.py, which says why.
  ak.limit = function ({ step, power, rounding }, radius) {
    if (!step) return radius * (1 + 1e-5) + (radius > 0 ? rounding : 0);
    const levels = (radius / step) ** power, whole = Math.floor(levels + levels / (100 * (1000 + levels)));
    return step * ((levels + whole + 1) / 2) ** (1 / power);
  };
  // A radius as people write it, 0.5 or 8/255: the text as a number, null where it is none; and the number as a text, as labels.radius writes it.
  ak.radius = function (text) {
    const match = /^\s*([0-9.]+(?:e-?[0-9]+)?)\s*(?:\/\s*([0-9.]+))?\s*$/i.exec(text);
    const value = match ? Number(match[1]) / (match[2] === undefined ? 1 : Number(match[2])) : NaN;
    return Number.isFinite(value) && value >= 0 ? value : null;
  };
  ak.radiusText = function (value, distance) {
    const whole = Math.round(255 * value);
    return distance === "linf" && whole && Math.abs(255 * value - whole) < 1e-4 && whole % 51 ? `${whole}/255` : String(Number(value.toPrecision(6)));
  };

  // Wilson's 95 % interval of a share of so many images, as numbers.wilson in Python.
  ak.wilson = function (share, count) {
    const square = 1.959964 ** 2, root = Math.sqrt(square) * Math.sqrt((share * (1 - share)) / count + square / (4 * count * count));
    const [low, high] = [-1, 1].map((sign) => (share + square / (2 * count) + sign * root) / (1 + square / count));
    return [share === 0 ? 0 : Math.max(0, low), share === 1 ? 1 : Math.min(1, high)];
  };
  ak.interval = (share, count) => (Number.isNaN(share) ? "" : ak.wilson(share, count).map((end) => ak.fixed(100 * end, 1)).join(" to "));

  ak.sameRadius = (one, other) => one === other || Math.abs(one - other) <= 1e-5 * Math.max(one, other);

  // Fraction of images that hold at epsilon: those whose smallest found distance is larger. `sorted` ascending, Infinity last;
  // sorted.grid says which distances are within a radius, and certified radii, which have none, are compared as they are.
  ak.robust = function (sorted, radius) {
    if (!sorted.length || (sorted.from > radius * (1 + 1e-5) && radius > 0)) return NaN;
    const epsilon = sorted.grid ? ak.limit(sorted.grid, radius) : radius;
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] > epsilon) high = middle; else low = middle + 1;
    }
    return (sorted.length - low) / sorted.length;
  };
  ak.quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))];

  // A curve of sorted distances with what decides what lies within a radius, and the radius from which on it is known.
  ak.onGrid = (sorted, part) => Object.assign(sorted, { grid: part.grid, from: part.from || 0 });

  // Decoded once, on demand.
  const cells = new Map(), curves = new Map();
  ak.cells = function (attack) {
    if (!cells.has(attack)) cells.set(attack, ak.floats(ak.data.attacks[attack].cells));
    return cells.get(attack);
  };
  ak.curve = function (attack) {
    if (!curves.has(attack)) {
      const sorted = ak.cells(attack).filter((value) => !Number.isNaN(value)).sort();
      curves.set(attack, ak.onGrid(sorted, ak.data.attacks[attack]));
    }
    return curves.get(attack);
  };
})();
