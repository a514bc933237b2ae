"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));
  const one = (id) => document.getElementById(id);
  // What the page holds: JSON, gzipped, in base64; unpacked when somebody wants it.
  const unpack = async (element) => {
    const packed = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
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

  // The address names the open network, or a place, and the filters behind a "?".
  const address = () => {
    const [place, query] = location.hash.slice(1).split("?");
    return { place, query };
  };
  const packs = new Map(all("script[data-networks]").flatMap((pack) => pack.dataset.networks.split(" ").map((key) => [key, pack])));
  const stage = one("network");
  let cameFrom = null;
  const show = async () => {
    const { place, query } = address();
    if (query === undefined && filters.query()) history.replaceState(null, "", `#${place}?${filters.query()}`);
    hide();
    if (packs.has(place)) {
      const pages = await unpack(packs.get(place));
      if (address().place !== place) return;  // another one was asked for meanwhile
      stage.innerHTML = pages[place];
      digits();
      root.classList.add("one");
      window.scrollTo(0, 0);
      stage.querySelector("h2").focus({ preventScroll: true });
      return;
    }
    stage.replaceChildren();
    root.classList.remove("one");
    if (cameFrom) {
      cameFrom.focus();
      cameFrom = null;
    } else if (place && one(place)) {
      one(place).scrollIntoView();
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
  const form = one("filters");
  const controls = [...all("input, select", form), one("full")].filter(Boolean);
  const value = (control) => (control.type === "checkbox" ? (control.checked ? "1" : "") : control.value);
  const chosen = (id) => (one(id) ? value(one(id)) : "");
  const filters = {
    query: () => new URLSearchParams(controls.filter(value).map((c) => [c.id, value(c)])).toString(),
    read: () => {
      const given = new URLSearchParams(address().query || "");
      for (const control of controls) {
        if (control.type === "checkbox") control.checked = given.has(control.id);
        else control.value = given.get(control.id) || "";
      }
    },
    apply: () => {
      const words = chosen("search").toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = `${row.textContent} ${row.dataset.hash || ""}`.toLowerCase();
        const fits = words.every((word) => text.includes(word))
          && all("select", form).every((list) => !list.value || row.dataset[list.id] === list.value)
          && (!row.hasAttribute("data-null") || chosen("nulls") || chosen("status") === "null");
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      }
      one("count").textContent = `${shown} of ${rows.length} shown`;
    },
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  const changed = () => {
    filters.apply();
    history.replaceState(null, "", `#${address().place}?${filters.query()}`);
  };
  form.addEventListener("input", changed);

  // Three significant digits, or all of them.
  const digits = () => {
    for (const cell of all("td.n, td[data-full]")) {
      const whole = cell.dataset.full || cell.dataset.sort;
      if (!whole) continue;
      if (!cell.hasAttribute("data-short")) cell.dataset.short = cell.textContent;
      cell.textContent = chosen("full") ? whole : cell.dataset.short;
    }
  };
  const full = one("full");
  if (full) {
    full.parentElement.hidden = false;
    full.addEventListener("input", () => { digits(); changed(); });
  }
  filters.read();
  digits();
  filters.apply();

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
      const words = document.createElement("b");
      words.textContent = mark.querySelector("title").textContent;
      tip.replaceChildren(words, mark.closest("[data-run]").dataset.run);
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
  document.addEventListener("pointermove", (event) => {
    const chart = event.target.closest && event.target.closest("svg.drawing");
    let best = null;
    let nearest = REACH;
    for (const mark of chart ? all(".m", chart) : []) {
      const box = mark.getBoundingClientRect();
      const dx = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
      const dy = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
      const distance = Math.hypot(dx, dy);
      if (distance < nearest) [best, nearest] = [mark, distance];
    }
    if (best) tell(best, event.clientX, event.clientY); else hide();
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    const chart = event.target.closest("svg.drawing");
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!chart || !step) return;
    event.preventDefault();
    const list = all(".m", chart);
    if (!list.length) return;
    const at = list.indexOf(active);
    const next = list[(at < 0 ? (step > 0 ? 0 : list.length - 1) : (at + step + list.length) % list.length)];
    tell(next, ...middle(next));
  });

  // A figure as a file: its own colours are those for white paper.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.save");
    if (!button) return;
    const figure = button.closest("figure");
    const copy = figure.querySelector("svg").cloneNode(true);
    const { run } = figure.closest("[data-run]").dataset;
    const [, , width, height] = copy.getAttribute("viewBox").split(" ").map(Number);
    const SVG = "http://www.w3.org/2000/svg";
    const title = document.createElementNS(SVG, "title");
    title.textContent = [figure.querySelector("figcaption span"), figure.querySelector(".convention")].map((e) => e.textContent).concat(run).join(" · ");
    const paper = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ width, height, fill: "#fff" })) paper.setAttribute(name, value);
    copy.prepend(title, paper);
    for (const [name, value] of Object.entries({ width: 2 * width, height: 2 * height })) copy.setAttribute(name, value);
    for (const name of ["tabindex", "class"]) copy.removeAttribute(name);
    save(`${run}-${copy.dataset.key}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy));
  });

  // The numbers of a network, or of a study, as a file.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.download, button.download-study");
    if (!button) return;
    const { networks, studies } = await unpack(one("data"));
    const key = button.dataset.key || address().place;
    const found = [...networks, ...studies].find((entry) => entry.key === key);
    const name = found.report ? `${found.report.method_name || "network"}-${key}` : key;
    save(`${name}.json`, "application/json", JSON.stringify(found, null, 1));
  });

  show();
  window.addEventListener("load", () => { if (root.classList.contains("one")) setTimeout(() => window.scrollTo(0, 0)); });
})();
