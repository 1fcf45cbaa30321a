"use strict";
const off = new Set();
const boxes = [...document.querySelectorAll("#toggles input")];
function toggle(box) {
  off[box.checked ? "delete" : "add"](box.value);
  for (const part of document.querySelectorAll("svg ." + CSS.escape(box.value))) {
    part.classList.toggle("off", !box.checked);
  }
}
boxes.forEach((box) => box.addEventListener("change", () => toggle(box)));
for (const button of document.querySelectorAll("#toggles button")) {
  button.addEventListener("click", () => boxes.forEach((box) => {
    box.checked = button.value === "all";
    toggle(box);
  }));
}

// Groups of a figure's values: points [x, y, text] and bars [x0, y0, x1, y1, text], or the cells of a heatmap.
function readGroup(group) {
  if (!group.cells) {
    const items = group.at.map((item) => ({
      box: item.length === 3 ? [item[0], item[1], item[0], item[1]] : item.slice(0, 4),
      text: [group.name, item.at(-1)].filter(Boolean).join(", "),
    }));
    return { series: group.series, length: items.length, columns: 1, item: (n) => items[n] };
  }
  const bytes = Uint8Array.from(atob(group.cells), (letter) => letter.charCodeAt(0));
  const numbers = new DataView(bytes.buffer);
  const [rows, columns] = group.shape, [x0, y0, x1, y1] = group.box;
  const [width, height] = [(x1 - x0) / columns, (y1 - y0) / rows];
  const item = (n) => {
    const column = n % columns, row = Math.floor(n / columns), number = numbers.getInt16(2 * n, true);
    const value = number === -32768 ? "none" : String(Number((number * group.step).toPrecision(4)));
    const [x, y] = [x0 + column * width, y0 + row * height];
    const where = `${group.axes[0]} ${column}, ${group.axes[1]} ${row}`;
    return { box: [x, y, x + width, y + height], text: `${[group.name, where].filter(Boolean).join(", ")}: ${value}` };
  };
  const at = (x, y) => {
    const [column, row] = [Math.floor((x - x0) / width), Math.floor((y - y0) / height)];
    return column >= 0 && column < columns && row >= 0 && row < rows ? row * columns + column : -1;
  };
  return { series: group.series, length: rows * columns, columns, item, at };
}
for (const plot of document.querySelectorAll(".plot")) {
  const svg = plot.querySelector("svg");
  let groups = null, cursor = null, tip = null, ring = null;
  const shown = () => {
    groups ??= JSON.parse(plot.querySelector("script").textContent).map(readGroup).filter((each) => each.length);
    return groups.filter((group) => !off.has(group.series));
  };
  const hide = () => {
    if (tip) tip.hidden = ring.hidden = true;
  };
  const show = ({ box: [x0, y0, x1, y1], text }) => {
    if (!tip) {
      [tip, ring] = ["tip", "ring"].map((name) => {
        const part = document.createElement("div");
        part.className = name;
        return plot.appendChild(part);
      });
      tip.setAttribute("role", "status");
    }
    const matrix = svg.getScreenCTM(), frame = plot.getBoundingClientRect();
    const point = new DOMPoint((x0 + x1) / 2, (y0 + y1) / 2).matrixTransform(matrix);
    const [x, y] = [point.x - frame.left, point.y - frame.top];
    tip.hidden = ring.hidden = false;
    tip.textContent = text;
    ring.style.left = `${x}px`;
    ring.style.top = `${y}px`;
    tip.style.left = `${Math.max(0, Math.min(x + 12, frame.width - tip.offsetWidth))}px`;
    tip.style.top = `${y > tip.offsetHeight + 12 ? y - tip.offsetHeight - 12 : y + 12}px`;
  };
  const nearest = (event) => {
    const matrix = svg.getScreenCTM();
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    let found = null, least = (16 / matrix.a) ** 2;
    for (const group of shown()) {
      if (group.at) {
        const n = group.at(x, y);
        if (n >= 0) [found, least] = [group.item(n), 0];
        continue;
      }
      for (let n = 0; n < group.length; n++) {
        const [x0, y0, x1, y1] = group.item(n).box;
        const distance = Math.max(x0 - x, 0, x - x1) ** 2 + Math.max(y0 - y, 0, y - y1) ** 2;
        if (distance < least) [found, least] = [group.item(n), distance];
      }
    }
    return found;
  };
  const point = (event) => {
    const found = nearest(event);
    if (found) show(found);
    else hide();
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const all = shown();
    if (event.key === "Escape") hide();
    if (!["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"].includes(event.key) || !all.length) return;
    event.preventDefault();
    const sign = ["ArrowRight", "ArrowDown"].includes(event.key) ? 1 : -1;
    const isAcross = ["ArrowRight", "ArrowLeft"].includes(event.key);
    let [index, n] = [cursor ? all.indexOf(cursor.group) : -1, cursor ? cursor.n : 0];
    if (index < 0) [index, n] = [0, 0];
    else if (isAcross || all[index].at) n += sign * (isAcross ? 1 : all[index].columns);
    else n = -1;
    if (n < 0 || n >= all[index].length) {
      index = (index + sign + all.length) % all.length;
      n = isAcross && sign < 0 ? all[index].length - 1 : 0;
    }
    cursor = { group: all[index], n };
    show(all[index].item(n));
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
