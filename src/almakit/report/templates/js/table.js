// Tables sort by a click on a heading; the rows stay inside their block (one body per block).
(function () {
  const value = (row, column) => {
    const cell = row.cells[column], raw = cell.dataset.v;
    if (raw === undefined) return cell.textContent.trim().toLowerCase();
    return raw === "" ? NaN : Number(raw);
  };

  function compare(a, b) {
    if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), undefined, { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a < b ? -1 : a > b ? 1 : 0;
  }

  ak.sortable = function (table) {
    const heads = [...table.tHead.querySelectorAll("th[data-sort]")];
    for (const head of heads) {
      const button = ak.el("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const turned = head.getAttribute("aria-sort") === (head.dataset.sort === "down" ? "descending" : "ascending");
        const up = (head.dataset.sort === "up") !== turned, column = head.cellIndex;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        for (const body of table.tBodies) {
          const rows = [...body.rows].filter((row) => !row.matches(".block, .together")), together = [...body.querySelectorAll(".together")];
          // Cells without a value stay last in both directions.
          rows.sort((a, b) => {
            const x = value(a, column), y = value(b, column), gaps = Number.isNaN(x) || Number.isNaN(y);
            return gaps || up ? compare(x, y) : compare(y, x);
          });
          body.append(...rows, ...together);
        }
      });
    }
  };
  document.querySelectorAll("table.sortable").forEach(ak.sortable);
})();
