// Line, dot and bar charts as SVG, drawn for the width they have; one reads them with the mouse or the arrow keys.

import { h, s, put, percent, short, duration } from "./dom.js";

const MARGIN = { left: 44, right: 10, top: 10, bottom: 22 };
export const colour_of = (number) => `var(--c${number % 8})`;
const TIMES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];
const dash_of = (number) => ["", "6 4", "2 3"][Math.floor(number / 8) % 3] || (number % 8 >= 4 ? "6 4" : "");

/** A panel with one chart; `large` over the whole width. */
export function chart_panel(chart, { large = false, height = large ? 240 : 170, tools = [] } = {}) {
  const reading = h("div.reading", { "aria-live": "polite" });
  const plot = h("div");
  const panel = h(`section.panel.chart${large ? ".large" : ""}`, { "aria-label": chart.title },
    h("header", {}, h("h2", {}, chart.title, unit_of(chart)), ...tools, reading),
    h("div.body", {}, plot, legend(chart), h("p.says", {}, chart.says), h("p.healthy", {}, h("b", {}, "healthy: "), chart.healthy)));
  const paint = () => plot.clientWidth && draw(plot, chart, height, reading);
  new ResizeObserver(paint).observe(plot);
  return panel;
}

const last_of = (chart, line) => (chart.bounded ? percent(line.points.at(-1)?.[1]) : short(line.points.at(-1)?.[1]));

/** What is counted upwards; a share has its per cent at the axis. */
const unit_of = (chart) => (chart.bounded || !chart.unit ? null : h("span.unit", {}, chart.unit));

function legend(chart) {
  if (chart.lines.length < 2) return null;
  return h("div.legend", {}, chart.lines.map((line, number) =>
    h("span", {}, h(`i${number % 8 >= 4 ? ".dash1" : ""}`, { style: { "border-color": colour_of(number) } }), `${line.name} ${last_of(chart, line)}`)));
}

function draw(plot, chart, height, reading) {
  const width = plot.clientWidth, lines = chart.lines.filter((line) => line.points.length);
  const xs = lines.flatMap((line) => line.points.map((point) => point[0]));
  const ys = lines.flatMap((line) => [...line.points.map((point) => point[1]), ...(line.low || []), ...(line.high || [])]);
  const bars = chart.kind === "bars";
  const step = bars ? gap(lines[0].points) : 0;
  const x_range = [least(xs) - step / 2, most(xs) + step / 2];
  const y_range = chart.bounded ? [0, 1] : nice(bars ? 0 : least(ys), most(ys));
  if (x_range[0] === x_range[1]) x_range[1] += 1;
  const inner = [MARGIN.left, width - MARGIN.right, height - MARGIN.bottom, MARGIN.top];
  const x = (value) => inner[0] + ((value - x_range[0]) / (x_range[1] - x_range[0])) * (inner[1] - inner[0]);
  const y = (value) => inner[2] - ((value - y_range[0]) / (y_range[1] - y_range[0])) * (inner[2] - inner[3]);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: "0", "aria-label": in_words(chart, lines) });
  svg.append(axes(chart, x, y, x_range, y_range, inner, height));
  lines.forEach((line, number) => svg.append(...shape(chart, line, number, x, y, inner, step)));
  const cross = s("line.cross", { y1: inner[3], y2: inner[2], visibility: "hidden" });
  svg.append(cross);
  const steps = [...new Set(xs)].sort((a, b) => a - b);
  let at = -1;
  const read = (number) => {
    at = Math.max(0, Math.min(steps.length - 1, number));
    const value = steps[at];
    cross.setAttribute("x1", x(value));
    cross.setAttribute("x2", x(value));
    cross.setAttribute("visibility", "visible");
    const shown = lines.slice(0, 6).map((line) => [line, nearest(line.points, value)]).filter(([, point]) => point !== null);
    put(reading, `${place(chart, value)}: ${shown.map(([line, point]) => `${lines.length > 1 ? `${line.name} ` : ""}${valued(chart, line, point)}`).join(" · ")}`);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), wanted = x_range[0] + ((event.clientX - box.left - inner[0]) / (inner[1] - inner[0])) * (x_range[1] - x_range[0]);
    read(steps.reduce((best, value, number) => (Math.abs(value - wanted) < Math.abs(steps[best] - wanted) ? number : best), 0));
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); put(reading); at = -1; });
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    read(at < 0 && moves[event.key] === -1 ? steps.length - 1 : at + moves[event.key]);
  });
  put(plot, svg);
}

function axes(chart, x, y, x_range, y_range, inner, height) {
  const group = s("g.axis", { "aria-hidden": "true" });
  for (const value of ticks(y_range, 4)) {
    group.append(s("line", { x1: inner[0], x2: inner[1], y1: y(value), y2: y(value) }),
      s("text", { x: inner[0] - 8, y: y(value) + 4, "text-anchor": "end" }, chart.bounded ? `${Math.round(100 * value)} %` : tick_text(value, y_range)));
  }
  const wide = inner[1] - inner[0], whole = chart.lines[0]?.points.every(([at]) => Number.isInteger(at));
  let before = "";
  for (const value of ticks(x_range, Math.max(3, Math.floor(wide / 110)), chart.across === "s" ? TIMES : [])) {
    if (chart.kind === "bars" && whole && !Number.isInteger(value)) continue;
    const text = place(chart, value, true);
    if (text === before) continue;  // parts of a version
    before = text;
    group.append(s("text", { x: x(value), y: height - 5, "text-anchor": x(value) > inner[1] - 20 ? "end" : "middle" }, text));
  }
  return group;
}

function shape(chart, line, number, x, y, inner, step) {
  const stroke = { stroke: colour_of(number) };
  if (chart.kind === "bars") {
    const wide = Math.max(1, x(step) - x(0) - 2);
    return line.points.filter((point) => point[1] > 0).map(([at, value]) =>
      s("rect", { x: x(at) - wide / 2, width: wide, y: Math.min(y(value), inner[2] - 1), height: Math.max(1, inner[2] - y(value)), rx: Math.min(2, wide / 3), style: { fill: colour_of(number) } }));
  }
  const made = [];
  if (line.low?.length === line.points.length && chart.kind !== "dots") {
    const upper = line.points.map((point, at) => [x(point[0]), y(line.high[at])]);
    const lower = line.points.map((point, at) => [x(point[0]), y(line.low[at])]).reverse();
    made.push(s("path.band", { d: `${path_of([...upper, ...lower])}Z`, style: { fill: colour_of(number) } }));
  }
  made.push(s("path.line", { d: path_of(line.points.map(([a, b]) => [x(a), y(b)])), style: { ...stroke, "stroke-dasharray": dash_of(number) } }));
  if (chart.kind === "dots" || line.points.length === 1) {
    line.points.forEach(([a, b], at) => {
      if (line.low?.[at] !== undefined) made.push(s("line", { x1: x(a), x2: x(a), y1: y(line.low[at]), y2: y(line.high[at]), style: { ...stroke, "stroke-width": "1.5" } }));
      made.push(s("circle", { cx: x(a), cy: y(b), r: 3.5, style: { fill: colour_of(number) } }));
    });
  }
  return made;
}

/** A line without axes, for cards and tables, with its band where it has one. */
export function spark(points, { bounded = true, label = "", low = [], high = [] } = {}) {
  const svg = s("svg.spark", { viewBox: "0 0 200 36", preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (!points.length) return svg;
  if (points.length === 1) [points, low, high] = [[points[0], [points[0][0] + 1, points[0][1]]], low.concat(low), high.concat(high)];  // one window alone: a level line
  const [first, last] = [points[0][0], points.at(-1)[0] || 1];
  const values = points.map((point) => point[1]), [bottom, top] = bounded ? [0, 1] : nice(Math.min(...values), Math.max(...values));
  const at = (number, value) => [(200 * (points[number][0] - first)) / (last - first || 1), 34 - (32 * (value - bottom)) / (top - bottom || 1)];
  if (low.length === points.length) svg.append(s("path.band", { d: `${path_of([...high.map((value, number) => at(number, value)), ...low.map((value, number) => at(number, value)).reverse()])}Z` }));
  svg.append(s("path", { d: path_of(values.map((value, number) => at(number, value))), "vector-effect": "non-scaling-stroke" }));
  return svg;
}

const path_of = (points) => points.map(([a, b], number) => `${number ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

// Not Math.min(...numbers): of the points of hundreds of workers, that is more arguments than a function can have.
const least = (numbers) => numbers.reduce((a, b) => Math.min(a, b), Infinity);
const most = (numbers) => numbers.reduce((a, b) => Math.max(a, b), -Infinity);
const gap = (points) => (points.length > 1 ? points[1][0] - points[0][0] : 1);
const nearest = (points, value) => {
  if (!points.length || value < points[0][0] || value > points.at(-1)[0]) return null;
  return points.reduce((best, point, at) => (Math.abs(point[0] - value) < Math.abs(points[best][0] - value) ? at : best), 0);
};
const valued = (chart, line, at) => {
  const value = line.points[at][1], show = (number) => (chart.bounded ? `${(100 * number).toFixed(1)} %` : short(number));
  return line.low?.length ? `${show(value)} [${show(line.low[at])}, ${show(line.high[at])}]` : show(value);
};
const place = (chart, value, tick = false) => (chart.across === "s" ? (tick ? minutes(value) : duration(value)) : chart.across === "version" ? `version ${Math.round(value)}` : tick ? String(+value.toPrecision(3)) : `at ${short(value)}`);
const minutes = (value) => (value >= 3600 ? `${+(value / 3600).toFixed(1)} h` : value < 60 ? `${Math.round(value)} s` : value % 60 ? duration(value).replace(" min", "") : `${value / 60} min`);
const tick_text = (value, range) => (Math.abs(value) < (range[1] - range[0]) / 1e6 ? "0" : Math.abs(value) >= 1000 ? short(value) : String(+value.toPrecision(3)));

function ticks([low, high], about, preferred = []) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = preferred.find((one) => one >= 0.75 * rough) || [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) || 1;
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) found.push(value);
  return found;
}

function nice(low, high) {
  if (low === high) return [Math.min(0, low), high || 1];
  const from = low >= 0 && low < (high - low) * 1.5 ? 0 : low - (high - low) * 0.05;
  return [from, high + (high - from) * 0.05];
}

function in_words(chart, lines) {
  const said = lines.slice(0, 8).map((line) => `${line.name}: first ${short(line.points[0][1])}, last ${short(line.points.at(-1)[1])}`);
  return `${chart.title}. ${chart.says} ${said.join("; ")}. Arrow keys read single points.`;
}
