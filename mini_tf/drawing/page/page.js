"use strict";
// The page: what is open (`state`), and what shows it.

const NOTHING = { rows: [], row: -1, column: -1 };
const state = { scene: 0, beside: -1, name: "", ...NOTHING, view: "map", sort: "layer", own: "", sought: "" };

const { scenes, row: ROW, column: COLUMN } = contents;
const byId = (id) => document.getElementById(id);
const figuresNow = () => [...document.querySelectorAll("#open figure")];
const sceneName = (scene) => Object.values(scene.at).join(", ");
const mapIn = (scene) => scene.maps.find((map) => map.name === state.name);
const openScenes = () => [state.scene, state.beside].filter((n) => n >= 0).map((n) => scenes[n]);
const chosenIn = (map) => (state.rows.length ? state.rows : [state.row]).filter((i) => i >= 0 && i < map.rows.length);
const titleOf = (map) => map.title || contents.title;
const plural = (text) => `${text.replace(/([^aeiou])y$/, "$1ie")}s`;
const plain = (text) => text.replaceAll("·", " ").toLowerCase().trim();
const token = (labels, i) => `${labels[i].slice(0, 60)} (${i})`;

function found(map) {
  const fits = (text) => state.sought && plain(text).includes(state.sought);
  return new Set([...map.rows, ...map.columns].filter(fits));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return contents.opens; // a % that encodes nothing
  }
}

// The address has the place: #L2H5/q3+7/s1/b0/lines
function readAddress() {
  const [name, ...parts] = decoded(location.hash.slice(1) || contents.opens).split("/");
  const after = (letter) => parts.find((one) => RegExp(`^${letter}\\d[\\d+]*$`).test(one))?.slice(1).split("+") || [];
  const [scene = 0, beside = -1] = [after("s")[0], after("b")[0]].map((n) => n && Math.min(n, scenes.length - 1));
  const rows = after("q").map(Number), view = parts.includes("lines") ? "lines" : "map";
  Object.assign(state, { scene, beside, name, rows, row: rows[0] ?? state.row, view });
}

function writeAddress() {
  const part = (letter, list) => (list.length ? [letter + list.join("+")] : []);
  const places = [...part("s", state.scene ? [state.scene] : []), ...part("b", state.beside < 0 ? [] : [state.beside])];
  const parts = [state.name, ...part("q", state.rows), ...places, ...(state.view === "lines" ? ["lines"] : [])];
  history.replaceState(null, "", `#${parts.map(encodeURIComponent).join("/")}`);
}

function show(change = {}) {
  Object.assign(state, change);
  const { maps } = scenes[state.scene];
  if (maps.length && !mapIn(scenes[state.scene])) state.name = maps[0].name;
  writeAddress();
  showControls();
  showGrid(maps);
  showOpen();
  showTables();
}

function showControls() {
  const { at } = scenes[state.scene];
  const parts = Object.keys(at).flatMap((key) => {
    const values = [...new Set(scenes.map((scene) => scene.at[key]))];
    const choose = (text) => {
      const wanted = Object.entries({ ...at, [key]: text });
      const same = scenes.findIndex((scene) => wanted.every(([name, one]) => scene.at[name] === one));
      show({ scene: same >= 0 ? same : scenes.findIndex((scene) => scene.at[key] === text) });
    };
    if (values.length < 2) return [];
    if (key === contents.slider) return [slider(key, values, at[key], choose)];
    return [choice(key, values.map((one) => [one, one]), at[key], choose)];
  });
  const others = [[-1, "nothing"], ...scenes.map((scene, n) => [n, sceneName(scene)])];
  if (scenes.length > 1) parts.push(choice("beside it", others, state.beside, (n) => show({ beside: +n })));
  byId("controls").replaceChildren(...parts);
}

const GROUPS = {
  layer: (map) => `${map.kind} layer ${map.layer}`,
  role: (map) => map.role || "no role",
  entropy: () => "by entropy on this text, the lowest first",
};

function showGrid(maps) {
  byId("grid").hidden = maps.length < 2;
  const heads = maps.some((map) => map.layer !== null);
  const order = state.sort === "entropy" ? [...maps].sort((a, b) => (a.entropy ?? 9) - (b.entropy ?? 9)) : maps;
  const groups = new Map();
  for (const map of order) {
    const name = heads ? GROUPS[state.sort](map) : "";
    groups.set(name, [...(groups.get(name) || []), map]);
  }
  const names = [...groups.keys()];
  if (state.sort === "role") names.sort((a, b) => (a === "no role") - (b === "no role") || a.localeCompare(b));
  const sorts = Object.keys(GROUPS).map((name) => [name, name]);
  const sort = heads ? [choice("sort by", sorts, state.sort, (sort) => show({ sort }))] : [];
  const scales = [["", "one scale for all"], ["own", "each map its own"]];
  const colors = choice("colors", scales, state.own, (own) => show({ own }));
  const rows = names.map((name) =>
    make("div", { className: "heads" }, make("h3", {}, name), ...groups.get(name).map(thumbnail)));
  const all = make("div", { aria: { role: "group", label: "all maps; arrow keys move, Enter opens" } }, ...rows);
  if (maps.length) roving(all);
  const title = make("h2", {}, `All ${maps.length} ${heads ? "heads" : "maps"}`);
  byId("grid").replaceChildren(title, make("p", { className: "controls" }, ...sort, colors), all);
}

function thumbnail(map) {
  const canvas = make("canvas", { className: Math.max(map.rows.length, map.columns.length) < 40 ? "sharp" : "" });
  drawThumbnail(canvas, map, scaleOf(map, state.own));
  const note = [map.role, shown(map.entropy)].filter(Boolean).join(" ");
  const name = map.layer === null ? titleOf(map) : `L${map.layer} H${map.head}`;
  const node = button("", () => {
    show({ name: map.name, column: -1 });
    document.querySelector("#grid [aria-current=true]").focus();
  });
  node.setAttribute("aria-current", String(map.name === state.name));
  node.setAttribute("aria-label", `${name}, ${titleOf(map)} ${note}`);
  node.append(canvas, make("span", {}, name), make("small", {}, note || " "));
  return Object.assign(node, { className: "head", title: map.summary });
}

function showOpen() {
  const open = openScenes().filter(mapIn);
  byId("open").hidden = !open.length;
  if (!open.length) return;
  const map = mapIn(open[0]);
  const views = ["map", "lines"].map((view) => button(view, () => show({ view }), state.view === view));
  const search = make("input", { type: "search", value: state.sought, placeholder: "find a token" });
  search.setAttribute("aria-label", `find a ${ROW} or ${COLUMN}; Enter goes to the next`);
  search.addEventListener("input", () => update({ sought: plain(search.value) }));
  search.addEventListener("keydown", (event) => event.key === "Enter" && findNext(map));
  const files = ["png", "svg"].map((kind) => button(kind.toUpperCase(), () => save(kind)));
  const details = make("details", {}, make("summary", {}, "Numbers as tables"), make("div"));
  details.addEventListener("toggle", () => update());
  byId("open").replaceChildren(
    make("h2", {}, titleOf(map)), make("p", {}, map.summary),
    make("p", { className: "controls" }, ...views, search, button("clear", () => show(NOTHING)), ...files, legend(map)),
    make("p", { id: "said", aria: { role: "status", live: "polite" } }),
    make("div", { className: "figures" }, ...open.map((scene) => figure(scene, open.length))), details);
  update();
  figuresNow().forEach(reveal);
}

function legend(map) {
  const { low, high, label, diverging } = scaleOf(map, state.own);
  const bar = make("span", { className: "bar" });
  bar.style.background = `linear-gradient(to right, ${ramp(diverging).filter((_, i) => i % 17 === 0).map(css)})`;
  return make("span", {}, `${label} ${+low.toPrecision(3)} `, bar, ` ${+high.toPrecision(3)} ${map.meaning || ""}`);
}

// The map of a scene, scrolled below labels that stay, or its lines; and the text of its tokens.
function figure(scene, count) {
  const map = mapIn(scene);
  const parts = ["corner", "columns", "rows", "cells"].map((className) => make("canvas", { className }));
  const label = `${titleOf(map)}: arrow keys choose a cell, Enter adds its ${ROW}, Escape clears`;
  const aria = { role: "application", label };
  const scroll = make("div", { className: `scroll ${state.view}`, tabIndex: 0, aria }, ...parts);
  const strips = map.rows === map.columns ? [strip("text", map, true, true)]
    : [strip(plural(ROW), map, true, false), strip(plural(COLUMN), map, false, true)];
  const title = count > 1 ? [make("h3", {}, sceneName(scene))] : [];
  const node = make("figure", {}, ...title, scroll, ...strips, make("canvas", { className: "print" }));
  const room = document.querySelector("main").clientWidth / count - 30;
  Object.assign(node, { map, scene, parts, scroll, room });
  scroll.addEventListener("keydown", (event) => moveCursor(event, node));
  scroll.addEventListener("pointermove", (event) => point(event, node, false));
  scroll.addEventListener("click", (event) => point(event, node, true));
  return node;
}

function strip(name, map, asRow, asColumn) {
  const at = (i) => (asRow ? { row: i } : { column: i });
  const tokens = (asRow ? map.rows : map.columns).map((text, i) => {
    const one = button(fit(text, 200), () => (asRow ? toggle(i) : update(at(i))));
    one.addEventListener("pointerenter", () => update(at(i)));
    return Object.assign(one, { className: "token" });
  });
  const aria = { role: "group", label: `${name}; arrow keys move, Enter adds` };
  const box = make("div", { className: "strip", aria }, ...tokens);
  roving(box, (one) => update(at(tokens.indexOf(one))));
  return Object.assign(make("div", { className: "text" }, make("h3", {}, name), box), { asRow, asColumn, tokens });
}

function toggle(row) {
  const rows = state.rows.includes(row) ? state.rows.filter((i) => i !== row) : [...state.rows, row];
  update({ rows: rows.sort((a, b) => a - b), row });
  writeAddress();
}

function moveCursor(event, node) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (event.key in steps) {
    const [down, right] = steps[event.key];
    const [row, column] = [state.row + down, state.column + right];
    update({ row: within(row, node.map.rows.length), column: within(column, node.map.columns.length) });
    reveal(node);
  } else if (["Enter", " "].includes(event.key) && state.row >= 0) toggle(state.row);
  else if (event.key === "Escape") update(NOTHING);
  else return;
  event.preventDefault();
}

function reveal({ look: { layout }, scroll }) {
  const { cell, wide } = state.view === "lines" ? { cell: LINES.row, wide: 0 } : layout;
  const { clientWidth, clientHeight } = scroll;
  scroll.scrollTo({ left: state.column * wide - clientWidth / 3, top: state.row * cell - clientHeight / 3 });
}

function point(event, { map, look: { layout }, parts }, pressed) {
  const box = parts[3].getBoundingClientRect();
  const lines = state.view === "lines";
  const row = Math.floor((event.clientY - box.top) / (lines ? LINES.row : layout.cell));
  const right = lines && event.clientX - box.left > box.width / 2;
  const column = right ? row : lines ? -1 : Math.floor((event.clientX - box.left) / layout.wide);
  if (row < 0 || row >= (right ? map.columns : map.rows).length || column >= map.columns.length) return;
  if (pressed && !right) toggle(row);
  else if (column !== state.column || (!right && row !== state.row)) update(right ? { column } : { row, column });
}

function findNext(map) {
  const all = found(map);
  const next = (labels, after) => {
    const order = labels.map((_, i) => (i + after + 1) % labels.length);
    return order.find((i) => all.has(labels[i])) ?? -1;
  };
  const row = next(map.rows, state.row);
  update(row >= 0 ? { row, rows: [] } : { column: next(map.columns, state.column) });
  figuresNow().forEach(reveal);
}

// Draws again what depends on the chosen rows, the cursor and the search.
function update(change = {}) {
  Object.assign(state, change);
  const figures = figuresNow();
  figures.forEach(drawFigure);
  if (figures.length) byId("said").textContent = figures.map(({ map }) => sentence(map)).join(" | ");
  const details = document.querySelector("#open details[open]");
  if (details) details.lastChild.replaceChildren(...numbers(figures.map(({ map }) => map)).map(tableOf));
}

function drawFigure(node) {
  const { map, room, parts: [corner, columns, rows, cells] } = node;
  const scale = scaleOf(map, state.own);
  const look = { layout: layoutOf(map, room), scale, rows: chosenIn(map), column: state.column, found: found(map) };
  const { left, top, cell, wide, width, height } = look.layout;
  node.look = look;
  for (const canvas of [corner, columns, rows]) canvas.hidden = state.view === "lines";
  if (state.view === "lines") drawLines(new CanvasPen(cells, linesSize(map).width, linesSize(map).height), map, look);
  else {
    new CanvasPen(corner, left, top);
    drawLabels(new CanvasPen(columns, width, top), map.columns, wide, top, "above", [look.column], look.found);
    drawLabels(new CanvasPen(rows, left, height), map.rows, cell, left, "left", look.rows, look.found);
    drawCells(new CanvasPen(cells, width, height), map, look);
  }
  const sums = sumOfRows(map, look.rows), colors = ramp(scale.diverging);
  const high = look.rows.length > 1 ? Math.max(scale.high, ...sums.filter((x) => x > 0)) : scale.high;
  for (const { asRow, asColumn, tokens } of node.querySelectorAll(".text")) tokens.forEach((one, i) => {
    const x = asColumn ? sums[i] : NaN;
    const color = Number.isNaN(x) ? null : colors[indexOfColor(x, { ...scale, high })];
    Object.assign(one.style, color ? { background: css(color), color: inkOn(color) } : { background: "", color: "" });
    const labels = asRow ? map.rows : map.columns;
    one.title = `${token(labels, i)} ${shown(x, 3)}`;
    one.classList.toggle("found", look.found.has(labels[i]));
    if (asRow) one.setAttribute("aria-pressed", String(look.rows.includes(i)));
  });
}

function sentence(map) {
  const rows = chosenIn(map);
  if (!rows.length) return `Choose a ${ROW}: point at it, or use the arrow keys in the map or the text.`;
  const sums = sumOfRows(map, rows);
  const names = rows.slice(0, 6).map((i) => token(map.rows, i)).join(" + ") + (rows.length > 6 ? " …" : "");
  const best = largest(sums, 3).map((j) => `${token(map.columns, j)} ${shown(sums[j])}`).join(", ");
  const { row, column } = state;
  if (row < 0 || column < 0 || row >= map.rows.length || column >= map.columns.length) return `${names}: ${best}`;
  const x = shown(value(map, row, column), 4) || "not visible";
  return `${names}: ${best}. ${token(map.rows, row)}, ${token(map.columns, column)}: ${x}`;
}

function numbers(maps) {
  const tables = maps.flatMap((map) => {
    const chosen = chosenIn(map), sums = sumOfRows(map, chosen);
    const best = (i) => largest(map.columns.map((_, j) => value(map, i, j)), 3);
    const cell = (i, j) => `${token(map.columns, j)} ${shown(value(map, i, j), 4)}`;
    const rows = map.rows.map((text, i) => [String(i), text, ...best(i).map((j) => cell(i, j))]);
    const all = { title: `${titleOf(map)}: the three largest of each ${ROW}`, headers: ["", ROW, "1", "2", "3"], rows };
    const weights = map.columns.map((text, j) => [String(j), text, shown(sums[j], 4)]);
    const title = `${titleOf(map)}: ${chosen.map((i) => token(map.rows, i)).join(" + ")}`;
    return [...(chosen.length ? [{ title, headers: ["", COLUMN, contents.scale.label], rows: weights }] : []), all];
  });
  const heads = scenes[state.scene].maps.filter((map) => map.layer !== null);
  const rows = heads.map((map) => [titleOf(map), map.role, shown(map.entropy, 3), map.summary]);
  const all = { title: "all heads", headers: ["head", "role", "entropy", "summary"], rows };
  return heads.length ? [...tables, all] : tables;
}

function showTables() {
  const curves = contents.curves.map((curve) => {
    const label = `${curve.title}: ${curve.lines.map((one) => one.name).join(", ")}`;
    const canvas = make("canvas", { aria: { role: "img", label } });
    const [width, height] = [Math.min(600, document.body.clientWidth - 40), 250 + 16 * curve.lines.length];
    const mark = Number(scenes[state.scene].at[contents.slider]);
    drawCurves(new CanvasPen(canvas, width, height), curve, width, height, mark);
    return make("figure", {}, make("h3", {}, curve.title), canvas);
  });
  const open = openScenes().map((scene) => {
    const title = state.beside >= 0 && scene.tables.length ? [make("h3", {}, sceneName(scene))] : [];
    return make("div", {}, ...title, make("div", { className: "figures" }, ...scene.tables.map(tableOf)));
  });
  const [drawn, opened] = [curves, open].map((nodes) => make("div", { className: "figures" }, ...nodes));
  byId("tables").replaceChildren(drawn, ...contents.tables.map(tableOf), opened);
}

// The open maps, or lines, side by side in one picture.
function drawAll(penOf) {
  const figures = figuresNow(), lines = state.view === "lines", head = 24;
  const sizes = figures.map(({ map, look: { layout } }) =>
    lines ? linesSize(map) : { width: layout.left + layout.width, height: layout.top + layout.height });
  const width = sizes.reduce((sum, size) => sum + size.width + 20, 0);
  const pen = penOf(width, head + 8 + Math.max(...sizes.map((size) => size.height)));
  figures.forEach(({ map, scene, look }, n) => {
    const title = figures.length > 1 ? `${titleOf(map)}, ${sceneName(scene)}` : titleOf(map);
    pen.text(4, head / 2, fit(title, sizes[n].width), { bold: true });
    pen.move(0, head);
    (lines ? drawLines : drawMap)(pen, map, look);
    pen.move(sizes[n].width + 20, -head);
  });
  return pen;
}

function save(kind) {
  const store = (blob) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: `minitf-${state.name}.${kind}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  if (kind === "svg") {
    const text = new XMLSerializer().serializeToString(drawAll((...size) => new SvgPen(...size)).root);
    return store(new Blob([text], { type: "image/svg+xml" }));
  }
  const canvas = make("canvas");
  drawAll((...size) => new CanvasPen(canvas, ...size, 2));
  return canvas.toBlob(store);
}

function setTheme(name) {
  theme = THEMES[name];
  document.documentElement.dataset.theme = name;
}

function start() {
  const lines = [...contents.facts, ...contents.notes.map((note) => `Note: ${note}`)];
  const flip = button("light / dark", () => (setTheme(theme === THEMES.dark ? "light" : "dark"), show()));
  const keys = `Keys: Tab moves between the parts, arrows within one; Enter adds a ${ROW}, Escape clears.`;
  const precision =
    `Maps have numbers of ${contents.bits} bits, with an error of at most ${contents.error.toPrecision(2)}.`;
  const help = contents.labels.length ? [keys, precision, "The address names what is open."] : [];
  const section = (id) => make("section", { id, hidden: id !== "tables" });
  document.body.replaceChildren(
    make("header", {}, make("h1", {}, contents.title), flip),
    make("main", {}, ...lines.map((text) => make("p", {}, text)), make("p", { id: "controls", className: "controls" }),
      make("div", { className: "both" }, section("open"), section("grid")), section("tables")),
    make("footer", {}, make("p", {}, help.join(" "))));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => (follow(), show()));
  follow();
  readAddress();
  show();
  addEventListener("hashchange", () => (readAddress(), show()));
  addEventListener("resize", () => show());
  addEventListener("beforeprint", () => {
    const before = theme;
    theme = THEMES.light;
    const canvas = document.querySelector("canvas.print");
    if (canvas) drawAll((...size) => new CanvasPen(canvas, ...size, 2));
    theme = before;
  });
}

readMaps().then(start).catch((error) => {
  document.body.append(make("p", {}, `This page needs a current browser: ${error}`));
});
