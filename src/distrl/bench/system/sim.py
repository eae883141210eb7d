"""`distrl bench sim`: speed and memory of the simulated phones on one core: steps, frames, memory and resets.

A random agent taps, swipes, types and goes back through many different tasks of every suite. Caches do not help: every
frame is drawn once, from a state that has not been drawn before, and every reset creates its phone's content again.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import TypeVar

import msgspec

from distrl.bench.base import BenchOptions
from distrl.config.schema import LatencyConfig
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.devices.sim.render import draw
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.world import content, setup_of
from distrl.rollout.stepping import drive
from distrl.tasks.sim.suites import SUITES
from distrl.types import Action, Press, Split, Swipe, Tap, Task, TypeText, UiElement

T = TypeVar("T")
PHONES = 1000
STEPS_PER_TASK = 20
FRAMES_PER_PHONE = 5
GESTURES: tuple[Action, ...] = (
    Swipe(0.5, 0.6, 0.5, 0.25),
    Swipe(0.5, 0.3, 0.5, 0.65),
    Swipe(0.8, 0.45, 0.2, 0.45),
    Press("back"),
    Press("enter"),
    TypeText("two tickets"),
)


class SimFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The measured rates and sizes."""

    steps_per_s: float
    """Steps of a random agent, each with its observation, without drawing."""
    frames_per_s: float
    """Screens drawn at 360 × 720."""
    phones: int
    """Phones in this process at the same time, each in the middle of its own task."""
    rss_mb: float
    """Memory of the whole process with all of them."""
    reset_ms: float
    """Median time to reset a phone to the start of a task, its content created again."""


def run(options: BenchOptions) -> SimFigures:
    """Measure everything that `distrl bench sim` reports."""
    return measure(options.quick)


def measure(quick: bool) -> SimFigures:
    """Measure everything; `quick` plays fewer tasks, but never with fewer phones."""
    tasks = list(_tasks(60 if quick else 300))
    reset_ms = median(_time_reset(task) for task in tasks) * 1000
    phones = _fill_phones(PHONES, tasks)
    rss_mb = _rss_bytes() / 1e6
    return SimFigures(
        steps_per_s=_steps_per_s(phones[: len(tasks)]),
        frames_per_s=_frames_per_s(list(_states(phones[: len(tasks)]))),
        phones=len(phones),
        rss_mb=rss_mb,
        reset_ms=reset_ms,
    )


def _tasks(count: int) -> Iterator[Task]:
    """Tasks of every suite in turn, training and test tasks alike."""
    suites = list(SUITES.values())
    for index in range(count):
        suite, turn = suites[index % len(suites)], index // len(suites)
        split: Split = "train" if turn % 2 else "test"
        yield suite.task(split, turn * 7 % suite.sizes[split])


def _phone(number: int) -> SimDevice:
    return SimDevice(f"phone-{number}", SimSettings(latency=LatencyConfig(profile="instant"), seed=number))


def _time_reset(task: Task) -> float:
    content.cache_clear()  # drafting the task has made this phone's content already
    phone = _phone(0)
    started = time.perf_counter()
    drive(phone.reset(task))
    return time.perf_counter() - started


def _fill_phones(count: int, tasks: list[Task]) -> list[SimDevice]:
    """Phones in the middle of random play, no two with the same content."""
    phones = [_phone(number) for number in range(count)]
    for number, phone in enumerate(phones):
        task = tasks[number % len(tasks)]
        setup = msgspec.structs.replace(setup_of(task), seed=1_000_000 + number, records=(), start=None)
        task = msgspec.structs.replace(task, setup=setup)
        drive(phone.reset(task))
        play_randomly(phone, STEPS_PER_TASK, Random(number))
    return phones


def _steps_per_s(phones: list[SimDevice]) -> float:
    random = Random(0)
    started = time.perf_counter()
    for phone in phones:
        play_randomly(phone, STEPS_PER_TASK, random)
    return len(phones) * STEPS_PER_TASK / (time.perf_counter() - started)


def _states(phones: list[SimDevice]) -> Iterator[PhoneState]:
    """A few states of every phone, one step apart, as when a screenshot of each step is stored."""
    random = Random(1)
    for phone in phones:
        for _ in range(FRAMES_PER_PHONE):
            yield phone.state
            play_randomly(phone, 1, random)


def _frames_per_s(states: list[PhoneState]) -> float:
    started = time.perf_counter()
    for state in states:
        draw(state)
    return len(states) / (time.perf_counter() - started)


def play_randomly(phone: SimDevice, steps: int, random: Random) -> None:
    """Let a random agent take `steps` steps on a phone."""
    for _ in range(steps):
        elements = drive(phone.capture(screenshot=False)).elements
        drive(phone.perform(_choose(elements, random)))


def _choose(elements: tuple[UiElement, ...], random: Random) -> Action:
    clickable = [element for element in elements if element.clickable]
    if not clickable or random.random() < 0.25:
        return random.choice(GESTURES)
    return Tap(*random.choice(clickable).bounds.centre)


def _rss_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()
