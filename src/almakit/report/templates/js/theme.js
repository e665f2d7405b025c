// Light or dark: the system's choice until the reader's; paper is always light.
(function () {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

  function show() {
    button.setAttribute("aria-pressed", String(dark()));
    ak.redrawCharts();
  }
  try { if (localStorage.getItem("almakit:theme")) root.dataset.theme = localStorage.getItem("almakit:theme"); } catch { /* storage is off */ }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("almakit:theme", root.dataset.theme); } catch { /* storage is off */ }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);

  let chosen;
  addEventListener("beforeprint", () => { chosen = root.dataset.theme; root.dataset.theme = "light"; show(); });
  addEventListener("afterprint", () => { if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme; show(); });
  show();
})();
