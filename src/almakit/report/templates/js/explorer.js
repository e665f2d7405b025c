// The images one by one: original, adversarial, difference; sorted and filtered, drawn a screenful at a time.
(function () {
  const grid = document.getElementById("gallery");
  if (!grid) return;
  const PAGE = innerWidth < 640 ? 6 : 12;
  const controls = Object.fromEntries(["model", "attack", "status", "class", "sort"].map((name) => [name, document.getElementById("explore-" + name)]));
  const count = document.getElementById("explore-count"), more = document.getElementById("explore-more"), limit = document.getElementById("explore-limit");
  const aimed = ak.data.models.every((model) => model.aimed);
  const words = { success: aimed ? "goal reached" : "fooled", "already-wrong": aimed ? "reached from the start" : "wrong from the start", failed: aimed ? "goal not reached" : "not fooled", robust: aimed ? "not reached at \u03b5" : "robust at \u03b5", invalid: "no finite logits", refuted: "refuted by the verdict" };
  if (aimed) for (const option of controls.status.options) option.textContent = words[option.value] || option.textContent.replace("fooled", "goal reached");
  let list = [], drawn = 0;
  ak.statusWords = words;

  function attacksOf(model) {
    return ak.data.attacks.map((attack, index) => ({ ...attack, index })).filter((attack) => attack.model === model);
  }

  function fillAttacks() {
    const model = Number(controls.model.value);
    controls.attack.replaceChildren(...attacksOf(model).map((attack) => ak.option(attack.index, `${attack.label} (${ak.distanceName(attack.distance)})`)));
    const labels = [...new Set(ak.data.gallery.filter((item) => item.model === model).map((item) => item.label))].sort((a, b) => a - b);
    controls.class.replaceChildren(ak.option("", "every class"), ...labels.map((label) => ak.option(label, ak.className(model, label))));
    controls.class.closest("label").hidden = aimed;
    const shown = ak.data.models[model].shown, total = ak.data.models[model].images;
    limit.textContent = shown < total
      ? `The page holds pictures of ${ak.count(shown)} of ${ak.count(total)} images, spread evenly from the easiest to the hardest (--images raises that).`
      : `The page holds pictures of all ${ak.count(total)} images.`;
  }

  ak.resultOf = (item, attack) => item.results.find((result) => result.attack === attack);

  function matches(result, wanted) {
    if (!wanted) return true;
    if (!result) return wanted === "missing";
    if (wanted === "survives") return Boolean(result.eight && result.eight.fooled && result.status === "success");
    if (wanted === "lost") return Boolean(result.eight && !result.eight.fooled);
    return wanted === "failed" ? result.status === "failed" || result.status === "invalid" : result.status === wanted;
  }

  const keys = {
    // Images that were wrong from the start have nothing to show: last in either direction.
    near: (item, result) => (!result || result.status === "already-wrong" ? Infinity : result.distance === null ? 1e30 : result.distance),
    far: (item, result) => (!result || result.status === "already-wrong" ? Infinity : result.distance === null ? -1e30 : -result.distance),
    sure: (item, result) => -(result && result.top.length ? result.top[0][1] : -1),
    order: (item) => item.image,
  };

  function update() {
    const model = Number(controls.model.value), attack = Number(controls.attack.value), key = keys[controls.sort.value];
    list = ak.data.gallery.filter((item) => item.model === model && (controls.class.value === "" || item.label === Number(controls.class.value)) && matches(ak.resultOf(item, attack), controls.status.value));
    list = list.map((item) => [key(item, ak.resultOf(item, attack)), item]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1].image - b[1].image)).map((pair) => pair[1]);
    drawn = 0;
    grid.replaceChildren();
    count.textContent = list.length === 1 ? "1 image" : `${ak.count(list.length)} images`;
    for (const [name, control] of Object.entries(controls)) ak.remember("explore-" + name, name === "model" && ak.data.models.length < 2 ? "" : control.value);
    addCards();
    if (!list.length) grid.append(ak.el("p", { class: "empty" }, "No image fits these filters."));
  }

  function addCards() {
    const attack = Number(controls.attack.value);
    for (const item of list.slice(drawn, drawn + PAGE)) grid.append(card(item, attack));
    drawn = Math.min(list.length, drawn + PAGE);
    more.hidden = drawn >= list.length;
    more.textContent = `Show ${Math.min(PAGE, list.length - drawn)} more of ${ak.count(list.length - drawn)}`;
  }

  ak.picture = function (number, alt, small) {
    if (number === null || number === undefined) return ak.el("span", { class: "picture none", role: "img", "aria-label": alt }, "\u2013");
    return ak.el("img", { class: small ? "picture small" : "picture", src: ak.data.pictures[number], alt, decoding: "async" });
  };

  ak.badges = function (result) {
    const list_ = [ak.el("span", { class: "badge " + result.status }, words[result.status] || result.status)];
    if (result.eight && result.status === "success") list_.push(ak.el("span", { class: "badge " + (result.eight.fooled ? "survives" : "lost") }, result.eight.fooled ? "survives 8 bits" : "lost at 8 bits"));
    return list_;
  };

  function card(item, attack) {
    const result = ak.resultOf(item, attack), small = item.side < 96, before = ak.className(item.model, item.label);
    const after = result && result.prediction !== null ? ak.className(item.model, result.prediction) : null;
    const sure = (top) => (!aimed && top && top.length ? ` (${ak.percent(top[0][1], 0)})` : "");
    const button = ak.el("button", { type: "button", class: "card-button", "data-image": item.image },
      ak.el("span", { class: "unseen" }, item.wrong !== null || aimed ? `Image ${item.id}. ` : `Image ${item.id}, true class ${before}. `),
      ak.el("span", { class: "triple" },
        ...[item.original, result && result.picture, result && result.change].map((picture) => ak.picture(picture, "", small))),
      ak.el("span", { class: "labels" },
        ak.el("span", { class: "from" }, item.wrong !== null ? `${ak.percent(item.wrong)} wrong` : ak.className(item.model, item.prediction) + sure(item.top)),
        ak.el("span", { class: "arrow", "aria-hidden": "true" }, "\u2192"), ak.el("span", { class: "unseen" }, " becomes "),
        ak.el("span", { class: "to" }, item.wrong !== null ? (result && result.wrong !== null ? `${ak.percent(result.wrong)} wrong` : "\u2013") : after && result.status !== "already-wrong" ? after + sure(result.top) : "\u2013")),
      ak.el("span", { class: "badges" }, result ? ak.badges(result) : ak.el("span", { class: "badge" }, "not attacked yet"),
        ak.el("span", { class: "distance" }, result ? `${ak.distanceName(ak.data.attacks[attack].distance)} ${result.distance === null ? (ak.data.attacks[attack].fixed ? `> ${ak.data.attacks[attack].fixed.text}` : "\u221e") : ak.number(result.distance)}` : "")));
    button.addEventListener("click", () => ak.openImage(list, list.indexOf(item), attack));
    return ak.el("li", {}, button);
  }

  ak.data.models.forEach((model, index) => controls.model.append(ak.option(index, model.name)));
  controls.model.closest("label").hidden = ak.data.models.length < 2;
  const recall = (name) => { const kept = ak.recall("explore-" + name); if (kept !== null && [...controls[name].options].some((option) => option.value === String(kept))) controls[name].value = String(kept); };
  recall("model");
  fillAttacks();
  ["attack", "status", "class", "sort"].forEach(recall);
  controls.model.addEventListener("change", () => { fillAttacks(); update(); });
  for (const name of ["attack", "status", "class", "sort"]) controls[name].addEventListener("change", update);
  more.addEventListener("click", () => { const place = drawn; addCards(); const next = grid.children[place]; if (next) next.querySelector("button").focus(); });
  update();
})();
