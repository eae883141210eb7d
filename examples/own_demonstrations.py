"""Behaviour cloning from a person's own demonstrations: written down in a file, played on a phone, learnt by `distrl sft`.

    python examples/own_demonstrations.py examples/demonstrations.json   # prints the run folder that holds them
    distrl sft configs/first-run.toml --data runs/…-demonstrations       # learns them; then watch, evaluate, train --resume

A demonstration is a task and the actions in words, as `distrl tasks try ID --agent hand` takes them, but with labels instead of
numbers: "tap Contacts", "type hello", "swipe up", "back", "done". Only those that the judge calls a success are learnt from.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import distrl
from distrl import types as t
from distrl.config.load import load_config
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import create_run

SWIPES = {"up": t.Swipe(0.5, 0.7, 0.5, 0.3), "down": t.Swipe(0.5, 0.3, 0.5, 0.7)}


def read(words: str, seen: t.Observation) -> t.Action:
    """The action that is meant on this screen."""
    verb, _, rest = words.partition(" ")
    if verb == "tap":
        found = [e for e in seen.elements if rest.lower() in (e.text.lower(), e.description.lower())]
        return t.Tap(*max(found, key=lambda e: e.clickable).bounds.centre)
    others: dict[str, t.Action] = {"type": t.TypeText(rest), "done": t.Finish(answer=rest), "enter": t.Press("enter")}
    return others.get(verb) or (SWIPES[rest] if verb == "swipe" else t.Press("home" if verb == "home" else "back"))


def play(number: int, task: str, does: list[str]) -> t.Trajectory:
    """The demonstration as an episode, judged."""
    env = distrl.make_env(task.partition("/")[0])
    _, info = env.reset(options={"task": task})
    steps, over = list[t.Step](), False
    while not over:
        seen: t.Observation = info["observation"]
        decision = t.Decision(action=read(does[len(steps)], seen), choice=(), logp=0.0, entropy=0.0, value=0.0)
        _, _, terminated, truncated, info = env.step(decision.action)
        done, over = info["performed"], terminated or truncated
        steps.append(t.Step(observation=seen, decision=decision, version=0, valid=done.valid, changed=done.changed))
    print(task, info["task"].instruction, "->", info["verdict"].outcome)
    kept = {"ending": t.Ending.FINISHED, "verdict": info["verdict"], "end": t.EndState(), "source": "demonstration"}
    return t.Trajectory(id=f"mine-{number:04d}", task=info["task"], steps=tuple(steps), **kept)


run = create_run(load_config(None, {"run.name": "demonstrations"}), now=datetime.now())
with ExperienceStore(run.experience) as store:
    for number, one in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        store.add(play(number, one["task"], one["does"]))
print(run.path)
