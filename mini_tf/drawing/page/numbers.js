"use strict";
// The data of the page: JSON, and the codes of all maps in one gzip block.

const contents = JSON.parse(document.getElementById("contents").textContent);

async function readMaps() {
  const text = atob(contents.codes);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(stream).arrayBuffer();
  const codes = contents.bits === 16 ? new Uint16Array(bytes) : new Uint8Array(bytes);
  let start = 0;
  for (const map of contents.scenes.flatMap((scene) => scene.maps)) {
    map.rows = contents.labels[map.rows];
    map.columns = contents.labels[map.columns];
    map.codes = codes.subarray(start, (start += map.rows.length * map.columns.length));
  }
}

// The number in a cell; NaN where a query may not attend.
function value(map, row, column) {
  const code = map.codes[row * map.columns.length + column];
  return code ? map.low + (code - 1) * map.step : NaN;
}

// The sum of some rows, column by column; a column that is blank in all of them is NaN.
function sumOfRows(map, rows) {
  return map.columns.map((_, column) => {
    const values = rows.map((row) => value(map, row, column)).filter((x) => !Number.isNaN(x));
    return values.length ? values.reduce((a, b) => a + b, 0) : NaN;
  });
}

function largest(values, most) {
  const order = [...values.keys()].filter((i) => values[i] > 0).sort((a, b) => values[b] - values[a] || a - b);
  return order.slice(0, most);
}

function shown(x, digits = 2) {
  return Number.isNaN(x) || x === null || x === undefined ? "" : x.toFixed(digits);
}

// The ends of the colors of a map: those of the page, or its own.
function scaleOf(map, own) {
  if (!own) return contents.scale;
  const top = map.low + (2 ** contents.bits - 2) * map.step;
  const end = Math.max(Math.abs(map.low), Math.abs(top));
  const ends = contents.scale.diverging ? [-end, end] : [Math.min(map.low, contents.scale.low), top];
  return { ...contents.scale, low: ends[0], high: ends[1] };
}
