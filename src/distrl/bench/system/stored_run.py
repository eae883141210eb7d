"""A stored run of any size, written in seconds, to measure and test what reads runs: episodes, metrics, heartbeats and logs.

It is a run folder like every other, with made-up content: three quarters of the failures say why, screens have elements and no pictures.
"""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

import msgspec

from distrl.config.load import load_config
from distrl.evaluation.report import make_report
from distrl.experience.episode_file import encode
from distrl.experience.store import SUFFIX, ExperienceStore
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.telemetry.heartbeat import Heartbeat
from distrl.telemetry.spans import EVENT as SPANS
from distrl.telemetry.spans import Span
from distrl.transport.base import BudgetUsed
from distrl.transport.files import FileBudget, FileHeartbeats
from distrl.types import (
    Action,
    Bounds,
    CustomCheck,
    CustomSetup,
    Decision,
    Ending,
    EndState,
    Finish,
    Observation,
    Past,
    Press,
    RunnerUp,
    Step,
    Swipe,
    Tap,
    Task,
    Trajectory,
    TypeText,
    UiElement,
    Verdict,
)

TEMPLATES = (
    ("contacts-call", "Call {}"), ("mail-archive", "Archive the mail from {}"), ("notes-delete", "Delete the note about {}"),
    ("settings-wifi", "Turn off wireless for {}"), ("messages-mute", "Mute the chat with {}"), ("calendar-move", "Move the meeting with {}"),
)  # fmt: skip
PEOPLE = (
    "Ivan Petrov",
    "Mei Tanaka",
    "Lucia Ortega",
    "Felix Brandt",
    "Ama Mensah",
    "Yusuf Demir",
    "Zara Malik",
    "Lin Zhang",
)
REASONS = (
    "notes.note 'n4' ('Tea brands') should be gone",
    "the wrong person was called",
    "changed what nobody asked for: notes.note/n4 ('Tea brands') is gone",
)
BEGAN_S = 1_760_000_000.0
EVERY_S = 0.35
NUM_DEVICES, EPISODES_PER_VERSION = 64, 40
ELEMENTS = 22

_ROW = "INSERT INTO episodes (id, task, template, version, steps, success, source, ending, wall_s, worker, created_s, size_bytes) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"


def write_stored_run(root: Path, num_episodes: int, *, seed: int = 0) -> RunFolder:
    """A run folder in `root` with so many played episodes."""
    config = load_config(None, {"run.root": str(root), "run.name": f"stored-{num_episodes}"})
    run = create_run(config, now=datetime.now())
    chance = random.Random(seed)
    screens = [_screen(number) for number in range(24)]
    found = [_episode(number, num_episodes, screens, chance) for number in range(num_episodes)]
    _store(run, found)
    _describe(run, num_episodes, found)
    return run


def _store(run: RunFolder, found: list[Trajectory]) -> None:
    """Files and rows at once, and not synced: nobody's experience is at stake."""
    with ExperienceStore(run.experience):
        pass  # which makes the folders and the index
    rows = []
    for number, one in enumerate(found):
        created_s = BEGAN_S + EVERY_S * number
        content = encode(one, created_s=created_s)
        folder = run.experience / "episodes" / blake2b(one.id.encode(), digest_size=1).hexdigest()
        (folder / f"{one.id}{SUFFIX}").write_bytes(content)
        rows.append(
            (one.id, one.task.id, one.task.template, one.version, len(one.steps), one.verdict.success, one.source, one.ending.value,
             one.wall_s, one.worker, created_s, len(content))
        )  # fmt: skip
    with closing(sqlite3.connect(run.experience / "index.sqlite")) as index, index:
        index.executemany(_ROW, rows)


def _screen(number: int) -> Observation:
    names = [PEOPLE[(number + row) % len(PEOPLE)] for row in range(ELEMENTS - 2)]
    rows = [
        UiElement(
            bounds=Bounds(0.04, 0.12 + row * 0.042, 0.96, 0.158 + row * 0.042),
            text=f"{name} {row}",
            class_name="ListItem",
            resource_id=f"row:{row}",
            clickable=True,
        )
        for row, name in enumerate(names)
    ]
    title = UiElement(bounds=Bounds(0.1, 0.03, 0.9, 0.09), text=f"Screen {number}", class_name="TextView")
    more = UiElement(bounds=Bounds(0.9, 0.03, 1.0, 0.09), text="More", class_name="Button", clickable=True)
    return Observation(
        instruction="", elements=(title, more, *rows), width_px=360, height_px=720, app=f"app-{number % 6}"
    )


def _episode(number: int, total: int, screens: list[Observation], chance: random.Random) -> Trajectory:
    template, wording = TEMPLATES[number % len(TEMPLATES)]
    person = PEOPLE[chance.randrange(len(PEOPLE))]
    success = chance.random() < 0.35 + 0.5 * number / total
    version = max(0, number // EPISODES_PER_VERSION - chance.randrange(4))
    task = Task(
        id=f"sim-start/train/{chance.randrange(3000):05d}",
        suite="sim-start",
        template=template,
        split="train",
        instruction=wording.format(person),
        setup=CustomSetup(values={"person": person}),
        check=CustomCheck(values={"person": person}),
        max_steps=12,
    )
    steps = tuple(_steps(chance.randint(2, 9), task, version, success, screens, chance))
    lost = chance.random() < 0.01
    ending = (
        Ending.DEVICE_LOST
        if lost
        else Ending.FINISHED
        if isinstance(steps[-1].decision.action, Finish)
        else Ending.STEP_LIMIT
    )
    verdict = _verdict(success=success, lost=lost, chance=chance)
    return Trajectory(
        id=f"episode-{number:06d}",
        task=task,
        steps=steps,
        ending=ending,
        verdict=verdict,
        end=EndState(claim=Finish()),
        priority=1.0 + chance.random(),
        worker=f"worker-{number % 2}",
        device=f"worker-{number % 2}/phone-{number % NUM_DEVICES}",
        wall_s=round(2.0 + 3.0 * chance.random(), 2),
        last=None if ending.is_terminal else screens[number % len(screens)],
    )


def _verdict(*, success: bool, lost: bool, chance: random.Random) -> Verdict:
    if lost:
        return Verdict(outcome="unknown", reason="the device was lost")
    if success:
        return Verdict(outcome="success", progress=1.0)
    return Verdict(outcome="failure", reason=chance.choice(REASONS), false_completion=True)


def _steps(
    count: int, task: Task, version: int, success: bool, screens: list[Observation], chance: random.Random
) -> Iterator[Step]:
    recent: tuple[Past, ...] = ()
    for number in range(count):
        seen = screens[chance.randrange(len(screens))]
        seen = msgspec.structs.replace(seen, instruction=task.instruction, recent=recent[-2:])
        action: Action = Tap(0.5, 0.14 + 0.042 * chance.randrange(ELEMENTS - 2))
        if number == count - 1:
            action = Finish()
        elif chance.random() < 0.1:
            action = Swipe(0.5, 0.7, 0.5, 0.3) if chance.random() < 0.7 else TypeText(task.instruction[:12])
        changed = chance.random() < 0.9
        recent = (*recent, Past(action=action, changed=changed))
        yield Step(
            observation=seen,
            decision=Decision(
                action=action,
                choice=(number, 0, 0),
                logp=math.log(0.3 + 0.69 * chance.random()),
                entropy=round(chance.random(), 4),
                value=round(0.3 + 0.5 * chance.random(), 4),
                runners_up=_others(action),
            ),
            version=version,
            reward=float(success and number == count - 1) - (0.0 if changed else 0.01),
            changed=changed,
            device_s=round(0.4 + chance.random(), 3),
        )


def _others(action: Action) -> tuple[RunnerUp, ...]:
    """Up to three other actions, the likeliest first."""
    others: list[Action] = [one for one in (Tap(0.5, 0.182), Tap(0.5, 0.56), Press("back")) if one != action]
    return tuple(RunnerUp(one, round(math.log(0.2 / 2**rank), 4)) for rank, one in enumerate(others))


# --- what roles wrote beside them -------------------------------------------------------------------------------------


def _describe(run: RunFolder, num_episodes: int, found: list[Trajectory]) -> None:
    span_s = EVERY_S * num_episodes
    lines = []
    for at_s in range(0, int(span_s) + 1, 5):
        share = at_s / span_s if span_s else 0.0
        version = int(share * num_episodes / EPISODES_PER_VERSION)
        learner = {
            "learner/version": version, "learner/updates": 2.0 * num_episodes * share, "learner/loss/policy": 0.4 * math.exp(-3 * share), "learner/loss/value": 0.6 * math.exp(-2 * share),
            "learner/loss/total": 1.2 * math.exp(-2 * share), "learner/entropy": 0.9 - 0.6 * share, "learner/idle": 0.1,
            "learner/intake": 0.05, "learner/staleness/mean": 2.5, "learner/staleness/max": 8, "learner/gradient_norm": 1.0 + share,
            "learner/replay/eligible": min(2000.0, num_episodes * share),
        }  # fmt: skip
        worker = {
            "worker/busy_s": 31.0 * at_s,
            "worker/device_s": 32.0 * at_s,
            "worker/batch/mean": 7.5,
            "worker/invalid/share": 0.02,
        }
        time_s = BEGAN_S + at_s
        lines.append({"time_s": time_s, "event": "learner", "role": "learner", **learner})
        lines += [{"time_s": time_s, "event": "worker", "role": f"worker-{n}", **worker} for n in range(2)]
    run.metrics.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    _logs(run, found)
    run.heartbeats.mkdir(exist_ok=True)
    beats = FileHeartbeats(run.heartbeats)
    for role in ("learner", "worker-0", "worker-1", "evaluator"):
        beats.beat(
            Heartbeat(
                role=role, pid=0, phase="stopped", what="finished", since_s=0.0, beat_s=0.0, time_s=BEGAN_S + span_s
            )
        )
    FileBudget(run.budget).write(BudgetUsed(wall_s=span_s, collect_s=span_s, busy_s=62 * span_s, device_s=64 * span_s))
    run.evaluations.mkdir(exist_ok=True)
    third = max(1, num_episodes // 3)
    for name, part in (("before", found[:third][:100]), ("v000040", found[third:][:100]), ("after", found[-100:])):
        report = make_report(part, suite="sim-start", version=int(name[1:]) if name.startswith("v") else 0)
        (run.evaluations / f"{name}.json").write_bytes(msgspec.json.encode(report))


def _logs(run: RunFolder, found: list[Trajectory]) -> None:
    for worker in ("worker-0", "worker-1"):
        lines = []
        for number, one in enumerate(found):
            if one.worker != worker:
                continue
            time_s = BEGAN_S + EVERY_S * number
            lines.append({"time_s": time_s, "event": "acknowledged", "id": one.id, "success": one.verdict.success})
            if one.ending is Ending.DEVICE_LOST:
                lines.append(
                    {
                        "time_s": time_s,
                        "event": "device_lost",
                        "device": one.device,
                        "why": "it took over 30 s to answer",
                    }
                )
            if number % 20 < 2:
                spans = [Span("decides", round(time_s - 1.0 + at / 10, 3), 0.03, 7) for at in range(8)]
                lines.append(
                    {"time_s": time_s, "event": SPANS, "done": msgspec.json.encode(spans).decode(), "missing": 0}
                )
        run.log(worker).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    events = [
        {"time_s": BEGAN_S, "event": "session"},
        {"time_s": BEGAN_S + 60, "event": "died", "role": "worker-1", "why": "killed by SIGKILL", "restarts": 1},
    ]
    run.log("supervisor").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in events))
