// How the run is: roles and what each waits for, queues, restarts by cause, lost devices, and the logs.

import { every, get, of } from "../api.js";
import { ago, clock, duration, h, put, short } from "../dom.js";

const AGAIN_MS = 3000;
const is = (role, live) => (live ? (role.alive ? role.phase : "gone") : role.phase === "stopped" ? "stopped" : `was ${role.phase}`);
const times = (number) => (number === 1 ? "once" : `${number} times`);

export async function show({ place, say_title }) {
  say_title("Health");
  const run = place.run, roles = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Roles" }), more = h("div.cols"), log = h("div.log", { tabindex: "0", role: "region", "aria-label": "Lines of the logs" }), told = h("span.soft"), over = h("span.soft");
  const text = h("input", { type: "search", placeholder: "Search the logs", "aria-label": "Search the logs", oninput: () => { clearTimeout(waiting); waiting = setTimeout(lines, 200); } });
  const which = h("select", { "aria-label": "Role", onchange: () => lines() });
  const troubles = h("input", { type: "checkbox", onchange: () => lines() });
  let waiting = 0, live = null, latest = 0;

  const table = (title, heads, rows, none) => h("section.panel", {}, h("header", {}, h("h2", {}, title)), rows.length ? h("div.scroll", { tabindex: "0", role: "region", "aria-label": title }, h("table", {}, h("thead", {}, h("tr", {}, heads.map(([name, kind]) => h(`th${kind || ""}`, {}, name)))), h("tbody", {}, rows))) : h("p.body.soft", {}, none));
  const causes = (title, found, none) => table(title, [["who"], ["cause"], ["times", ".num"], ["last", ".num"]], found.map((one) => h("tr", {}, h("td.wrap", {}, one.who), h("td.wrap", {}, one.why), h("td.num", {}, one.count), h("td.num", {}, ago(one.last_s)))), none);

  function paint(health) {
    put(over, health.phase === "live" ? "" : "the run is over: this is how its roles were last heard of");
    put(roles, h("table", {}, h("thead", {}, h("tr", {}, [["role"], ["is"], ["at"], ["for", ".num"], ["heard", ".num"], ["restarts", ".num"], ["note"]].map(([name, kind]) => h(`th${kind || ""}`, {}, name)))), h("tbody", {}, health.roles.map((role) => h("tr", {},
      h("td.whole", {}, h(`i.dot${role.alive ? ".live" : ""}`, { "aria-hidden": "true" }), ` ${role.role}`), h("td", {}, is(role, health.phase === "live")), h("td.wrap", {}, role.phase === "waiting" ? `${health.phase === "live" ? "waits" : "waited"} for ${role.what}` : role.what),
      h("td.num", {}, duration(role.for_s)), h("td.num", {}, role.heard_s ? ago(role.heard_s) : "–"), h("td.num", {}, role.restarts), h("td.wrap", {}, health.phase === "live" ? role.note : ""))))));
    put(more,
      causes("Restarts by cause", health.restarts, "No role was restarted."), causes("Lost devices", health.losses, "No device was lost."),
      table("Devices out of use", [["device"], ["is"], ["waits for"], ["lost", ".num"]], health.out_of_use.map((one) => h("tr", {}, h("td.wrap", {}, one.device), h("td", {}, one.state), h("td.wrap", {}, one.waiting || "–"), h("td.num", {}, times(one.losses)))), health.num_devices ? `None of ${health.num_devices} is in quarantine, absent or being restarted.` : "No device has told of itself."),
      h("section.panel", {}, h("header", {}, h("h2", {}, "Notices and troubles")), h("div.body", {}, [health.cause && `ended by: ${health.cause}`, ...health.notices, ...health.troubles].filter(Boolean).map((line) => h("p.wrap", {}, line)), health.notices.length + health.troubles.length || health.cause ? null : h("p.soft", {}, "None."))),
      table("Queues", [["role"], ["queue"], ["length", ".num"]], health.queues.map(([role, name, length]) => h("tr", {}, h("td", {}, role), h("td", {}, name), h("td.num", {}, short(length)))), "No role has told of a queue yet."));
    const wanted = which.value;
    if (which.options.length !== health.logs.length + 1) { put(which, h("option", { value: "" }, "all roles"), health.logs.map((name) => h("option", { value: name }, name))); which.value = wanted; }
  }
  async function lines() {
    const turn = ++latest, query = new URLSearchParams({ role: which.value, text: `${text.value}${troubles.checked ? " trouble" : ""}` });
    try {
      const found = (await get(of(run, `/logs?${query}`))).lines;
      if (turn !== latest) return;
      put(told, `${found.length}${found.length >= 300 ? " newest" : ""} lines`);
      put(log, found.map((line) => h(`div${line.trouble ? ".trouble" : ""}`, {}, h("span.soft", {}, clock(line.time_s)), h("span", {}, line.role), h("span", {}, line.event), h("span", {}, line.text))), found.length ? null : h("p.empty", {}, "No line fits."));
    } catch (error) { put(told, error.message); }
  }
  const load = async () => {
    paint(await get(of(run, "/health")));
    if (!text.value && !log.matches(":hover") && !log.contains(document.activeElement)) await lines();  // a search reads whole logs
  };
  await load();
  const end = every(AGAIN_MS, () => (live === false ? null : load()));
  return {
    root: h("div.stack", {}, h("div.head", {}, h("h1", {}, "Health"), over), h("section.panel", {}, roles), more,
      h("section.panel", {}, h("header", {}, h("h2", {}, "Logs"), told), h("div.filters", {}, h("label.wide", {}, "Search", text), h("label", {}, "Role", which), h("label", {}, "Troubles only", h("span", {}, troubles))), log)),
    pulse: (pulse) => { const over = live && !pulse.live; live = pulse.live; if (over) load().catch(() => {}); },
    close: () => { end(); clearTimeout(waiting); },
  };
}
