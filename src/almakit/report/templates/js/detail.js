// One image in full: its pictures large, what the model thought before and after, every distance, what the other attacks did.
(function () {
  const dialog = document.getElementById("detail");
  if (!dialog) return;
  const body = dialog.querySelector(".detail-body"), title = dialog.querySelector("h2");
  const plain = (item) => item.wrong !== null || ak.data.models[item.model].aimed; // no class of the whole image
  let list = [], place = 0, attack = 0;

  ak.openImage = function (images, index, chosen) {
    [list, place, attack] = [images, index, chosen];
    show();
    if (!dialog.open) dialog.showModal();
  };

  const figure = (picture, caption, alt, item) => ak.el("figure", {}, ak.picture(picture, alt, item.side < 96), ak.el("figcaption", {}, caption));

  function chances(model, before, after) {
    const classes = [...new Set([...before, ...after].map(([label]) => label))];
    const chance = (top, label) => { const found = top.find(([other]) => other === label); return found ? found[1] : null; };
    const cell = (value, kind) => {
      const bar = ak.el("span", { class: "bar " + kind });
      bar.style.width = `${value === null ? 0 : 100 * value}%`;
      return ak.el("td", {}, ak.el("span", { class: "bar-track" }, bar), ak.el("span", { class: "bar-value" }, value === null ? (after.length ? "\u2013" : "") : ak.percent(value)));
    };
    const rows = classes.map((label) => ak.el("tr", {}, ak.el("th", { scope: "row" }, ak.className(model, label)), cell(chance(before, label), "before"), cell(chance(after, label), "after")));
    return ak.el("table", { class: "chances" }, ak.el("caption", {}, list[place].wrong !== null ? "What the model says (shares of the pixels of its leading classes)" : "What the model says (probabilities of its leading classes)"),
      ak.el("thead", {}, ak.el("tr", {}, ak.el("th", { scope: "col" }, "class"), ak.el("th", { scope: "col" }, "before"), ak.el("th", { scope: "col" }, "after"))), ak.el("tbody", {}, rows));
  }

  function distances(result) {
    const rows = ak.data.measures.map((measure, i) => ak.el("tr", {}, ak.el("th", { scope: "row" }, measure.label), ak.el("td", {}, result.measures[i] === null ? "not defined here" : ak.number(result.measures[i]))));
    const own = ak.data.attacks[result.attack].distance;
    if (!ak.data.measures.some((measure) => measure.key === own)) rows.unshift(ak.el("tr", {}, ak.el("th", { scope: "row" }, ak.distanceName(own)), ak.el("td", {}, ak.number(result.distance === null ? Infinity : result.distance))));
    return ak.el("table", {}, ak.el("caption", {}, "How far it is from the original"), ak.el("tbody", {}, rows));
  }

  function others(item) {
    const rows = item.results.map((result) => {
      const info = ak.data.attacks[result.attack];
      const pick = ak.el("button", { type: "button", class: "series", "aria-pressed": String(result.attack === attack) }, ak.swatch(info), info.label);
      pick.addEventListener("click", () => { attack = result.attack; show(); body.querySelector(`[aria-pressed=true]`).focus(); });
      return ak.el("tr", { class: result.attack === attack ? "chosen" : null }, ak.el("th", { scope: "row" }, pick), ak.el("td", {}, ak.distanceName(info.distance)), ak.el("td", {}, result.distance === null ? "\u221e" : ak.number(result.distance)),
        ak.el("td", {}, result.prediction === null ? "\u2013" : item.wrong !== null ? (result.wrong !== null ? `${ak.percent(result.wrong)} wrong` : "\u2013") : ak.className(item.model, result.prediction)), ak.el("td", {}, `${ak.count(result.forwards)} / ${ak.count(result.backwards)}`));
    });
    const heads = ["attack", "distance", "value", "becomes", "forwards / backwards"].map((text) => ak.el("th", { scope: "col" }, text));
    return ak.el("div", { class: "scroll" }, ak.el("table", { class: "others" }, ak.el("caption", {}, "Every attack on this image"), ak.el("thead", {}, ak.el("tr", {}, heads)), ak.el("tbody", {}, rows)));
  }

  function verdict(result) {
    if (!result) return "This attack has not come to this image yet.";
    if (result.status === "refuted") return "The attack claimed success, but the verdict's own forward pass does not confirm it; it counts as not found.";
    if (result.status === "robust") return `Not broken within \u03b5 = ${ak.data.attacks[result.attack].fixed.text}, the one radius this attack looks at: robust there as far as it can tell.`;
    if (result.status === "failed" || result.status === "invalid") return result.reason || "Nothing was found within the budget.";
    if (result.status === "already-wrong") return ak.data.models[list[place].model].aimed ? "The clean image reaches the goal; there was nothing to do, and the distance is 0." : "The model is wrong on the clean image; there was nothing to do, and the distance is 0.";
    const eight = result.eight;
    if (!eight) return "Its 8-bit version was not recorded.";
    return eight.fooled ? `Still adversarial after rounding to 8 bits (distance then ${ak.number(eight.distance)}).` : "No longer adversarial after rounding to 8 bits: it could not be saved as an ordinary image file.";
  }

  function show() {
    const item = list[place], result = ak.resultOf(item, attack), info = ak.data.attacks[attack], name = ak.className(item.model, item.label);
    title.textContent = `Image ${item.id}`;
    ak.remember("image", [item.model, item.id, attack]);
    dialog.querySelector(".place").textContent = `${place + 1} of ${list.length}`;
    dialog.querySelector(".previous").disabled = place === 0;
    dialog.querySelector(".next").disabled = place === list.length - 1;
    const changed = result && result.largest ? `difference \u00d7 ${ak.number((item.grey ? 1 : 0.5) / result.largest, 3)}` : "difference";
    const key = item.grey ? "blue: darker, red: brighter, white: unchanged" : "mid-grey: unchanged";
    body.replaceChildren(
      ak.el("p", { class: "lead" }, ak.el("span", {}, `${plain(item) ? "" : `True class ${name}. `}${info.label} (${ak.distanceName(info.distance)}): `), ...(result ? ak.badges(result) : []),
        result && result.target !== null && result.target !== undefined ? ` aimed at ${ak.className(item.model, result.target)}` : ""),
      ak.el("div", { class: "large" },
        figure(item.original, item.wrong !== null ? `original: ${ak.percent(item.wrong)} of the labelled pixels wrong` : `original: ${ak.className(item.model, item.prediction)}`, plain(item) ? "The original" : `The original, class ${name}`, item),
        figure(result && result.picture, result && result.prediction !== null ? (item.wrong !== null ? `adversarial: ${ak.percent(result.wrong)} wrong` : `adversarial: ${ak.className(item.model, result.prediction)}`) : "adversarial: none", "The adversarial image", item),
        figure(result && result.change, result && result.largest ? `${changed} (${key})` : "difference", result && result.largest ? `The difference; its largest value is ${ak.number(result.largest)}` : "No difference", item)),
      ak.el("p", { class: "verdict" }, verdict(result)),
      ak.el("div", { class: "columns" }, ak.data.models[item.model].aimed ? "" : chances(item.model, item.top, result ? result.top : []), result && result.prediction !== null ? distances(result) : ""),
      others(item));
  }

  function move(by) {
    const to = place + by;
    if (to < 0 || to >= list.length) return;
    place = to;
    show();
  }
  dialog.querySelector(".previous").addEventListener("click", () => move(-1));
  dialog.querySelector(".next").addEventListener("click", () => move(1));
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => ak.remember("image", null));

  // Opens the image of that name, among all of its model; false where the page holds no picture of it.
  ak.showImage = function (model, id, chosen) {
    const mine = ak.data.gallery.filter((item) => item.model === model), index = mine.findIndex((item) => item.id === id);
    if (index < 0 || !ak.data.attacks[chosen]) return false;
    ak.openImage(mine, index, chosen);
    return true;
  };
  const asked = ak.recall("image");
  if (Array.isArray(asked)) ak.showImage(...asked);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") move(-1);
    if (event.key === "ArrowRight") move(1);
  });
})();
