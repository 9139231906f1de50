"use strict";
// Figures: the map of a head, its lines between tokens, curves, and thumbnails. Each is drawn by either pen.

// Sizes of a map in `room` pixels: cells stay large enough for labels, unless there are more than a canvas can hold.
function layoutOf(map, room) {
  const [n, m] = [map.rows.length, map.columns.length];
  const widest = (labels, most) => Math.min(most, Math.max(...labels.map((one) => widthOf(one.slice(0, 60)))) + 8);
  const left = widest(map.rows, room < 500 ? 90 : 170);
  const top = widest(map.columns, 120);
  const cell = Math.min(Math.max(14, Math.min(34, Math.floor((room - left) / m))), Math.max(2, 7000 / Math.max(n, m)));
  const wide = m < 8 ? Math.max(cell, Math.min(60, Math.floor((room - left) / m / 2))) : cell;
  return { left, top, cell, wide, width: wide * m, height: cell * n };
}

function drawCells(pen, map, { layout: { cell, wide }, scale, rows, column }) {
  const colors = ramp(scale.diverging).map((rgb) => [css(rgb), inkOn(rgb)]);
  const hundredths = scale.high <= 2 && scale.low >= -2;
  const written = (x) => (hundredths ? (100 * x).toFixed(0) : String(+x.toPrecision(3)));
  map.rows.forEach((_, i) => map.columns.forEach((_, j) => {
    const x = value(map, i, j);
    const [fill, ink] = Number.isNaN(x) ? [theme.blank] : colors[indexOfColor(x, scale)];
    pen.rect(j * wide, i * cell, wide + 0.3, cell + 0.3, fill);
    if (ink && wide >= (hundredths ? 24 : 40) && written(x) !== "0") {
      pen.text((j + 0.5) * wide, (i + 0.5) * cell, fit(written(x), wide), { color: ink, anchor: "middle" });
    }
  }));
  const [squares, ...rings] = map.marks || [[]];
  for (const [i, j] of squares) frame(pen, j * wide + 2, i * cell + 2, wide - 4, cell - 4, theme.mark);
  rings.forEach((cells, dotted) => cells.forEach(([i, j]) =>
    ring(pen, (j + 0.5) * wide, (i + 0.5) * cell, cell / 2 - 3, theme.mark, !!dotted)));
  for (const i of rows) frame(pen, 0, i * cell, map.columns.length * wide, cell, theme.mark, 1.5);
  if (column >= 0) frame(pen, column * wide, 0, wide, map.rows.length * cell, theme.found, 1);
}

// Labels of rows or columns, `size` apart, in `room` pixels; side: "left" or "right" of what they name, or "above" it.
function drawLabels(pen, labels, size, room, side, chosen, found) {
  const every = Math.ceil(SIZE / size), turned = side === "above", anchor = side === "left" ? "end" : "start";
  labels.forEach((text, i) => {
    if (i % every && !chosen.includes(i)) return;
    const color = chosen.includes(i) ? theme.mark : found.has(text) ? theme.found : theme.ink;
    const [along, across] = [(i + 0.5) * size, side === "right" ? 4 : room - 4];
    const [x, y] = turned ? [along, across] : [across, along];
    pen.text(x, y, fit(text, room - 6), { color, bold: color !== theme.ink, turned, anchor });
  });
}

// The whole map with its labels, for files and print.
function drawMap(pen, map, look) {
  const { left, top, cell, wide } = look.layout;
  pen.move(left, 0);
  drawLabels(pen, map.columns, wide, top, "above", [look.column], look.found);
  pen.move(-left, top);
  drawLabels(pen, map.rows, cell, left, "left", look.rows, look.found);
  pen.move(left, 0);
  drawCells(pen, map, look);
  pen.move(-left, -top);
}

const LINES = { row: 17, side: 150, gap: 170 };
const FAINTEST = 0.02;

function linesSize(map) {
  return { width: 2 * LINES.side + LINES.gap, height: LINES.row * Math.max(map.rows.length, map.columns.length) };
}

// Rows on the left, columns on the right, a line for each weight; of the chosen rows, or of all.
function drawLines(pen, map, look) {
  const { row, side, gap } = LINES;
  const most = Math.max(look.scale.high, -look.scale.low);
  for (const i of look.rows.length ? look.rows : map.rows.keys()) {
    map.columns.forEach((_, j) => {
      const x = Math.min(1, Math.abs(value(map, i, j)) / most);
      const color = value(map, i, j) < 0 ? theme.mark : theme.lines[0];
      const ends = [[side, (i + 0.5) * row], [side + gap, (j + 0.5) * row]];
      if (x >= FAINTEST) pen.path(ends, color, 0.6 + 2 * x, 0.15 + 0.85 * x);
    });
  }
  drawLabels(pen, map.rows, row, side, "left", look.rows, look.found);
  pen.move(side + gap, 0);
  drawLabels(pen, map.columns, row, side, "right", [look.column], look.found);
  pen.move(-side - gap, 0);
}

// A map as small as its cells: one pixel each, scaled by the style sheet.
function drawThumbnail(canvas, map, scale) {
  const [n, m] = [map.rows.length, map.columns.length];
  const colors = ramp(scale.diverging), blank = channels(theme.blank);
  Object.assign(canvas, { width: m, height: n });
  const image = new ImageData(m, n);
  map.codes.forEach((code, at) => {
    const color = code ? colors[indexOfColor(map.low + (code - 1) * map.step, scale)] : blank;
    for (let part = 0; part < 3; part++) image.data[4 * at + part] = color[part];
    image.data[4 * at + 3] = 255;
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const tick = (x) => (Math.abs(x) < 1e6 ? String(+x.toPrecision(6)) : x.toExponential(1));

function ticks(low, high) {
  const raw = (high - low) / 5 || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find((one) => one * unit >= raw * 0.999);
  return Array.from({ length: 8 }, (_, i) => (Math.ceil(low / step) + i) * step).filter((x) => x <= high + step / 1e6);
}

// Lines over a common x, with a legend below; `mark` is a vertical line at the open scene.
function drawCurves(pen, curves, width, height, mark) {
  const all = curves.lines.flatMap((line) => line.y).filter((y) => y !== null);
  const [x0, x1, y0, y1] = [Math.min(...curves.x), Math.max(...curves.x), Math.min(...all), Math.max(...all)];
  const [left, top, right, bottom] = [56, 12, width - 14, height - 46 - 16 * curves.lines.length];
  const x = (at) => left + ((at - x0) / (x1 - x0 || 1)) * (right - left);
  const y = (at) => bottom - ((at - y0) / (y1 - y0 || 1)) * (bottom - top);
  const color = theme.faint;
  for (const at of ticks(y0, y1)) {
    pen.path([[left, y(at)], [right, y(at)]], theme.blank);
    pen.text(left - 6, y(at), tick(at), { color, anchor: "end" });
  }
  for (const at of ticks(x0, x1)) pen.text(x(at), bottom + 14, tick(at), { color, anchor: "middle" });
  pen.text(right, bottom + 30, curves.xLabel, { color, anchor: "end" });
  if (mark >= x0 && mark <= x1) pen.path([[x(mark), top], [x(mark), bottom]], theme.mark, 1.5);
  curves.lines.forEach((line, n) => {
    const ink = theme.lines[n % theme.lines.length];
    const points = curves.x.map((at, i) => [x(at), line.y[i]]).filter((point) => point[1] !== null);
    pen.path(points.map(([at, height]) => [at, y(height)]), ink, 2);
    if (points.length < 40) for (const [at, height] of points) pen.rect(at - 2, y(height) - 2, 4, 4, ink);
    pen.rect(left, bottom + 42 + 16 * n, 12, 4, ink);
    pen.text(left + 18, bottom + 44 + 16 * n, fit(line.name || curves.yLabel, right - left - 20));
  });
}
