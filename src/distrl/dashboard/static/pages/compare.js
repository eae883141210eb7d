// Two runs beside each other: figures, curves and the settings in which they differ.

import { get, of, page } from "../api.js";
import { chart_panel } from "../chart.js";
import { count, duration, h, interval, link, percent } from "../dom.js";

export async function show({ say_title }) {
  say_title("Compare");
  const query = new URLSearchParams(location.search), names = [query.get("a") || "", query.get("b") || ""];
  if (names.includes("")) throw new Error("Two runs are compared here. Tick two in the list of runs.");
  const [overviews, learnings] = await Promise.all([Promise.all(names.map((name) => get(of(name)))), Promise.all(names.map((name) => get(of(name, "/learning"))))]);
  const charts = learnings[0].charts.filter((chart) => chart.kind !== "bars").map((chart) => merged(chart, learnings[1].charts.find((other) => other.id === chart.id))).filter(Boolean);
  return {
    root: h("div.stack", {},
      h("div.head", {}, h("h1", {}, "Compare"), h("span.soft", {}, "A is the first run, B the second")),
      figures(overviews),
      h("div.charts", {}, charts.map((chart) => chart_panel(chart, { large: chart.id === "success" }))),
      settings(overviews)),
  };
}

function merged(chart, other) {
  if (!other) return null;
  const total = (one) => one.lines.filter((line) => line.name === "total");
  const main = (one) => (one.lines.length < 3 ? one.lines : total(one).length ? total(one) : [mean(one.lines)]);
  const named = (one, letter) => main(one).map((line) => ({ ...line, name: one.lines.length > 1 ? `${letter} ${line.name}` : letter }));
  return { ...chart, lines: [...named(chart, "A"), ...named(other, "B")] };
}

/** One line for many, such as those of all workers: the mean of each fortieth of the time. */
function mean(lines) {
  const points = lines.flatMap((line) => line.points).sort((a, b) => a[0] - b[0]), size = Math.max(lines.length, Math.ceil(points.length / 40)), found = [];
  for (let at = 0; at < points.length; at += size) {
    const some = points.slice(at, at + size), of = (place) => some.reduce((sum, point) => sum + point[place], 0) / some.length;
    found.push([of(0), of(1)]);
  }
  return { name: "mean", points: found };
}

function figures(overviews) {
  const rows = [
    ["state", (one) => one.status.phase],
    ["success before", (one) => rate(one.status.evaluations.before)],
    ["success after", (one) => rate(one.status.evaluations.after)],
    ["episodes", (one) => count(one.status.episodes)],
    ["steps", (one) => count(one.status.steps)],
    ["time", (one) => duration(one.status.budget.wall_s)],
    ["devices busy", (one) => percent(one.status.device_utilisation)],
    ["learner idle", (one) => percent(one.summary?.learner_idle_ratio)],
    ["staleness, mean", (one) => (one.summary ? String(one.summary.staleness_mean) : "–")],
    ["restarts", (one) => String(one.status.budget.restarts)],
  ];
  return h("section.panel.scroll", { tabindex: "0", role: "region", "aria-label": "Figures" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "figure"), overviews.map((one, at) => h("th.wrap", {}, `${"AB"[at]}  `, link(page(one.name), {}, one.name))))),
    h("tbody", {}, rows.map(([name, of_run]) => h("tr", {}, h("td.soft", {}, name), overviews.map((one) => h("td", {}, of_run(one))))))));
}

const rate = (found) => (found ? `${percent(found.value)} ${interval(found)}` : "–");

function settings(overviews) {
  const [a, b] = overviews.map((one) => flat(one.config));
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((key) => a[key] !== b[key]).sort();
  const body = keys.length
    ? h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Settings that differ" }, h("table", {}, h("thead", {}, h("tr", {}, ["setting", "A", "B"].map((name) => h("th", {}, name)))), h("tbody", {}, keys.map((key) => h("tr", {}, h("td.mono", {}, key), h("td.mono.wrap", {}, a[key] ?? "–"), h("td.mono.wrap", {}, b[key] ?? "–"))))))
    : h("p.body.soft", {}, "All settings are the same.");
  return h("section.panel", {}, h("header", {}, h("h2", {}, "Settings that differ")), body);
}

function flat(toml) {
  const found = {};
  let section = "";
  for (const line of toml.split("\n")) {
    const head = line.match(/^\[(.+)\]$/), pair = line.match(/^([\w.-]+)\s*=\s*(.*)$/);
    if (head) section = `${head[1]}.`;
    else if (pair) found[section + pair[1]] = pair[2];
  }
  return found;
}
