// The index of all stored episodes, newest first, and its filters; the address holds them.

import { at_most, get, of, page } from "../api.js";
import { ago, count, duration, h, link, put } from "../dom.js";
import { ended, outcome_of } from "../screen.js";

const FIELDS = ["text", "outcome", "template", "suite", "device", "worker", "ending", "source", "version_from", "version_to", "staleness_from", "staleness_to", "steps_from", "steps_to", "task"];

const AGAIN_MS = 2000;

export async function show({ place, go, say_title }) {
  say_title("Episodes");
  const run = place.run, rows = h("div.list"), foot = h("div.foot"), total = h("span.soft"), fields = {};
  let latest = 0, timer = 0, next = 0, shown = 0, asked = null, newest = 0;

  const address = () => {
    const query = new URLSearchParams();
    for (const name of FIELDS) if (fields[name]?.value && !(name === "source" && fields[name].value === "played")) query.set(name, fields[name].value);
    return query;
  };
  const count_folded = () => {
    const folded = [...address().keys()].filter((name) => !["text", "outcome"].includes(name)).length;
    put(fold, folded ? `More filters (${folded})` : "More filters");
  };
  const search = async ({ more = false, quiet = false } = {}) => {
    const turn = ++latest, query = address();
    count_folded();
    asked?.abort();
    asked = new AbortController();
    if (!quiet && !more) history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    if (more) query.set("before", next);
    try {
      const found = await get(of(run, `/episodes?${query}`), asked.signal);
      if (turn !== latest) return;
      paint(found, more);
      clearTimeout(timer);
      if (found.num_unread && needs_files()) timer = setTimeout(() => search({ quiet: true }), 300);
    } catch (error) {
      if (error.name !== "AbortError" && turn === latest) put(foot, h("span.down", { role: "alert" }, error.message));
    }
  };
  const needs_files = () => fields.text.value || fields.device.value || ["failure", "unknown", "cut_off"].includes(fields.outcome.value);
  const paint = (found, more) => {
    const made = found.entries.map((entry) => row(run, entry));
    if (more) rows.append(...made); else put(rows, h("div.columns", { "aria-hidden": "true" }, ["outcome", "task", "device", "steps", "staleness", "version", "time", "stored"].map((name, at) => h(at > 2 ? "span.num" : "span", {}, name))), made);
    if (!more) newest = found.entries[0]?.seq || 0;
    shown = more ? shown + made.length : made.length;
    next = found.next_before;
    const reading = found.num_unread && needs_files() ? `; still reading ${count(found.num_unread)} files` : "";
    put(total, `${count(found.num_found)} of ${count(found.num_all)} stored${reading}`);
    if (!made.length && !more) rows.append(h("p.empty", {}, found.num_all ? "No episode fits this filter." : "No episode is stored yet."));
    put(foot, next ? h("button", { type: "button", onclick: () => search({ more: true }) }, "Show more") : null, made.length || more ? `${count(shown)} shown` : "");
  };

  const query = new URLSearchParams(location.search);
  const field = (name, label, control, wide = false) => { fields[name] = control; return h(`label${wide ? ".wide" : ""}`, {}, label, control); };
  const select = (name, label, options, all = "any") => {
    const control = h("select", { onchange: () => search() }, all === null ? null : h("option", { value: "" }, all), options.map(([value, text]) => h("option", { value }, text)));
    const wanted = query.get(name);
    if (wanted) { if (![...control.options].some((one) => one.value === wanted)) control.append(h("option", { value: wanted }, wanted)); control.value = wanted; }
    return field(name, label, control);
  };
  const number = (name, label) => field(name, label, h("input", { type: "number", min: "0", inputmode: "numeric", value: query.get(name) || "", oninput: () => later() }));
  let waiting = 0;
  const later = () => { clearTimeout(waiting); waiting = setTimeout(() => search(), 180); };

  const choices = await get(of(run, "/choices"));
  const counted = (found) => Object.entries(found).map(([name, number_of]) => [name, `${name} (${number_of})`]);
  // On a narrow screen all but the first two are folded away, so that the episodes are in sight.
  const rest = h("div.rest", { "data-folded": true });
  const unfold = () => { rest.toggleAttribute("data-folded"); fold.setAttribute("aria-expanded", String(!rest.hasAttribute("data-folded"))); };
  const fold = h("button.more", { type: "button", "aria-expanded": "false", onclick: () => unfold() }, "More filters");
  const bar = h("div.filters", { role: "search" },
    field("text", "Search", h("input", { type: "search", value: query.get("text") || "", placeholder: "instruction, reason, device, id", oninput: () => later() }), true),
    select("outcome", "Outcome", [["success", "success"], ["failure", "failure"], ["unknown", "unknown"], ["cut_off", "cut off"]]),
    fold, rest);
  put(rest,
    select("template", "Template", counted(choices.templates)), select("suite", "Suite", counted(choices.suites)), select("device", "Device", counted(choices.devices)), select("worker", "Worker", counted(choices.workers)),
    select("ending", "Ended by", counted(choices.endings).map(([name, text]) => [name, text.replace("_", " ")])), select("source", "Kind", [["played", "played"], ["hindsight", "hindsight"], ["demonstration", "demonstration"], ["any", "all"]], null),
    [["version", "Version"], ["staleness", "Staleness"], ["steps", "Steps"]].map(([name, label]) => h("div.range", {}, number(`${name}_from`, `${label} from`), number(`${name}_to`, "to"))),
    field("task", "Task", h("input", { type: "text", value: query.get("task") || "", placeholder: "its id, such as sim-start/train/7", oninput: () => later() })),
    h("button", { type: "button", onclick: () => { for (const name of FIELDS) if (fields[name]) fields[name].value = name === "source" ? "played" : ""; search(); } }, "Clear"));
  await search({ quiet: true });
  const fresh = at_most(AGAIN_MS, () => search({ quiet: true }));
  return {
    root: h("div", {}, h("div.head", {}, h("h1", {}, "Episodes"), total), h("section.panel", {}, bar, rows, foot)),
    pulse: (pulse) => {
      if (pulse.last_seq <= newest || shown > 50 || rows.contains(document.activeElement)) return;
      fresh.ask();
    },
    key: (event) => {
      if (!["j", "k"].includes(event.key)) return;
      const all = [...rows.querySelectorAll("a.row")], at = all.indexOf(document.activeElement);
      all[Math.max(0, Math.min(all.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
    },
    moved: (to) => to.name === "episodes" && to.run === run && !location.search && !address().size,
    close: () => { asked?.abort(); clearTimeout(timer); fresh.end(); clearTimeout(waiting); },
    go,
  };
}

function row(run, entry) {
  const detail = entry.detail, outcome = outcome_of(entry.success, entry.ending, detail?.outcome);
  const reason = outcome === "success" ? "" : outcome === "cut_off" ? ended(entry.ending) : [["finished", "environment"].includes(entry.ending) ? "" : ended(entry.ending), detail?.reason].filter(Boolean).join(", ");
  return link(page(run, `/episodes/${encodeURIComponent(entry.id)}`), { class: "row" },
    h(`span.chip.${outcome}`, {}, outcome.replace("_", " ")),
    h("span.say", { title: detail?.instruction || entry.task }, detail?.instruction || entry.task, h("span.why", {}, reason || entry.template, entry.source === "played" ? "" : ` · ${entry.source}`)),
    h("span.say.soft", { title: detail?.device || "" }, detail?.device || entry.worker),
    h("span.num", {}, entry.steps, h("span.unit", {}, entry.steps === 1 ? " step" : " steps")), h("span.num", {}, entry.staleness), h("span.num", {}, `v${entry.version}`), h("span.num", {}, duration(entry.wall_s)), h("span.num", {}, ago(entry.created_s)));
}
