// The frame: addresses, navigation, the stream of the run that is shown, keys and theme.

import { follow, get, of, page } from "./api.js";
import { h, link, put, count, tell } from "./dom.js";

const main = document.getElementById("main"), nav = document.getElementById("nav"), state = document.getElementById("state");
const AGAIN_MS = 3000;
const PAGES = [["fleet", "Fleet"], ["episodes", "Episodes"], ["learning", "Learning"], ["health", "Health"], ["settings", "Run"]];
const modules = {
  runs: () => import("./pages/runs.js"), compare: () => import("./pages/compare.js"), fleet: () => import("./pages/fleet.js"),
  episodes: () => import("./pages/episodes.js"), episode: () => import("./pages/episode.js"), learning: () => import("./pages/learning.js"),
  health: () => import("./pages/health.js"), hand: () => import("./pages/hand.js"), settings: () => import("./pages/settings.js"),
};
// What is said aloud is the phase, not every episode that is stored.
const dot = h("i.dot", { hidden: true }), phase = h("span"), number_of = h("span", { "aria-live": "off" });
state.append(dot, h("span", {}, phase, number_of));
let shown = null, number = 0, followed = { run: "", fleet: false, close: () => {} }, connected = null, pulse = null, trouble = "";

// --- addresses ---------------------------------------------------------------------------------------------------

function parse() {
  let parts;
  try { parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent); } catch { return { name: "missing" }; }  // no text, such as %ff
  if (!parts.length) return { name: "runs" };
  if (parts[0] === "compare") return { name: "compare" };
  if (parts[0] === "try" && parts[1]) return { name: "hand", id: parts[1] };
  if (parts[0] !== "runs" || !parts[1]) return { name: "missing" };
  const [, run, name = "", id, step] = parts;
  if (!name) return { name: "settings", run };
  if (name === "episodes" && id) return { name: "episode", run, id, step: Number.parseInt(step || "1", 10) || 1 };
  return PAGES.some(([known]) => known === name) ? { name, run } : { name: "missing" };
}

/** Go to an address of this dashboard. */
export function go(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  return route();
}

async function route({ scroll = true } = {}) {
  const place = parse(), turn = ++number;
  path = location.pathname + location.search;
  if (shown?.moved?.(place)) return navigate(place);
  shown?.close?.();
  shown = null;
  navigate(place);
  if (!place.run) { watch("", false); say(); }
  if (place.name === "missing") return fail(new Error("There is no such page."), turn);
  try {
    const module = await modules[place.name]();
    const made = await module.show({ place, go, pulse: () => pulse, say_title });
    if (turn !== number) return made.close?.();
    shown = made;
    put(main, made.root);
    made.ready?.();
    if (scroll) window.scrollTo(0, 0);
    if (turn > 1 && document.activeElement === document.body) main.focus({ preventScroll: true });  // the link that was followed is gone
    if (place.run) watch(place.run, place.name === "fleet");
  } catch (error) {
    if (error.name !== "AbortError") fail(error, turn);
  }
}

function fail(error, turn) {
  if (turn !== number) return;
  if (error.again) setTimeout(() => { if (turn === number) route({ scroll: false }); }, AGAIN_MS);
  say_title("Error");
  put(main, h("section.panel.error", { role: "alert" }, h("header", {}, h("h1", {}, "This cannot be shown")),
    h("div.body.stack", {}, h("pre", {}, error.message), h("div", {}, h("button", { type: "button", onclick: () => route() }, "Try again"), " ", link("/", {}, "All runs")))));
}

function say_title(title) {
  const { run } = parse();
  document.title = [title, run, "distrl"].filter(Boolean).join(" · ");
}

function navigate(place) {
  const current = place.name === "episode" ? "episodes" : place.name;
  const made = [link("/", { "aria-current": ["runs", "compare"].includes(current) ? "page" : null }, "Runs")];
  if (place.run) {
    made.push(...PAGES.map(([name, title]) => link(page(place.run, `/${name}`), { "aria-current": current === name ? "page" : null }, title)));
    made.splice(1, 0, h("span.run", { title: place.run }, place.run));
  }
  put(nav, made);
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[data-link]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(anchor.getAttribute("href"), { replace: anchor.dataset.replace === "true" });
});
let path = location.pathname + location.search;
addEventListener("popstate", () => {
  const now = location.pathname + location.search;
  if (now === path && location.hash) return;  // a place on this page, such as that of "Skip to the page"
  path = now;
  route({ scroll: false });
});

// --- what changes ------------------------------------------------------------------------------------------------

function watch(run, fleet) {
  if (followed.run === run && followed.fleet === fleet) return;
  followed.close();
  if (followed.run !== run) { pulse = null; trouble = ""; }
  followed = { run, fleet, close: () => {} };
  connected = null;
  if (!document.hidden) listen();
  say();
}

function listen() {
  if (followed.run) followed.close = follow(followed.run, followed.fleet, hear, (now) => { connected = now; say(); });
}

// A page that nobody sees costs the training nothing, and holds none of the six connections that a browser has for one server.
document.addEventListener("visibilitychange", () => {
  followed.close();
  if (!document.hidden) listen();
});

function hear(name, data) {
  if (name === "pulse") { pulse = data; trouble = ""; say(); }
  else if (name === "trouble") { trouble = data.text; say(); }
  shown?.[name]?.(data);
}

function say() {
  const lost = connected === false ? "connecting …" : trouble ? "cannot be read" : "";
  const known = followed.run && (lost || pulse);
  dot.hidden = !known;
  dot.classList.toggle("lost", !!lost);
  dot.classList.toggle("live", !lost && !!pulse?.live);
  state.title = lost ? trouble : "";
  tell(phase, known ? lost || pulse.phase : "");
  tell(number_of, known && !lost ? ` · ${count(pulse.episodes)} episodes` : "");
}

// --- theme and keys ----------------------------------------------------------------------------------------------

const theme = document.getElementById("theme"), keys = document.getElementById("keys");
const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const say_theme = () => put(theme, dark() ? "☀" : "☾");
theme.addEventListener("click", () => {
  const chosen = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try { localStorage.setItem("distrl-theme", chosen); } catch { /* it lasts as long as this page */ }
  say_theme();
  shown?.painted?.();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { say_theme(); shown?.painted?.(); });
say_theme();

const KEYS = [["g then r, f, e, l, h, s", "go to runs, fleet, episodes, learning, health, this run with its settings"], ["/", "search"], ["← →", "step back and forth in an episode"], ["Home End", "first and last step"], ["space", "play and pause"], ["j k", "older and newer episode"], ["t", "light or dark"], ["?", "these keys"], ["Esc", "close"]];
const open_keys = () => {
  put(keys, h("h2", { id: "keys-title" }, "Keys"), h("table", {}, h("tbody", {}, KEYS.map(([key, does]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, does))))), h("button", { type: "button", onclick: () => keys.close() }, "Close"));
  keys.showModal();
};
document.getElementById("help").addEventListener("click", open_keys);

let going = 0;
addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest?.("input:not([type=range]):not([type=checkbox]), select, textarea");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (Date.now() - going < 1200) {
    going = 0;
    const { run } = parse(), name = { f: "fleet", e: "episodes", l: "learning", h: "health", s: "settings" }[event.key];
    if (event.key === "r") return go("/");
    if (name && run) return go(page(run, `/${name}`));
  }
  if (event.key === "g") going = Date.now();
  else if (event.key === "?") open_keys();
  else if (event.key === "t") theme.click();
  else if (event.key === "/") { const field = main.querySelector("input[type=search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } }
  else shown?.key?.(event);
});

// All pages, while there is a server to have them from: a module that could not be loaded once is not asked for again.
route().then(() => Object.values(modules).forEach((load) => load().catch(() => {})));
export { get, of };
