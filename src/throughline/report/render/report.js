// The page is complete without this. With it, tables sort by a click on a heading, and one field filters their rows.
"use strict";
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value !== undefined ? cell.dataset.value : cell.textContent.trim();
  };

  // Numbers by size, text by alphabet; what has no value stays last in both directions.
  const compare = (a, b, down) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const difference = isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return down ? -difference : difference;
  };

  const sortable = (table) => {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      if (heading.classList.contains("plain")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.title = "sort";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort((a, b) => compare(value(a, column), value(b, column), down)));
      });
    });
  };

  const filter = (tables) => {
    const box = document.createElement("label");
    box.className = "filter";
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "torch 1n8g, OOM, ...";
    const count = document.createElement("output");
    box.append("Show rows with ", field, count);
    document.querySelector("nav").append(box);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0, all = 0;
      for (const table of tables) {
        const place = table.closest("[aria-label]").getAttribute("aria-label");
        let here = 0;
        for (const row of table.tBodies[0].rows) {
          const text = `${place} ${row.textContent}`.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
          all += 1;
          here += !row.hidden;
        }
        shown += here;
        const fold = table.closest("details.fold");
        if (fold && words.length) fold.open = here > 0;
      }
      count.textContent = words.length ? `${shown} of ${all} rows` : "";
    });
  };

  const tables = [...document.querySelectorAll("table.results")];
  tables.forEach(sortable);
  if (tables.length) filter(tables);

  // A link in the contents opens the fold that it leads to.
  const reveal = () => {
    const fold = document.getElementById(location.hash.slice(1));
    if (fold?.tagName === "DETAILS") fold.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
  document.documentElement.dataset.enhanced = "yes";
})();
