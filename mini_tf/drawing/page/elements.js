"use strict";
// Elements of the page. Text becomes text nodes only, never markup.

// aria: attributes by name, role among them; on: listeners by event; others are properties.
function make(tag, { aria = {}, on = {}, ...properties } = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  for (const [name, text] of Object.entries(aria)) node.setAttribute(name === "role" ? name : `aria-${name}`, text);
  for (const [name, act] of Object.entries(on)) node.addEventListener(name, act);
  node.append(...children);
  return node;
}

function button(text, act, pressed) {
  const aria = pressed === undefined ? {} : { pressed: String(pressed) };
  return make("button", { type: "button", aria, on: { click: act } }, text);
}

function choice(text, options, chosen, act) {
  const items = options.map(([value, name]) => make("option", { value }, fit(name, 320)));
  const select = make("select", { on: { change: () => act(select.value) } }, ...items);
  select.value = String(chosen);
  return make("label", {}, `${text} `, select);
}

function slider(text, values, chosen, act) {
  const aria = { valuetext: chosen };
  const input = make("input", { type: "range", id: "slider", min: 0, max: values.length - 1, aria });
  input.value = values.indexOf(chosen);
  input.addEventListener("input", () => {
    act(values[input.value]);
    document.getElementById("slider").focus();
  });
  return make("label", { className: "slider" }, `${text} `, input, make("output", {}, chosen));
}

// A table; without headers, paragraphs.
function tableOf({ title, headers, rows }) {
  if (!headers.length) return make("div", {}, ...rows.map(([text]) => make("p", {}, text)));
  const isNumber = (text) => /^[<≤±+-]?\s*[\d.,]+(e[+-]?\d+)?( ± [\d.,]+)?[%s]?$/.test(text);
  const className = (text) => (isNumber(text) ? "number" : "");
  const cell = (text, i) => make(i ? "td" : "th", { className: className(text), scope: "row" }, text);
  const head = make("tr", {}, ...headers.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map((row) => make("tr", {}, ...row.map(cell)));
  const caption = title ? [make("caption", {}, title)] : [];
  const table = make("table", {}, ...caption, make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { className: "wide", tabIndex: 0, aria: { role: "region", label: title || "table" } }, table);
}

// One stop of the Tab key for many buttons: arrows move among them.
function roving(box, move = () => {}) {
  const items = [...box.querySelectorAll("button")];
  const stop = (item) => items.forEach((one) => (one.tabIndex = one === item ? 0 : -1));
  stop(items.find((one) => one.matches("[aria-current=true]")) || items[0]);
  const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -items.length, End: items.length };
  box.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = items[within(items.indexOf(document.activeElement) + steps[event.key], items.length)];
    stop(next);
    next.focus();
    move(next);
  });
}

const within = (i, n) => Math.min(n - 1, Math.max(0, i));
