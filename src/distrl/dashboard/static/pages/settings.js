// One run: what it came to, how it was made, and how to go on with it.

import { every, get, of } from "../api.js";
import { chart_panel } from "../chart.js";
import { count, duration, h, interval, percent, put } from "../dom.js";

const AGAIN_MS = 4000;

export async function show({ place, say_title }) {
  say_title("Run");
  const ask = () => Promise.all([get(of(place.run)), get(of(place.run, "/learning"))]);
  const [found, learning] = await ask(), top = h("div.stack");
  const load = async () => { if (!top.contains(document.activeElement)) put(top, ...what_it_came_to(...(await ask()))); };
  let live = false;
  const end = every(AGAIN_MS, () => (live ? load() : null));
  put(top, ...what_it_came_to(found, learning));
  return {
    root: h("div.stack", {}, top, h("div.cols", {},
      h("section.panel", {}, h("header", {}, h("h2", {}, "Settings")), h("div.body", {}, h("pre.code", { tabindex: "0", role: "region", "aria-label": "Settings" }, found.config))),
      h("section.panel", {}, h("header", {}, h("h2", {}, "Environment")), h("div.body", {}, h("pre.code", { tabindex: "0", role: "region", "aria-label": "Environment" }, found.environment))))),
    pulse: (pulse) => { const over = live && !pulse.live; live = pulse.live; if (over) load().catch(() => {}); },
    close: end,
  };
}

function what_it_came_to({ name, status, summary }, learning) {
  const rates = status.evaluations;
  const last = rates.after || Object.entries(rates).filter(([name]) => name !== "before").at(-1)?.[1];
  const chart = learning.charts.find((one) => one.id === "success");
  const figure = (name, value, more = "") => h("div.figure", {}, h("div.value", {}, value), h("div.name", {}, name), h("div.more", {}, more));
  const alerts = [status.cause && `ended by: ${status.cause}`, ...status.notices, ...status.troubles].filter(Boolean);
  return [
    h("div.head", {}, h("h1.wrap", {}, name), h(`span.tag.${status.phase}`, {}, status.phase)),
    h("section.panel", {}, h("div.body", {}, h("div.figures", {},
      figure("success before", percent(rates.before?.value), interval(rates.before)), figure(rates.after ? "success after" : "success, last", percent(last?.value), interval(last)),
      figure("episodes", count(status.episodes), `${count(status.steps)} steps`), figure("time", duration(status.budget.wall_s), `${duration(status.budget.collect_s)} collecting`),
      figure("devices busy", percent(status.device_utilisation)), figure("learner idle", percent(summary?.learner_idle_ratio)),
      figure("staleness, mean", summary ? String(summary.staleness_mean) : "–", summary ? `at most ${summary.staleness_max}` : ""), figure("restarts", String(status.budget.restarts), summary?.lost_episodes === null || summary === null ? "" : `${summary.lost_episodes} episodes lost`)))),
    alerts.length ? h("section.panel", {}, h("header", {}, h("h2", {}, "Notices and troubles")), h("div.body", {}, alerts.map((text) => h("p.wrap", {}, text)))) : null,
    chart ? h("div.charts", {}, chart_panel(chart, { large: true })) : null,
  ];
}
