// A person plays a task: mouse, finger and keyboard become the actions that a policy has; the verdict is the judge's.

import { get, post } from "../api.js";
import { h, put } from "../dom.js";
import { draw, fit, light, load, name_of, words } from "../screen.js";

const HOLD_MS = 500, FAR = 0.04;
const SWIPES = { ArrowDown: [0.5, 0.7, 0.5, 0.3], ArrowUp: [0.5, 0.3, 0.5, 0.7], ArrowRight: [0.8, 0.5, 0.2, 0.5], ArrowLeft: [0.2, 0.5, 0.8, 0.5] };
const swipe = ([x, y, to_x, to_y]) => ({ type: "swipe", x, y, to_x, to_y });

export async function show({ place, go, say_title }) {
  const base = `/api/attempts/${encodeURIComponent(place.id)}`;
  let state = await get(base), busy = false, finger = null, mark = {}, left = false;
  say_title(`Try: ${state.instruction}`);
  const canvas = h("canvas.hand", { role: "application", tabindex: "0", "aria-label": "The phone. Click to tap, hold for a long press, drag to swipe; type to write, Backspace goes back." });
  const said = h("p.caption", { "aria-live": "polite" }), where = h("span.where"), trouble = h("p.down.wrap", { role: "alert", hidden: true });
  const text = h("input", { type: "text", placeholder: "Type into the phone, then Enter", "aria-label": "Text to type into the phone", autocomplete: "off", onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); write(); } else if (event.key === "Escape") canvas.focus(); } });
  const answer = h("input", { type: "text", placeholder: "Answer, where the task asks something", "aria-label": "Answer to the task", autocomplete: "off" });
  const button = (name, action, props = {}) => h("button", { type: "button", onclick: () => act(action()), ...props }, name);
  const press = (key) => () => ({ type: "press", key });
  const keys = h("div.buttons", {}, button("Back", press("back")), button("Home", press("home")), button("Enter", press("enter")), button("Wait", () => ({ type: "wait" })));
  const claims = h("div.buttons", {}, button("Done", () => ({ type: "finish", status: "complete", answer: answer.value.trim() })), button("Impossible", () => ({ type: "finish", status: "impossible", answer: "" })));
  const verdict = h("section.panel", { "aria-label": "Verdict", hidden: true }), list = h("ol.did"), elements = h("div.elements");

  const screen = () => ({ ...state.observation, elements: (state.observation.elements || []).map(light), picture: state.picture ? `${base}/picture?step=${state.step}` : "" });
  const paint = (how = mark) => draw(canvas, screen(), how);

  async function act(action) {
    if (busy || state.over) return;
    busy = true;
    mark = { action };
    paint();
    try {
      state = await post(`${base}/act`, { step: state.step, action });
      if (state.picture) await load(screen().picture);
      tell();
    } catch (error) {
      tell(error);
    } finally {
      busy = false;
      mark = {};
      paint();
    }
  }

  function write() {
    if (!text.value) return act({ type: "press", key: "enter" });
    const typed = text.value;
    text.value = "";
    return act({ type: "type", text: typed }).then(() => canvas.focus());
  }

  // --- the finger ------------------------------------------------------------------------------------------------

  function point(event) {
    const box = canvas.getBoundingClientRect(), clip = (share) => Math.min(0.9999, Math.max(0, share));
    return [clip((event.clientX - box.left) / box.width), clip((event.clientY - box.top) / box.height)];
  }
  const far = ([x, y], [to_x, to_y]) => Math.hypot(to_x - x, (to_y - y) * (canvas.height / canvas.width || 2)) > FAR;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || busy || state.over) return;
    canvas.setPointerCapture(event.pointerId);
    finger = { from: point(event), at: point(event), began: event.timeStamp };
    paint({ action: { type: "tap", x: finger.from[0], y: finger.from[1] }, share: 0.3 });
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!finger) return;
    finger.at = point(event);
    if (far(finger.from, finger.at)) paint({ action: swipe([...finger.from, ...finger.at]) });
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!finger) return;
    const { from, began } = finger, to = point(event), [x, y] = from;
    finger = null;
    if (far(from, to)) act(swipe([x, y, ...to]));
    else act({ type: event.timeStamp - began >= HOLD_MS ? "long_press" : "tap", x, y });
  });
  canvas.addEventListener("pointercancel", () => { finger = null; paint(); });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());

  function key(event) {
    const elsewhere = event.target.closest?.("button, a, summary, input, select");
    if (elsewhere && event.target !== canvas) return;
    if (event.key in SWIPES) { event.preventDefault(); act(swipe(SWIPES[event.key])); }
    else if (event.key === "Enter") { event.preventDefault(); act({ type: "press", key: "enter" }); }
    else if (event.key === "Backspace") { event.preventDefault(); act({ type: "press", key: "back" }); }
  }
  // Letters go where they can be read again and mended before they are typed: as in the app itself, typing replaces what a field held.
  canvas.addEventListener("keydown", (event) => {
    if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey || event.key === " ") return;
    event.preventDefault();
    event.stopPropagation();
    text.value += event.key;
    text.focus();
  });

  // --- what is told ----------------------------------------------------------------------------------------------

  function tell(error = null) {
    const last = state.steps.at(-1);
    put(trouble, error ? error.message : "");
    trouble.hidden = !error;
    put(where, `step ${state.step} of at most ${state.max_steps}`);
    put(said, last ? words(last.action, last.target) : "Your move.", h("small", {}, last ? note(last) : "Nothing was done yet."));
    put(list, state.steps.map((one) => h("li", {}, words(one.action, one.target), h("small.soft.wrap", {}, ` ${note(one)}`))));
    for (const one of [...keys.children, ...claims.children, text, answer]) one.disabled = state.over;
    const shown = state.over ? [] : (state.observation.elements || []).filter((one) => one.clickable);
    put(elements, shown.length ? shown.map((one) => button(name_of(one) || "unnamed", () => ({ type: "tap", x: (one.bounds[0] + one.bounds[2]) / 2, y: (one.bounds[1] + one.bounds[3]) / 2 }))) : h("span.soft", {}, "none"));
    if (state.verdict) judged(state.verdict);
  }

  const note = (one) => (!one.valid ? `the phone refused it${one.why ? `: ${one.why}` : ""}` : !one.changed && one.action.type !== "finish" ? `nothing changed${one.why ? `: ${one.why}` : ""}` : "");

  function judged(found) {
    verdict.hidden = false;
    const keep = h("button", { type: "button", disabled: !!state.kept, onclick: async () => { try { state = await post(`${base}/keep`); tell(); } catch (error) { tell(error); } } }, state.kept ? "Kept" : "Keep as a demonstration");
    const again = h("button", { type: "button", onclick: async () => { try { const made = await post(`${base}/again`); left = true; go(`/try/${made.id}`, { replace: true }); } catch (error) { tell(error); } } }, "Try again");
    put(verdict, h("div.verdict", {}, h("div", {}, h(`span.chip.${found.outcome}`, {}, found.outcome), h("span.soft", {}, ` after ${state.step} steps`)),
      h("p.reason", {}, found.reason || (found.outcome === "success" ? "All conditions hold." : "The judge gave no reason.")),
      found.side_effects?.length ? h("p.down.wrap", {}, `changed without being asked: ${found.side_effects.join("; ")}`) : null,
      h("div.buttons", {}, found.outcome === "success" ? keep : null, again),
      found.outcome === "success" ? null : h("p.soft", {}, "Only a success can be kept as a demonstration."),
      state.kept ? h("div.stack", {}, h("p.wrap", {}, "It is in ", h("span.mono", {}, state.kept), ". A policy learns from it with"), h("pre.code", {}, `distrl sft configs/first-run.toml --data ${state.kept}`)) : null));
  }

  const resized = () => { fit(canvas, state.observation); paint(); };
  fit(canvas, state.observation);  // before it is shown: whoever touches it at once touches what is under the finger
  const leave = () => { if (!left) { left = true; post(`${base}/leave`, {}, { keepalive: true }).catch(() => {}); } };
  const rows = [["click", "tap"], ["hold, then release", "long press"], ["drag", "swipe"], ["letters, then Enter", "type into the field that has the focus"], ["Enter", "the Enter key"], ["Backspace", "back"], ["arrow keys", "scroll"]];
  return {
    root: h("div.stack", {},
      h("div.head", {}, h("h1.wrap", {}, state.instruction), h("div.tools", {}, where)),
      h("div.episode", {},
        h("div.phone", {}, canvas, said, trouble, keys, text),
        h("div.stack", {}, verdict,
          h("section.panel", {}, h("header", {}, h("h2", {}, "When you are done")), h("div.body.stack", {}, answer, claims)),
          h("section.panel", {}, h("header", {}, h("h2", {}, "What you did")), h("div.body", {}, list)),
          h("section.panel", {}, h("header", {}, h("h2", {}, "What can be touched")), h("div.body", {}, elements)),
          h("section.panel", {}, h("header", {}, h("h2", {}, "Keys and mouse")), h("div.body.stack", {}, h("dl.facts", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
            h("p.soft", {}, `The task is ${state.task}, on a phone of your own: no run is touched by it. It is given back ${Math.round(state.idle_s / 60)} minutes after you used it last.`)))))),
    ready: async () => { addEventListener("resize", resized); tell(); if (state.picture) await load(screen().picture); resized(); canvas.focus({ preventScroll: true }); },
    painted: () => paint(),
    key,
    close: () => { removeEventListener("resize", resized); leave(); },
  };
}
