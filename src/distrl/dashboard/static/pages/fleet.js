// A tile per device with its moving screen; only tiles in sight are drawn. A click enlarges.

import { begin, get, of, page } from "../api.js";
import { clock, duration, h, link, put, short, tell } from "../dom.js";
import { draw, words } from "../screen.js";

export async function show({ place, go, say_title }) {
  say_title("Fleet");
  const run = place.run, tiles = new Map(), grid = h("div.tiles"), total = h("span.soft"), over = h("span.soft"), empty = h("p.empty", { hidden: true });
  const dialog = h("dialog.large", { "aria-label": "One device", onclose: () => { large = ""; } });
  let large = "", filter = "", filtered = false, heard = 0, held = { begun: "", step: 0 };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const tile = entry.target.tile;
      tile.visible = entry.isIntersecting;
      if (tile.visible && tile.stale) paint(tile);
    }
  }, { rootMargin: "200px" });

  const shape = (device) => ({ ...device, elements: device.elements.map(([l, t, r, b, ...rest]) => [l / 1000, t / 1000, r / 1000, b / 1000, ...rest]), picture: device.picture ? of(run, `/fleet/picture?device=${encodeURIComponent(device.device)}&v=${device.picture}`) : "" });
  function touched(device) {
    const action = device.action;
    if (!action || action.x === undefined) return "";
    const under = device.elements.filter(([l, t, r, b, text]) => text && 1000 * action.x >= l && 1000 * action.x < r && 1000 * action.y >= t && 1000 * action.y < b);
    under.sort((a, b) => !!b[5] - !!a[5] || (a[2] - a[0]) * (a[3] - a[1]) - (b[2] - b[0]) * (b[3] - b[1]));
    return under[0]?.[4] || "";
  }

  function make(device) {
    const canvas = h("canvas", { "aria-hidden": "true" }), name = h("b"), right = h("span"), what = h("div.what"), act = h("div.act"), fill = h("i");
    const button = h("button.tile", { type: "button", onclick: () => enlarge(device.device) }, h("div.top", {}, name, right), canvas, h("div.track", { "aria-hidden": "true" }, fill), what, act);
    const tile = { button, canvas, name, right, what, act, fill, visible: false, stale: true, device, begun: "", did: [] };
    button.tile = tile;
    seen.observe(button);
    return tile;
  }

  /** Its words, also of a tile out of sight: they are the name of the button, and what the filter and screen readers go by. */
  function describe(tile) {
    const device = tile.device;
    const down = ["restarting", "quarantined", "absent"].includes(device.state);
    tile.button.classList.toggle("down", down);
    tile.button.classList.toggle("idle", device.state === "idle");
    // Its worker stands beside it: in front of its name it would be all that a small tile has room for.
    tell(tile.name, device.device.startsWith(`${device.role}/`) ? device.device.slice(device.role.length + 1) : device.device);
    tile.button.title = device.device;
    tell(tile.right, device.version >= 0 ? `v${device.version} ${device.role}` : device.role);
    tell(tile.what, device.instruction || (down ? device.waiting || device.state : "between two episodes"));
    tell(tile.act, device.state === "playing" && !device.step ? "being prepared" : device.state === "playing" ? `${device.step}/${device.max_steps} ${words(device.action, touched(device))}` : down && device.waiting ? `${device.state}: ${device.waiting}` : device.state);
    tile.act.title = tile.act.textContent;
    tile.fill.style.width = device.max_steps ? `${(100 * device.step) / device.max_steps}%` : "0";
  }

  /** What it did in this episode, as far as this page has seen it: a stored episode has every step. */
  function note(tile) {
    const device = tile.device, begun = `${device.task} ${device.instruction}`, last = tile.did.at(-1);
    if (tile.begun !== begun || (last && device.step < last.step)) { tile.begun = begun; tile.did = []; }
    if (device.state !== "playing" || !device.step || !device.action) return;
    const done = { step: device.step, says: `${words(device.action, touched(device))}, value ${short(device.value)}`, device };
    if (tile.did.at(-1)?.step === device.step) tile.did[tile.did.length - 1] = done; else tile.did.push(done);
  }

  function paint(tile) {
    const device = tile.device;
    tile.stale = false;
    const blank = !device.picture && !device.elements.length;  // such as after the end of a run
    tile.canvas.classList.toggle("blank", blank);
    if (!blank) draw(tile.canvas, shape(device), { action: device.action });
  }

  const refused = h("p.down.wrap", { role: "alert" });
  async function take_phone(task) {
    put(refused);
    try { await begin(go, { run, task }); } catch (error) { put(refused, error.message); }
  }

  // Made once: what is replaced every second would lose the focus, and the click that began before it.
  const canvas = h("canvas", { role: "img" }), title = h("h1.wrap"), name = h("p.soft"), facts = h("dl.facts"), did = h("ol.did"), which = h("p.soft"), episode = h("div", {}, h("h2", {}, "This episode, as seen from here"), which, did), stored = h("p");
  const yourself = h("button", { type: "button", onclick: () => take_phone(tiles.get(large)?.device.task) }, "Try this task yourself");
  put(dialog, h("div.look", {}, h("div", {}, canvas), h("div.stack", {}, title, name, facts, episode, stored, h("div.buttons", {}, yourself, h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close")), refused)));

  function enlarge(device) {
    large = device;
    put(refused);
    put(stored, link(page(run, `/episodes?device=${encodeURIComponent(device)}`), {}, "Stored episodes of this device"));
    show_large(tiles.get(device).device);
    if (!dialog.open) dialog.showModal();
  }

  function show_large(device) {
    const about = [["task", device.task || "–"], ["template", device.template || "–"], ["state", device.state], ["waits for", device.waiting || "–"], ["worker", device.role], ["policy version", device.version < 0 ? "–" : device.version], ["step", device.step ? `${device.step} of at most ${device.max_steps}` : "–"], ["action", device.step ? words(device.action, touched(device)) : "–"], ["value", device.step ? device.value : "–"], ["app", device.app || "–"], ["playing for", device.began_s ? duration(heard - device.began_s) : "–"], ["lost so far", `${device.losses} ${device.losses === 1 ? "time" : "times"}`]];
    canvas.setAttribute("aria-label", `screen of ${device.device}`);
    tell(title, device.instruction || device.device);
    tell(name, device.device);
    put(facts, about.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    const tile = tiles.get(device.device), before = tile.did.find((one) => held.begun === tile.begun && held.step === one.step)?.device;
    episode.hidden = !tile.did.length;
    tell(which, before ? `The screen is that of step ${before.step}; press it again for the screen of now.` : "Press a step for its screen.");
    list_steps(tile, before);
    yourself.hidden = !device.task || !first.by_hand;
    const seen = before ? { ...before, picture: before.picture === device.picture ? device.picture : "" } : device;  // of pictures only the newest is kept
    requestAnimationFrame(() => draw(canvas, shape(seen), { action: seen.action }));
  }

  function list_steps(tile, before) {
    while (did.children.length > tile.did.length) did.lastChild.remove();
    tile.did.forEach((one, at) => {
      let item = did.children[at];
      if (!item) did.append(item = h("li", {}, h("button.quiet", { type: "button", onclick: (event) => hold(event.target.closest("li").value) })));
      item.value = one.step;
      tell(item.firstChild, one.says);
      item.firstChild.setAttribute("aria-pressed", String(one.device === before));
    });
  }

  function hold(step) {
    const tile = tiles.get(large);
    held = { begun: tile.begun, step: held.begun === tile.begun && held.step === step ? 0 : step };
    show_large(tile.device);
  }

  /** Devices that are not as they were; `names`: all in their order, where that has changed. */
  function take({ heard_s, devices, names }) {
    heard = heard_s;
    for (const device of devices) {
      let tile = tiles.get(device.device);
      if (!tile) { tile = make(device); tiles.set(device.device, tile); }
      tile.device = device;
      tile.stale = true;
      note(tile);
      describe(tile);
    }
    if (names) arrange(names);
    sort_out();
    // Drawn after all that is written: a canvas asks for its width, and each writing in between would cost a layout.
    for (const { device } of devices) { const tile = tiles.get(device); if (tile?.visible) paint(tile); }
    if (large && tiles.has(large)) show_large(tiles.get(large).device);
    const states = new Map();
    for (const { device } of tiles.values()) states.set(device.state, (states.get(device.state) || 0) + 1);
    tell(total, [...states].map(([name, number]) => `${number} ${name}`).join(" · ") + (heard_s ? ` · as of ${clock(heard_s)}` : ""));
    empty.hidden = tiles.size > 0;
    tell(empty, "No device has shown anything yet. Workers of a run that began with an older distrl, or with a runtime that does not tell, show none; episodes are stored all the same.");
  }

  function arrange(names) {
    const wanted = new Set(names);
    for (const [name, { button }] of tiles) if (!wanted.has(name)) { button.remove(); tiles.delete(name); }
    names.forEach((name, at) => { const button = tiles.get(name)?.button; if (button && grid.children[at] !== button) grid.insertBefore(button, grid.children[at] || null); });
  }

  function sort_out() {
    if (!filter && !filtered) return;
    filtered = !!filter;
    for (const tile of tiles.values()) {
      const said = `${tile.device.device} ${tile.device.state} ${tile.device.role} ${tile.device.template} ${tile.device.instruction}`.toLowerCase();
      tile.button.hidden = !filter.split(/\s+/).every((word) => said.includes(word));
    }
  }

  const search = h("input", { type: "search", placeholder: "Filter devices", "aria-label": "Filter devices", oninput: () => { filter = search.value.toLowerCase(); sort_out(); } });
  const size = h("input", { type: "range", min: "96", max: "320", value: "168", "aria-label": "Size of the tiles", style: { width: "110px" }, oninput: () => { grid.style.setProperty("--tile", `${size.value}px`); for (const tile of tiles.values()) { tile.stale = true; if (tile.visible) paint(tile); } } });
  const first = await get(of(run, "/fleet"));
  return {
    root: h("div", {}, h("div.head", {}, h("h1", {}, "Fleet"), over, total, h("div.tools", {}, search, size)), grid, empty, dialog),
    ready: () => take({ ...first, names: first.devices.map((one) => one.device) }),
    fleet: take,
    pulse: (pulse) => tell(over, pulse.live ? "" : "the run is over: its devices as they were seen last"),
    painted: () => { for (const tile of tiles.values()) { tile.stale = true; if (tile.visible) paint(tile); } },
    close: () => { seen.disconnect(); if (dialog.open) dialog.close(); },
  };
}
