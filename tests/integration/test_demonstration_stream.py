"""Demonstrations from processes of their own: what they draw, how it travels, and what happens when one dies."""

from __future__ import annotations

import sys
from io import BytesIO
from itertools import chain, islice
from random import Random

import pytest
from PIL import Image

from distrl.config.load import load_config
from distrl.errors import RoleCrashed, TaskError
from distrl.experience.frames import reference_of
from distrl.pretraining import demonstrations
from distrl.pretraining.demonstrations import (
    DemonstratedStep,
    WorkerJob,
    _grounding_step,
    demonstrate,
    demonstration_tasks,
    draw,
    read_episodes,
    write_episodes,
)
from distrl.pretraining.stream import TIMEOUT_S, DemonstrationStream
from distrl.tasks.sim.oracle import play_oracle
from distrl.types import Action, Observation, Tap, Value, Wait
from support.batches import led_astray
from support.faketime import FakeTime
from support.pixels import TINY, pictured_screens, pixel_config

CONFIG = pixel_config(
    warm_start__demonstrations=6, warm_start__samples=40, warm_start__processes=2, warm_start__pointing_share=0.0
)


def steps_of(number: int, num: int) -> int:
    """Steps of one process's share of the demonstrations."""
    tasks = demonstration_tasks(CONFIG)[number::num]
    return len(demonstrate(tasks, CONFIG.devices.sim.perturbations, history=6))


def drawn(count: int, *, number: int = 0, num: int = 1, **changes: Value) -> list[DemonstratedStep]:
    config = pixel_config(warm_start__demonstrations=6, **changes)
    episodes = draw(WorkerJob(config=config, number=number, num=num))
    return list(islice(chain.from_iterable(episodes), count))


# --- what one process draws


def test_every_step_comes_with_its_picture_in_the_size_of_the_phones() -> None:
    for shown in drawn(12):
        assert shown.observation.screenshot == reference_of(shown.frame)
        assert Image.open(BytesIO(shown.frame)).size == (TINY.picture_width, TINY.picture_height)


def test_perturbations_under_which_the_oracle_fails_end_no_data_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = demonstration_tasks(CONFIG)
    astray = [led_astray(task) if number % 2 else task for number, task in enumerate(tasks)]
    with pytest.raises(TaskError):
        play_oracle(astray[1], CONFIG.devices.sim.perturbations)
    monkeypatch.setattr(demonstrations, "demonstration_tasks", lambda config: astray)
    episodes = list(islice(draw(WorkerJob(config=CONFIG, number=0, num=1)), 2 * len(tasks[::2])))
    assert all(episodes)
    assert {episode[0].observation.instruction for episode in episodes} == {task.instruction for task in tasks[::2]}


def told(seen: Observation, action: Action) -> str:
    """A step in words, without its pictures."""
    return repr((seen.instruction, [(past.action, past.target) for past in seen.recent], action))


def test_the_first_turn_shows_the_demonstrations_themselves_and_later_ones_show_them_with_other_perturbations() -> None:
    count = steps_of(0, 1)
    shown = drawn(3 * count)
    plain = demonstrate(demonstration_tasks(CONFIG), CONFIG.devices.sim.perturbations, history=6)
    first = [told(one.observation, one.action) for one in shown[:count]]
    assert sorted(first) == sorted(told(seen, act) for seen, act in plain)
    assert {one.observation.instruction for one in shown} == {seen.instruction for seen, _ in plain}
    new = {one.frame for one in shown[count:]} - {one.frame for one in shown[:count]}
    assert len(new) > count


def test_processes_share_the_demonstrations_and_show_none_twice() -> None:
    said = [{one.observation.instruction for one in drawn(steps_of(n, 3), number=n, num=3)} for n in range(3)]
    together = {task.instruction for task in demonstration_tasks(CONFIG)}
    assert said[0] | said[1] | said[2] == together
    assert sum(map(len, said)) == len(together)


def test_more_processes_than_demonstrations_end_at_once() -> None:
    assert drawn(5, number=6, num=7) == []


def test_asked_for_screens_come_again_with_something_to_tap_by_name() -> None:
    shown = drawn(40, warm_start__pointing_share=1.0)
    asked = [one for one in shown if one.observation.instruction.startswith("Tap ")]
    assert len(asked) >= 15
    assert all(isinstance(one.action, Tap) and one.observation.recent == () for one in asked)
    assert {one.frame for one in asked} <= {one.frame for one in shown if one not in asked}


def test_what_is_asked_for_by_name_is_where_the_tap_goes() -> None:
    seen = pictured_screens(1)[0]
    for dice in range(20):
        (asked,) = _grounding_step(seen, b"", Random(dice))
        name = asked.observation.instruction.removeprefix("Tap ")
        (element,) = [e for e in seen.elements if (e.text or e.description) == name]
        assert isinstance(asked.action, Tap)
        assert element.clickable
        assert element.bounds.contains(asked.action.x, asked.action.y)


def test_a_policy_that_reads_no_screenshots_gets_none() -> None:
    config = load_config(None, {"warm_start.demonstrations": 6})
    steps = islice(chain.from_iterable(draw(WorkerJob(config=config, number=0, num=1))), 5)
    assert {(one.frame, one.observation.screenshot) for one in steps} == {(b"", "")}


# --- how it travels


def test_what_is_written_is_read_back_and_a_torn_end_is_dropped() -> None:
    steps = [
        DemonstratedStep(observation=Observation(instruction=f"No {n}"), action=Wait(), frame=b"x" * n)
        for n in range(5)
    ]
    records = [tuple(steps), (), tuple(steps[:2])]
    file = BytesIO()
    write_episodes(records, file)
    assert list(read_episodes(BytesIO(file.getvalue()))) == records
    assert list(read_episodes(BytesIO(file.getvalue()[:-1]))) == records[:-1]
    assert list(read_episodes(BytesIO(b"\0\0"))) == []


def test_a_stream_mixes_what_its_processes_draw_and_leaves_none_behind() -> None:
    with DemonstrationStream(CONFIG, random=Random(0)) as stream:
        batches = [stream.take(8, lambda: None) for _ in range(4)]
        processes = list(stream._workers.processes)
    assert [len(batch) for batch in batches] == [8] * 4
    assert len({one.observation.instruction for batch in batches for one in batch}) > 2
    assert all(one.frame for batch in batches for one in batch)
    assert all(process.poll() is not None for process in processes)


def test_a_data_worker_that_dies_is_named() -> None:
    dies = (sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)")
    with (
        DemonstrationStream(CONFIG, random=Random(0), command=dies) as stream,
        pytest.raises(RoleCrashed, match=r"data worker \d of the 2 .* ended with 7"),
    ):
        stream.take(8, lambda: None)


def test_a_stream_that_stays_dry_is_given_up_in_the_end() -> None:
    time, sleeps = FakeTime(), (sys.executable, "-c", "import time; time.sleep(60)")

    def waiting() -> None:
        time.now_s += TIMEOUT_S / 2

    with (
        DemonstrationStream(CONFIG, random=Random(0), clock=time.clock, command=sleeps) as stream,
        pytest.raises(RoleCrashed, match=f"no demonstration came for {TIMEOUT_S:g} s"),
    ):
        stream.take(8, waiting)
