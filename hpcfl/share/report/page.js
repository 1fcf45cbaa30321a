"use strict";
for (const box of document.querySelectorAll("#toggles input")) {
  box.addEventListener("change", () => {
    for (const part of document.querySelectorAll("svg ." + CSS.escape(box.value))) {
      part.classList.toggle("off", !box.checked);
    }
  });
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const isNumber = "value" in table.tBodies[0].rows[0].cells[column].dataset;
    const unknown = (x) => isNumber && Number.isNaN(Number(x));
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (unknown(x) || unknown(y)) return unknown(x) - unknown(y);
      return sign * (isNumber ? Number(x) - Number(y) : x.localeCompare(y));
    });
    table.tBodies[0].append(...rows);
  }));
}
