"""Demonstrations: what the scripted oracle observes and does on training tasks.

Also a data worker: a process that reads one `WorkerJob` from its input and writes demonstrated episodes to its output until
nobody reads any more. It repeats its share of the tasks with other perturbations each time (domain randomisation).
Loads no torch, so that many such processes fit beside the learner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from random import Random
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from distrl.config.rules import reads_screenshots
from distrl.config.schema import Config, PerturbationConfig
from distrl.devices.base import Performed
from distrl.devices.sim.device import capture_of
from distrl.devices.sim.layout import WIDTH
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.world import setup_of
from distrl.errors import ConfigError, TaskError
from distrl.experience.frames import FrameCache
from distrl.rollout.observing import ObservationBuilder
from distrl.rollout.scheduler import Portion, TaskFeed
from distrl.tasks.base import find_suite
from distrl.tasks.sim.oracle import Played, play_oracle, solve
from distrl.types import Action, Observation, Tap, Task, UiElement

Renderer = Callable[[PhoneState], str]
"""Renders the screen of a simulated phone and returns the reference of the frame; empty: nothing is rendered."""


def no_frame(_state: PhoneState) -> str:
    """`Renderer` for policies that read no screenshots."""
    return ""


def make_renderer(config: Config, frames: FrameCache) -> Renderer:
    """Renders screens as the phones of a run do, into `frames`; `no_frame` for a policy that reads no screenshots."""
    if not reads_screenshots(config):
        return no_frame
    from distrl.devices.sim import render  # Pillow and its fonts are loaded only where screenshots are wanted

    scale = config.devices.sim.screenshot_width / WIDTH
    return lambda state: frames.put(render.encode_jpeg(render.draw(state, scale)))


def demonstration_tasks(config: Config, count: int | None = None) -> list[Task]:
    """The training tasks that the oracle demonstrates; with a larger `count`, those that would come after them too."""
    suite, portion = find_suite(config.tasks), Portion(max_oracle_steps=config.tasks.max_oracle_steps)
    feed = TaskFeed(suite, "train", seed=f"demonstrations {config.run.seed}", portion=portion)
    tasks = [feed.next() for _ in range(config.warm_start.demonstrations if count is None else count)]
    if any(task.solution is None for task in tasks):
        raise ConfigError(
            f"warm_start.demonstrations = {len(tasks)}, and {suite.name} knows no solutions of its tasks",
            expected="a suite whose tasks have a solution, or no demonstrations",
            fix="--warm_start.demonstrations 0",
        )
    return tasks


def check_solutions(config: Config) -> None:
    """Raise where the oracle cannot demonstrate a template: its first task is played for each."""
    first = {task.template: task for task in reversed(demonstration_tasks(config))}
    for task in first.values():
        solve(task, config.tasks.suite)


def demonstrate(
    tasks: Iterable[Task],
    perturbations: PerturbationConfig,
    *,
    history: int,
    render: Renderer = no_frame,
    width_px: int = WIDTH,
) -> list[tuple[Observation, Action]]:
    """What the oracle observed and did on these tasks, on phones whose screen has this width."""
    pairs: list[tuple[Observation, Action]] = []
    for task in tasks:
        played = play_successfully(task, perturbations)
        if played is not None:
            seen = observations_of(played, task, history=history, render=render, width_px=width_px)
            pairs += zip(seen, played.actions, strict=True)
    return pairs


def demonstrate_in(config: Config, tasks: Iterable[Task], *, render: Renderer) -> list[tuple[Observation, Action]]:
    """What the oracle observes and does on the phones of a run."""
    phones, history = config.devices.sim, config.rollout.history
    return demonstrate(tasks, phones.perturbations, history=history, render=render, width_px=phones.screenshot_width)


def play_successfully(task: Task, perturbations: PerturbationConfig) -> Played | None:
    """The oracle's episode; None where it fails or does not find its way, as happens under some perturbations."""
    try:
        played = play_oracle(task, perturbations)
    except TaskError:
        return None
    return played if played.verdict.success else None


def observations_of(
    played: Played, task: Task, *, history: int, render: Renderer = no_frame, width_px: int = WIDTH
) -> Iterator[Observation]:
    """What a policy would have observed before each of the oracle's actions, as in any other episode."""
    builder = ObservationBuilder(task.instruction, history=history)
    captures = [capture_of(state, width_px=width_px) for state in played.states]
    for number, action in enumerate(played.actions):
        seen = builder.observe(captures[number], screenshot=render(played.states[number]))
        yield seen
        changed = captures[number + 1].elements != captures[number].elements
        builder.record(seen, action, Performed(valid=played.valid[number], changed=changed))


# The process that draws demonstrations: `python -m distrl.pretraining.demonstrations`, as `stream` starts it.


LENGTH_BYTES = 4
MAX_STEPS = 64
"""Frames in memory: more than an oracle's episode has steps."""


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True):
    """What one data worker draws: its share of the demonstrations of a run."""

    config: Config
    number: int
    """Which of `num` processes this is."""
    num: int


class DemonstratedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a demonstration, with its screenshot."""

    observation: Observation
    action: Action
    frame: bytes = b""


DemonstratedEpisode = tuple[DemonstratedStep, ...]


def draw(job: WorkerJob) -> Iterator[DemonstratedEpisode]:
    """This worker's tasks again and again, each time with other perturbations; episodes in which the oracle fails are skipped."""
    random = Random(f"pointing {job.config.run.seed} {job.number}")
    tasks = demonstration_tasks(job.config)[job.number :: job.num]
    turn = 0
    while tasks:
        for task in random.sample(tasks, len(tasks)):
            if steps := tuple(_steps(with_perturbation_seed(task, turn), job.config, random)):
                yield steps
        turn += 1


def _steps(task: Task, config: Config, random: Random) -> Iterator[DemonstratedStep]:
    frames = FrameCache(MAX_STEPS)
    render = make_renderer(config, frames)
    for seen, action in demonstrate_in(config, [task], render=render):
        frame = frames.get(seen.screenshot) if seen.screenshot else b""
        yield DemonstratedStep(observation=seen, action=action, frame=frame)
        if random.random() < config.warm_start.pointing_share:
            yield from _grounding_step(seen, frame, random)


def with_perturbation_seed(task: Task, turn: int) -> Task:
    """The task as it is in turn 0, then with another perturbation seed: other pop-ups, layout and wordings."""
    if not turn:
        return task
    setup = setup_of(task)
    digest = blake2b(f"{setup.seed} {turn}".encode(), digest_size=6).digest()
    return replace(task, setup=replace(setup, seed=int.from_bytes(digest, "big")))


def _grounding_step(seen: Observation, frame: bytes, random: Random) -> Iterator[DemonstratedStep]:
    """The same screen with "Tap" and the name of an element; nothing where no element has a unique name."""
    names = [_name(element) for element in seen.elements]
    named = [e for e in seen.elements if e.clickable and _name(e) and names.count(_name(e)) == 1]
    if named:
        element = random.choice(named)
        asked = replace(seen, instruction=f"Tap {_name(element)}", recent=())
        yield DemonstratedStep(observation=asked, action=Tap(*element.bounds.centre), frame=frame)


def _name(element: UiElement) -> str:
    return element.text or element.description


def write_episodes(episodes: Iterable[DemonstratedEpisode], output: BinaryIO) -> None:
    """Every episode after its length."""
    encoder = msgspec.msgpack.Encoder()
    for episode in episodes:
        data = encoder.encode(episode)
        output.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)


def read_episodes(source: BinaryIO) -> Iterator[DemonstratedEpisode]:
    """What `write_episodes` has written, to its end or to where it breaks off."""
    decoder = msgspec.msgpack.Decoder(DemonstratedEpisode)
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        size = int.from_bytes(head, "big")
        if len(data := source.read(size)) < size:
            return  # the writer was killed in the middle
        yield decoder.decode(data)


def main() -> int:
    """Draw until the reader is gone."""
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=WorkerJob)
    try:
        write_episodes(draw(job), sys.stdout.buffer)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
