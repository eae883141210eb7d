// One episode, screen first: what was seen, what was done, what the policy thought of it, and what it was worth.

import { at_most, begin, get, of, page } from "../api.js";
import { ago, duration, h, link, put, short } from "../dom.js";
import { draw, ended, fit, frame, light, name_of, outcome_of, words } from "../screen.js";

const LOOK_MS = 550, ACT_MS = 650, AGAIN_MS = 4000;

export async function show({ place, go, say_title }) {
  const run = place.run, episode = await get(of(run, `/episodes/${encodeURIComponent(place.id)}`));
  say_title(episode.instruction);
  const steps = episode.steps, last = episode.last ? steps.length + 1 : steps.length;
  const canvas = h("canvas", { role: "img" }), caption = h("p.caption", { "aria-live": "polite" }), where = h("span.where"), facts = h("dl.facts"), choices = h("ol.choices");
  const play = h("button", { type: "button", onclick: () => toggle() }, "Play"), slider = h("input", { type: "range", min: 1, max: String(last), "aria-label": "Step", oninput: () => to(Number(slider.value)) });
  let at = Math.max(1, Math.min(last, place.step)), timer = 0, playing = false;
  const address = (step) => page(run, `/episodes/${encodeURIComponent(episode.id)}/${step}`);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

  const ticks = h("div.ticks", { "aria-hidden": "true" }, steps.map((step, number) => h(`button${step.changed && step.valid ? "" : ".noop"}`, { type: "button", tabindex: "-1", title: `step ${number + 1}: value ${short(step.value)}`, onclick: () => to(number + 1) }, h("i", { style: { height: `${Math.round(100 * Math.max(0.12, Math.min(1, step.value)))}%` } }))));
  const list = h("ol.steps", {}, steps.map((step, number) => h("li", {}, link(address(number + 1), { "data-replace": "true" },
    h("span.n", {}, number + 1), h("span.wrap", {}, words(step.action, name_of(step.elements[step.hit])), h("small.soft", {}, notes(step))),
    h("span", {}, step.probability === null ? "–" : probability(step.probability)), h("span", {}, short(step.value)), signed(step.advantage), signed(step.reward), h("span", {}, `v${step.version}`)))));

  function to(step, { share = 1, push = true } = {}) {
    at = Math.max(1, Math.min(last, step));
    const now = steps[at - 1], screen = now || episode.last;
    slider.value = String(at);
    slider.setAttribute("aria-valuetext", now ? `step ${at} of ${steps.length}` : "the last screen");
    const target = now && now.hit >= 0 ? now.elements[now.hit] : null;
    put(caption, now ? words(now.action, name_of(target)) : "the screen after the last step", h("small", {}, now ? notes(now) || "the screen changed" : ended(episode.ending)));
    put(where, now ? `${at} of ${steps.length} · value ${short(now.value)}` : "end");
    canvas.setAttribute("aria-label", `screen at step ${at}${now ? `: ${words(now.action, name_of(target))}` : ""}`);
    paint(share);
    put(facts, now ? details(now, target) : []);
    put(choices, now ? chosen_among(now) : []);
    list.querySelectorAll("a").forEach((anchor, number) => number === at - 1 ? anchor.setAttribute("aria-current", "step") : anchor.removeAttribute("aria-current"));
    ticks.querySelectorAll("button").forEach((button, number) => number === at - 1 ? button.setAttribute("aria-current", "step") : button.removeAttribute("aria-current"));
    if (push && location.pathname !== address(at)) history.replaceState(null, "", address(at));
    return screen;
  }

  /** The action with its probability among the likeliest others, the likeliest first. */
  function chosen_among(step) {
    const all = [{ action: step.action, hit: step.hit, probability: step.probability, chosen: true }, ...step.runners_up].sort((a, b) => (b.probability ?? 2) - (a.probability ?? 2));
    const rows = all.map((one) => h(`li${one.chosen ? ".chosen-one" : ""}`, {}, h("i", { "aria-hidden": "true", style: { width: `${100 * (one.probability ?? 0)}%` } }), h("span.wrap", {}, words(one.action, name_of(step.elements[one.hit]))), h("span", {}, one.chosen ? "chosen" : ""), h("span.num", {}, one.probability === null ? "–" : probability(one.probability))));
    if (!step.runners_up.length) rows.push(h("li.soft", {}, h("span", {}, step.probability === null ? "Probabilities were not recorded." : step.probability > 0.99 ? "Nothing else was likely." : "No runners-up were recorded.")));
    return rows;
  }

  function paint(share = 1) {
    const now = steps[at - 1], screen = now || episode.last;
    draw(canvas, { ...screen, elements: screen.elements.map(light), picture: screen.screenshot ? frame(run, screen.screenshot) : "" }, now && share > 0 ? { action: now.action, hit: now.hit, others: now.runners_up.map((one) => one.hit), share } : {});
  }

  function details(step, target) {
    const rows = [
      ["action", words(step.action, name_of(target))], ["element", target ? `${name_of(target)} (${target.class_name}${target.resource_id ? `, ${target.resource_id}` : ""})` : "none"],
      ["place", Number.isFinite(step.action.x) && Number.isFinite(step.action.y) ? `${step.action.x.toFixed(3)}, ${step.action.y.toFixed(3)}` : "–"],
      ["probability", step.probability === null ? "not recorded" : `${probability(step.probability)} under version ${step.version}`], ["entropy", `${short(step.entropy)} nats`], ["value", short(step.value)],
      ["advantage", `${short(step.advantage)} from the recorded values, gamma ${episode.gamma}`], ["reward", step.device_reward ? `${short(step.reward)}, and ${short(step.device_reward)} of the device` : short(step.reward)],
      ["version", `${step.version}, ${step.staleness} behind the learner when it was stored`], ["device took", Number.isFinite(step.device_s) ? `${step.device_s.toFixed(2)} s` : "–"], ["app", step.app || "not known"], ["screen", step.screenshot ? "a picture" : `${step.elements.length} elements, drawn as boxes: no picture was kept`],
    ];
    return rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  }

  function toggle(on = !playing) {
    playing = on;
    put(play, playing ? "Pause" : "Play");
    clearTimeout(timer);
    if (!playing) return to(at);
    if (at >= last) at = 1;
    const look = () => { to(at, { share: steps[at - 1] ? 0 : 1 }); timer = setTimeout(act, LOOK_MS); };
    const act = () => {
      if (!steps[at - 1]) return toggle(false);
      const began = performance.now();
      const move = (now) => {
        if (!playing) return;
        const share = still ? 1 : Math.min(1, (now - began) / 220);
        paint(share);
        if (share < 1) requestAnimationFrame(move);
      };
      requestAnimationFrame(move);
      timer = setTimeout(() => { if (at >= last) return toggle(false); at += 1; look(); }, ACT_MS);
    };
    look();
  }

  const verdict = episode.verdict, outcome = outcome_of(verdict.outcome === "success", episode.ending, verdict.outcome);
  const refused = h("p.down.wrap", { role: "alert" });
  const yourself = h("button", { type: "button", onclick: async () => { put(refused); try { await begin(go, { run, episode: episode.id }); } catch (error) { put(refused, error.message); } } }, "Try this task yourself");
  const newer = h("span"), say_newer = () => put(newer, other(episode.newer, "newer", "k"));
  const again = at_most(AGAIN_MS, async () => { episode.newer = (await get(of(run, `/episodes/${encodeURIComponent(episode.id)}`))).newer; say_newer(); });
  const other = (id, text, key) => id ? link(page(run, `/episodes/${encodeURIComponent(id)}`), { title: key }, text) : h("span.soft", {}, text);
  const root = h("div.stack", {},
    h("div.head", {}, h("h1.wrap", {}, episode.instruction), h("div.tools", {}, newer, other(episode.older, "older", "j"), link(page(run, "/episodes"), {}, "all episodes"), episode.by_hand ? yourself : null)), refused,
    h("div.episode", {},
      h("div.phone", {}, canvas, caption, h("div.player", {}, ticks, slider, h("div.buttons", {}, h("button", { type: "button", "aria-label": "Step back", onclick: () => to(at - 1) }, "‹"), play, h("button", { type: "button", "aria-label": "Step forth", onclick: () => to(at + 1) }, "›"), where))),
      h("div.stack", {},
        h("section.panel", { "aria-label": "Verdict" }, h("div.verdict", {}, h("div", {}, h(`span.chip.${outcome}`, {}, outcome.replace("_", " ")), h("span.soft", {}, ` ${outcome === "cut_off" ? "by the end of the run" : ended(episode.ending)} after ${steps.length} ${steps.length === 1 ? "step" : "steps"}, ${duration(episode.wall_s)}${verdict.false_completion ? "; it claimed to be done and was not" : ""}`)), h("p.reason", {}, outcome === "cut_off" ? "It was under way when the run ended, and neither succeeded nor failed." : verdict.reason || (outcome === "success" ? "All conditions hold." : "The judge gave no reason.")), verdict.side_effects?.length ? h("p.down.wrap", {}, `changed without being asked: ${verdict.side_effects.join("; ")}`) : null, episode.claim ? h("p.soft.wrap", {}, `the agent said: ${episode.claim}`) : null,
          h("details", {}, h("summary", {}, "What had to hold, and what changed on the device"), h("h3", {}, "had to hold"), h("pre.code", {}, episode.check), episode.left ? [h("h3", {}, "was left"), h("pre.code", {}, episode.left)] : null))),
        h("section.panel", { "aria-label": "Chosen among" }, h("header", {}, h("h2", {}, "Chosen among")), choices),
        h("section.panel", {}, h("div.steps", {}, h("div.titles", { "aria-hidden": "true" }, ["", "step", "prob.", "value", "adv.", "reward", "version"].map((name) => h("span", {}, name)))), list),
        h("div.cols", {}, h("section.panel", {}, h("header", {}, h("h2", {}, "This step")), h("div.body", {}, facts)),
        h("section.panel", {}, h("header", {}, h("h2", {}, "This episode")), h("div.body", {}, h("dl.facts", {},
          [["task", link(page(run, `/episodes?task=${encodeURIComponent(episode.task)}`), {}, episode.task)], ["template", link(page(run, `/episodes?template=${encodeURIComponent(episode.template)}`), {}, episode.template)], ["device", episode.device ? link(page(run, `/episodes?device=${encodeURIComponent(episode.device)}`), {}, episode.device) : "–"], ["worker", episode.worker || "–"], ["progress", `${Math.round(100 * (verdict.progress || 0))} % of the conditions`], ["first priority", short(episode.priority)], ["stored", ago(episode.created_s)], ["kind", episode.source], ["id", h("span.mono", {}, episode.id)]].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))))))));
  const resized = () => { fit(canvas, steps[0]); paint(); };
  fit(canvas, steps[0]);
  say_newer();
  return {
    root,
    ready: () => { to(at, { push: false }); resized(); addEventListener("resize", resized); },
    moved: (next) => { if (next.name !== "episode" || next.run !== run || next.id !== episode.id) return false; toggle(false); to(next.step, { push: false }); return true; },
    painted: () => paint(),
    pulse: (pulse) => { if (pulse.live && !episode.newer) again.ask(); },
    key: (event) => {
      const jumps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 1, End: last };
      if (event.key in jumps && event.target !== slider) { event.preventDefault(); toggle(false); to(jumps[event.key]); }
      else if (event.key === " " && !event.target.closest("button, a, summary, input")) { event.preventDefault(); toggle(); }
      else if (event.key === "j" && episode.older) go(page(run, `/episodes/${encodeURIComponent(episode.older)}`));
      else if (event.key === "k" && episode.newer) go(page(run, `/episodes/${encodeURIComponent(episode.newer)}`));
    },
    close: () => { again.end(); playing = false; clearTimeout(timer); removeEventListener("resize", resized); },
  };
}

const probability = (value) => (value >= 0.9995 ? "100 %" : value >= 0.0995 ? `${(100 * value).toFixed(0)} %` : value >= 0.001 ? `${(100 * value).toFixed(1)} %` : "< 0.1 %");
const signed = (value) => h(`span${value > 0.005 ? ".up" : value < -0.005 ? ".down" : ""}`, {}, value > 0 ? `+${short(value)}` : short(value).replace("-", "−"));
function notes(step) {
  const said = [];
  if (!step.valid) said.push("the device refused it");
  else if (!step.changed && step.action.type !== "finish") said.push("nothing changed");
  return said.length ? ` ${said.join(", ")}` : "";
}
