"use strict";
// Colors, and two pens with the same strokes: one for a canvas, one for an SVG file.

const FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace";
const SIZE = 11;
const fontOf = (bold) => `${bold ? "bold " : ""}${SIZE}px ${FONT}`;
const THEMES = {
  light: {
    paper: "#ffffff", ink: "#1b1f24", faint: "#59636e", blank: "#e6e9ed", mark: "#b3261e", found: "#8250df",
    ramp: ["#ffffff", "#c6dbef", "#6baed6", "#2171b5", "#08306b"],
    diverging: ["#2166ac", "#92c5de", "#ffffff", "#f4a582", "#b2182b"],
    lines: ["#0b5cad", "#b3261e", "#1a7f37", "#8250df", "#9a6700", "#57606a"],
  },
  dark: {
    paper: "#0d1117", ink: "#e6edf3", faint: "#9198a1", blank: "#262c36", mark: "#ff9492", found: "#d2a8ff",
    ramp: ["#0d1117", "#12356b", "#4a6c8c", "#b4a76c", "#ffe945"],
    diverging: ["#79c0ff", "#1f4e79", "#0d1117", "#7d2a2a", "#ff9492"],
    lines: ["#79c0ff", "#ff9492", "#7ee787", "#d2a8ff", "#e3b341", "#9198a1"],
  },
};
let theme = THEMES.light;

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// 256 colors from the low to the high end of a scale.
function ramp(diverging) {
  const stops = (diverging ? theme.diverging : theme.ramp).map(channels);
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const first = Math.min(Math.floor(at), stops.length - 2);
    return stops[first].map((low, part) => Math.round(low + (at - first) * (stops[first + 1][part] - low)));
  });
}

function indexOfColor(x, scale) {
  const part = scale.high > scale.low ? (x - scale.low) / (scale.high - scale.low) : 0;
  return Math.round(255 * Math.min(1, Math.max(0, part)));
}

function css(rgb) {
  return `rgb(${rgb.join(" ")})`;
}

// Black or white, whichever has more contrast (WCAG 2).
function inkOn(rgb) {
  const linear = rgb.map((byte) => byte / 255).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return (luminance + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff";
}

const meter = document.createElement("canvas").getContext("2d");

function widthOf(text) {
  meter.font = fontOf(false);
  return meter.measureText(text).width;
}

// A text cut to a width, with an ellipsis.
function fit(text, width) {
  if (text.length < width && widthOf(text) <= width) return text;
  const characters = [...text.slice(0, 200)];
  while (characters.length && widthOf(characters.join("") + "…") > width) characters.pop();
  return characters.join("") + "…";
}

class CanvasPen {
  constructor(canvas, width, height, scale = window.devicePixelRatio || 1) {
    Object.assign(canvas, { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    this.context = canvas.getContext("2d");
    this.context.scale(scale, scale);
    this.rect(0, 0, width, height, theme.paper);
  }
  move(x, y) { this.context.translate(x, y); }
  rect(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }
  path(points, color, thick = 1, alpha = 1) {
    Object.assign(this.context, { globalAlpha: alpha, strokeStyle: color, lineWidth: thick });
    this.context.beginPath();
    points.forEach(([x, y]) => this.context.lineTo(x, y));
    this.context.stroke();
    this.context.globalAlpha = 1;
  }
  text(x, y, text, { color = theme.ink, anchor = "start", turned = false, bold = false } = {}) {
    this.context.save();
    this.context.translate(x, y);
    if (turned) this.context.rotate(-Math.PI / 2);
    const textAlign = anchor === "middle" ? "center" : anchor;
    Object.assign(this.context, { font: fontOf(bold), fillStyle: color, textAlign, textBaseline: "middle" });
    this.context.fillText(text, 0, 0);
    this.context.restore();
  }
}

class SvgPen {
  constructor(width, height) {
    this.x = this.y = 0;
    const font = { "font-family": FONT, "font-size": SIZE };
    this.root = this.make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, ...font });
    this.rect(0, 0, width, height, theme.paper);
  }
  make(tag, attributes) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, text] of Object.entries(attributes)) node.setAttribute(name, text);
    this.root?.append(node);
    return node;
  }
  move(x, y) {
    this.x += x;
    this.y += y;
  }
  rect(x, y, width, height, fill) { this.make("rect", { x: x + this.x, y: y + this.y, width, height, fill }); }
  path(points, color, thick = 1, alpha = 1) {
    const at = points.map(([x, y]) => `${x + this.x},${y + this.y}`).join(" ");
    this.make("polyline", { points: at, fill: "none", stroke: color, "stroke-width": thick, "stroke-opacity": alpha });
  }
  text(x, y, text, { color = theme.ink, anchor = "start", turned = false, bold = false } = {}) {
    const transform = `translate(${x + this.x} ${y + this.y})${turned ? " rotate(-90)" : ""}`;
    const style = { fill: color, "text-anchor": anchor, "font-weight": bold ? "bold" : "normal" };
    this.make("text", { transform, ...style, "dominant-baseline": "central" }).textContent = text;
  }
}

function frame(pen, x, y, width, height, color, thick = 2) {
  pen.path([[x, y], [x + width, y], [x + width, y + height], [x, y + height], [x, y], [x + width, y]], color, thick);
}

// A ring, or a dotted one: the arcs between every other two points.
function ring(pen, x, y, radius, color, dotted = false) {
  const points = Array.from({ length: 33 }, (_, i) => (i * Math.PI) / 16)
    .map((angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]);
  if (!dotted) return pen.path(points, color, 1.5);
  for (let i = 0; i < 32; i += 4) pen.path(points.slice(i, i + 3), color, 1.5);
}
