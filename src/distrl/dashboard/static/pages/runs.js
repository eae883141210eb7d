// All runs with their curves side by side; two can be chosen to be compared.

import { every, get, page } from "../api.js";
import { spark } from "../chart.js";
import { count, duration, h, interval, link, percent, put } from "../dom.js";

const AGAIN_MS = 4000;

export async function show({ go, say_title }) {
  say_title("Runs");
  const first = await get("/api/runs");
  if (first.single && first.runs.length && first.runs[0].state !== "unreadable") {
    await go(page(first.runs[0].name, first.runs[0].state === "live" ? "/fleet" : "/settings"), { replace: true });
    return { root: h("div") };
  }
  const chosen = new Set(), list = h("div.runs"), tools = h("div.tools"), total = h("span.soft");
  let runs = first.runs;
  const compare = h("button", { type: "button", disabled: true, onclick: () => go(`/compare?a=${encodeURIComponent([...chosen][0])}&b=${encodeURIComponent([...chosen][1])}`) }, "Compare two");
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter runs", oninput: () => paint() });
  tools.append(search, compare);
  const choose = (name, on) => {
    if (on) chosen.add(name); else chosen.delete(name);
    if (chosen.size > 2) chosen.delete([...chosen][0]);
    for (const box of list.querySelectorAll("input[type=checkbox]")) box.checked = chosen.has(box.value);
    compare.disabled = chosen.size !== 2;
  };
  const paint = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = runs.filter((run) => words.every((word) => `${run.name} ${run.suite} ${run.algorithm} ${run.policy} ${run.state}`.toLowerCase().includes(word)));
    put(total, fitting.length === runs.length ? `${runs.length} ${runs.length === 1 ? "run" : "runs"}` : `${fitting.length} of ${runs.length} runs`);
    if (!runs.length) return put(list, h("p.empty", {}, "There is no run in this folder yet. `distrl train` makes one; this page shows it as soon as it begins."));
    put(list, fitting.map((run) => card(run, chosen, choose)));
  };
  paint();
  const end = every(AGAIN_MS, async () => { runs = (await get("/api/runs")).runs; if (!list.contains(document.activeElement)) paint(); });
  const root = h("div", {}, h("div.head", {}, h("h1", {}, "Runs"), total, tools), list);
  return { root, close: end };
}

function card(run, chosen, choose) {
  if (run.state === "unreadable") {
    return h("article.panel.runcard", {}, h("div.title", {}, h("span.mono.wrap", {}, run.name), h("span.tag.unreadable", {}, "unreadable")), h("p.soft.wrap", {}, run.why));
  }
  const box = h("input", { type: "checkbox", value: run.name, checked: chosen.has(run.name), onchange: (event) => choose(run.name, event.target.checked) });
  return h("article.panel.runcard", {},
    h("div.title", {}, link(page(run.name, run.state === "live" ? "/fleet" : "/settings"), { title: run.name }, run.name), h(`span.tag.${run.state}`, {}, run.state)),
    h("div.pair", {}, h("span", {}, h("strong", {}, percent(run.success_after?.value)), h("span.soft", {}, run.success_before ? `  from ${percent(run.success_before.value)}` : "")), h("span.soft", {}, run.success_after ? interval(run.success_after) : run.state === "live" ? "not evaluated yet" : "not evaluated")),
    spark(run.curve, { label: `success in training, last ${percent(run.curve.at(-1)?.[1])}` }),
    run.curve.length ? h("div.pair.soft", {}, h("span", {}, "success in training"), h("span", {}, `last ${percent(run.curve.at(-1)[1])}`)) : null,
    h("div.pair.soft", {}, h("span", {}, `${run.suite} · ${run.algorithm} · ${run.policy}`), h("span", {}, `${count(run.episodes)} ep · ${duration(run.wall_s)}`)),
    h("label", {}, box, "compare"));
}
