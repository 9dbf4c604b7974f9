"use strict";
// The table and the gallery: sorted and filtered here, from the JSON in the page. Nothing is fetched.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const state = { sort: data.sort, up: true, rows: 50, items: 24 };
  const filters = ["search", "status", "norm", "series", "method", "label"].filter((k) => $("f-" + k));

  const element = (tag, attributes, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  const show = (v) => (v === null ? "∞" : String(Number(v.toPrecision(6))));

  const wanted = () => {
    const want = Object.fromEntries(filters.map((k) => [k, $("f-" + k).value]));
    const words = (want.search || "").toLowerCase().split(/\s+/).filter(Boolean);
    return (r) =>
      ["status", "norm", "series", "method", "label"].every((k) => !want[k] || String(r[k]) === want[k]) &&
      words.every((w) => r.text.includes(w));
  };
  const compare = (a, b) => {
    let x = a[state.sort], y = b[state.sort];
    if (x === y) return a.job - b.job;
    if (state.sort === "upper" || state.sort === "lower") { x = x === null ? Infinity : x; y = y === null ? Infinity : y; }
    const order = x === null ? 1 : y === null ? -1 : x < y ? -1 : 1;
    return state.up ? order : -order;
  };

  const cell = (r, column) => {
    const v = r[column.key];
    if (column.key === "status") return element("td", { class: "left" }, element("span", { class: "status " + v }, v));
    if (column.key === "certificate") return element("td", { class: "left" }, v ? element("a", { href: v }, "certificate") : "");
    if (column.key === "note") return element("td", { class: "note" }, v);
    if (column.kind === "number") return element("td", {}, show(v));
    return element("td", { class: "left" }, v === null ? "–" : String(v));
  };
  const changes = (r) => element("table", { class: "changes" }, ...r.changes.map(([name, before, after]) =>
    element("tr", {}, element("td", { class: "left" }, name), element("td", {}, `${show(before)} → ${show(after)}`))));
  const card = (r) => {
    const pictures = r.changes ? [changes(r)] : r.pictures.map((src, i) =>
      element("figure", {}, element("img", { src, alt: `${["input", "adversarial", "difference"][i]} of input ${r.name}`, loading: "lazy" }),
        ["input", "adversarial", "difference"][i]));
    const what = element("p", { class: "what" }, `#${r.name}: ${r.label} → ${r.target}, ${r.norm} `, element("b", {}, show(r.upper)),
      r.status === "exact" ? "" : ` (${r.status})`);
    if (data.series > 1) what.append(element("span", { class: "soft" }, " " + r.series));
    if (r.certificate) what.append(" ", element("a", { href: r.certificate }, "certificate"));
    return element("article", { class: "item" }, element("div", { class: "row" }, ...pictures), what);
  };

  const draw = () => {
    const keep = wanted();
    const rows = data.rows.filter(keep).sort(compare);
    $("rows").replaceChildren(...rows.slice(0, state.rows).map((r) => element("tr", {}, ...data.columns.map((c) => cell(r, c)))));
    $("more-rows").hidden = rows.length <= state.rows;
    $("count").value = `${rows.length} of ${data.rows.length} results`;
    for (const th of document.querySelectorAll("#results th")) {
      const on = th.dataset.key === state.sort;
      on ? th.setAttribute("aria-sort", state.up ? "ascending" : "descending") : th.removeAttribute("aria-sort");
    }
    const items = data.rows.filter((r) => (r.pictures || r.changes) && keep(r))
      .sort((a, b) => data.norms.indexOf(a.norm) - data.norms.indexOf(b.norm) || (a.upper ?? Infinity) - (b.upper ?? Infinity) || a.job - b.job);
    $("gallery").replaceChildren(...items.slice(0, state.items).map(card));
    $("more-items").hidden = items.length <= state.items;
    $("no-items").hidden = items.length > 0;
  };

  for (const th of document.querySelectorAll("#results th"))
    th.querySelector("button").addEventListener("click", () => {
      state.up = state.sort === th.dataset.key ? !state.up : true;
      state.sort = th.dataset.key;
      draw();
    });
  for (const k of filters) $("f-" + k).addEventListener("input", () => { state.rows = 50; state.items = 24; draw(); });
  $("more-rows").addEventListener("click", () => { state.rows += 200; draw(); });
  $("more-items").addEventListener("click", () => { state.items += 48; draw(); });

  // Robustness curves: read the shares off at the pointer.
  for (const figure of document.querySelectorAll("figure[data-curves]")) {
    const { last, left, right, width, curves } = JSON.parse(figure.dataset.curves);
    const svg = figure.querySelector("svg"), readout = figure.querySelector(".readout");
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor"); cursor.setAttribute("y1", 12); cursor.setAttribute("y2", 294); cursor.setAttribute("visibility", "hidden");
    svg.append(cursor);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), px = ((event.clientX - box.left) / box.width) * width;
      const r = Math.min(Math.max((px - left) / (right - left), 0), 1) * last;
      const at = left + (r / last) * (right - left);
      cursor.setAttribute("x1", at); cursor.setAttribute("x2", at); cursor.setAttribute("visibility", "visible");
      readout.textContent = `radius ${Number(r.toPrecision(3))}: ` + curves.map((c) => {
        let i = c.radii.length - 1;
        while (i > 0 && c.radii[i] > r) i--;
        const low = (100 * c.proved[i]).toFixed(0), high = (100 * c.possible[i]).toFixed(0);
        return `${curves.length > 1 ? c.name + " " : ""}${low === high ? low : low + "–" + high} % robust`;
      }).join("; ");
    });
  }
  draw();
})();
