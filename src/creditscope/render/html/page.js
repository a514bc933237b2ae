"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));
  const one = (id) => document.getElementById(id);
  // The numbers of the page: JSON, gzipped, in base64; unpacked when somebody wants them.
  const numbers = async () => {
    const packed = Uint8Array.from(atob(one("data").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  root.classList.add("js");

  // Save text as a file.
  const save = (name, type, content) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name.replace(/[^\w.-]+/g, "-").slice(0, 120);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // Light and dark.
  const theme = one("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const named = () => { theme.textContent = dark() ? "Light colours" : "Dark colours"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; named(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", named);
  named();

  // One network at a time, named by the address.
  let cameFrom = null;
  const show = () => {
    const wanted = location.hash.slice(1);
    let found = null;
    for (const section of all(".network")) {
      const open = section.id === wanted;
      section.classList.toggle("open", open);
      if (open) found = section;
    }
    root.classList.toggle("one", found !== null);
    hide();
    if (found) {
      window.scrollTo(0, 0);
      found.querySelector("h2").focus({ preventScroll: true });
    } else if (cameFrom) {
      cameFrom.focus();
      cameFrom = null;
    } else if (wanted && one(wanted)) {
      one(wanted).scrollIntoView();
    }
  };
  window.addEventListener("hashchange", show);

  // The table of networks: open, sort, filter.
  const table = one("networks");
  const rows = all("tbody tr", table);
  table.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    if (!row) return;
    cameFrom = row.querySelector("a");
    if (!event.target.closest("a")) location.hash = cameFrom.getAttribute("href");
  });
  const sortKey = (row, column) => {
    const cell = row.cells[column];
    const text = cell.hasAttribute("data-sort") ? cell.dataset.sort : cell.textContent;
    if (text.trim() === "") return null;
    const number = Number({ inf: "Infinity", "-inf": "-Infinity" }[text] || text);
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  all("thead th", table).forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row) => [sortKey(row, column), row]);
      keyed.sort(([a], [b]) => {  // what was not measured stays at the end
        if (a === null || b === null) return (a === null) - (b === null);
        return down ? compare(b, a) : compare(a, b);
      });
      table.tBodies[0].append(...keyed.map(([, row]) => row));
    });
  });
  const filters = one("filters");
  const nulls = one("nulls");
  const filter = () => {
    const words = one("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = `${row.textContent} ${row.dataset.hash}`.toLowerCase();
      const fits = words.every((word) => text.includes(word))
        && (!one("method").value || row.dataset.method === one("method").value)
        && (!one("status").value || row.dataset.status === one("status").value)
        && (!row.hasAttribute("data-null") || nulls.checked || one("status").value === "null");
      row.hidden = !fits;
      shown += fits;
    }
    one("count").textContent = `${shown} of ${rows.length} shown`;
  };
  filters.hidden = false;
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("input", filter);
  filters.reset();
  filter();

  // Values of marks: by pointer, or by arrow keys on a focused figure.
  const tip = one("tip");
  let active = null;
  const hide = () => {
    tip.hidden = true;
    if (active) active.classList.remove("active");
    active = null;
  };
  const tell = (mark, x, y) => {
    if (active !== mark) {
      hide();
      active = mark;
      mark.classList.add("active");
      const chart = mark.closest("svg").dataset;
      const { run } = mark.closest("[data-run]").dataset;
      const value = document.createElement("b");
      const series = mark.closest(".series");
      value.textContent = `${series.dataset.name} = ${mark.dataset.v}`;
      const where = [chart.xName, mark.dataset.x].filter(Boolean).join(" ");
      tip.replaceChildren(value, [where, run, chart.convention].filter(Boolean).join(" · "));
      tip.hidden = false;
    }
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? Math.max(0, y - tip.offsetHeight - 10) : y + 18}px`;
  };
  const middle = (mark) => {
    const box = mark.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  const REACH = 22;
  for (const chart of all("svg.chart")) {
    const marks = () => all(".m", chart);
    chart.addEventListener("pointermove", (event) => {
      let best = null;
      let nearest = REACH;
      for (const mark of marks()) {
        const [x, y] = middle(mark);
        const distance = Math.hypot(x - event.clientX, y - event.clientY);
        if (distance < nearest) [best, nearest] = [mark, distance];
      }
      if (best) tell(best, event.clientX, event.clientY); else hide();
    });
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const list = marks();
      if (!list.length) return;
      const at = list.indexOf(active);
      const next = list[(at < 0 ? (step > 0 ? 0 : list.length - 1) : (at + step + list.length) % list.length)];
      tell(next, ...middle(next));
    });
  }

  // A figure as a file: with its colours, as they are now.
  const COPIED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "paint-order"];
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.save");
    if (!button) return;
    const figure = button.closest("figure");
    const chart = figure.querySelector("svg");
    const { run } = chart.closest("[data-run]").dataset;
    const copy = chart.cloneNode(true);
    const from = [chart, ...all("*", chart)];
    [copy, ...all("*", copy)].forEach((element, k) => {
      const style = getComputedStyle(from[k]);
      for (const name of COPIED) element.setAttribute(name, style.getPropertyValue(name));
      element.removeAttribute("tabindex");
    });
    const [, , width, height] = chart.getAttribute("viewBox").split(" ").map(Number);
    const SVG = "http://www.w3.org/2000/svg";
    const paper = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ width, height, fill: getComputedStyle(document.body).backgroundColor })) paper.setAttribute(name, value);
    const title = document.createElementNS(SVG, "title");
    title.textContent = `${figure.querySelector("figcaption span").textContent} · ${run} · ${chart.dataset.convention}`;
    copy.prepend(title, paper);
    for (const [name, value] of Object.entries({ width: 2 * width, height: 2 * height, "font-family": "sans-serif" })) copy.setAttribute(name, value);
    save(`${run}-${chart.dataset.key}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy));
  });

  // The numbers of a network as a file.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.download");
    if (!button) return;
    const network = (await numbers()).networks.find((entry) => entry.key === button.dataset.key);
    save(`${network.report.method_name || "network"}-${network.key}.json`, "application/json", JSON.stringify(network, null, 1));
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.download-study");
    if (!button) return;
    const study = (await numbers()).studies.find((entry) => entry.key === button.dataset.key);
    save(`${study.key}.json`, "application/json", JSON.stringify(study, null, 1));
  });

  show();
  window.addEventListener("load", () => { if (root.classList.contains("one")) setTimeout(() => window.scrollTo(0, 0)); });
})();
