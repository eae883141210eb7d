// How it learns: charts from the metrics and the episodes, each with its meaning and its healthy range.

import { at_most, get, of } from "../api.js";
import { chart_panel, spark } from "../chart.js";
import { count, h, percent, put } from "../dom.js";

const GROUPS = [["all", "all"], ["suite", "suite"], ["template", "template"], ["length", "length"]];
const AGAIN_MS = 4000;

export async function show({ place, say_title }) {
  say_title("Learning");
  const run = place.run, box = h("div.charts");
  let by = new URLSearchParams(location.search).get("by") || "all", known = "";
  const buttons = h("div.segments", { role: "group", "aria-label": "Success by" }, GROUPS.map(([name, text]) => h("button", { type: "button", value: name, onclick: () => { by = name; history.replaceState(null, "", `?by=${by}`); load(); } }, text)));
  const paint = (found) => {
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.value === by));
    const [first, ...rest] = found.charts;
    if (!first) return put(box, h("p.empty.large", {}, "Nothing was measured yet. The first episodes and updates bring the first points."));
    const tools = first.id === "success" ? [buttons] : [];
    put(box, first.id === "success" && by !== "all" ? smalls(first, tools) : chart_panel(first, { large: true, tools }), rest.map((chart) => chart_panel(chart)));
  };
  const load = async () => { paint(await get(of(run, `/learning?by=${encodeURIComponent(by)}`))); };
  await load();
  const again = at_most(AGAIN_MS, load);
  return {
    root: h("div", {}, h("div.head", {}, h("h1", {}, "Learning"), h("span.soft", {}, "time counts from the first metrics of the run; a chart is read with the mouse, or with the arrow keys once it has the focus")), box),
    pulse: (pulse) => {
      const news = `${pulse.metrics_s} ${pulse.last_seq} ${pulse.live}`;
      if (!known) { known = news; return; }
      if (news === known || box.contains(document.activeElement)) return;
      known = news;
      again.ask();
    },
    close: again.end,
  };
}

const last = ({ points, low, high }) => `${percent(points.at(-1)?.[1], 0)} [${(100 * low.at(-1)).toFixed(0)}, ${(100 * high.at(-1)).toFixed(0)}]`;

/** One small chart per group: forty lines in one frame tell nobody anything. */
function smalls(chart, tools) {
  return h("section.panel.chart.large", { "aria-label": chart.title }, h("header", {}, h("h2", {}, chart.title), ...tools),
    h("div.body", {}, h("div.smalls", {}, chart.lines.map((line) => h("div.small", {}, h("div.name", { title: line.name }, line.name), spark(line.points, { label: `${line.name}: success from 0 to 100 %, last ${last(line)}`, low: line.low, high: line.high }), h("div.value", {}, `${last(line)} · ${count(line.n)} episodes`)))), h("p.says", {}, chart.says, " Each line goes from 0 to 100 %; beneath it stands its last window."), h("p.healthy", {}, h("b", {}, "healthy: "), chart.healthy)));
}
