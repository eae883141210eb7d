"""Behaviour cloning from a person's own demonstrations: written down in a file, played on a phone, learnt by `distrl sft`.

    python examples/own_demonstrations.py examples/demonstrations.json   # prints the run folder that holds them
    distrl sft first-run --data runs/…-demonstrations                    # learns them; then watch, evaluate, train --resume

A demonstration is a task and the actions in words, as `distrl tasks try ID --agent hand` takes them, but with labels instead of
numbers: "tap Contacts", "type hello", "swipe up", "back", "done". Only those that the judge calls a success are learnt from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import distrl
from distrl import types as t

FIXED: dict[str, t.Action] = {"back": t.Press("back"), "home": t.Press("home"), "enter": t.Press("enter")}
FIXED |= {"swipe up": t.Swipe(0.5, 0.7, 0.5, 0.3), "swipe down": t.Swipe(0.5, 0.3, 0.5, 0.7)}


def read(words: str, seen: t.Observation) -> t.Action:
    """The action that is meant on this screen; where there is none, the program ends and says what there is."""
    rest = words.partition(" ")[2]
    others = {**FIXED, f"type {rest}": t.TypeText(rest), f"done {rest}".strip(): t.Finish(answer=rest)}
    taps = [(f"tap {text}", e) for e in seen.elements for text in (e.text, e.description) if text]
    if found := [e for label, e in taps if label.lower() == words.lower()]:
        return t.Tap(*max(found, key=lambda e: e.clickable).bounds.centre)
    known = ", ".join([*dict(taps), *FIXED, "type TEXT", "done", "done ANSWER"])
    return others.get(words) or sys.exit(f"{words or 'no action left'}: cannot be done on this screen\ntry: {known}")


def play(number: int, task: str, does: list[str]) -> t.Trajectory:
    """The demonstration as an episode, judged."""
    env = distrl.make_env(task.partition("/")[0])
    _, info = env.reset(options={"task": task})
    steps, over, left = list[t.Step](), False, iter(does)
    while not over:
        seen: t.Observation = info["observation"]
        decision = t.Decision(action=read(next(left, ""), seen), choice=(), logp=0.0, entropy=0.0, value=0.0)
        _, _, terminated, truncated, info = env.step(decision.action)
        done, over = info["performed"], terminated or truncated
        steps.append(t.Step(observation=seen, decision=decision, version=0, valid=done.valid, changed=done.changed))
    print(task, info["task"].instruction, "->", info["verdict"].outcome)
    kept = {"ending": t.Ending.FINISHED, "verdict": info["verdict"], "end": t.EndState(), "source": "demonstration"}
    return t.Trajectory(id=f"mine-{number:04d}", task=info["task"], steps=tuple(steps), **kept)


played = [play(n, one["task"], one["does"]) for n, one in enumerate(json.loads(Path(sys.argv[1]).read_text()))]
run = distrl.record(played).path  # makes a run folder once all have been played
print(f"{run}\nnext: distrl sft first-run --data {run}")
