"""The wire format of data workers, the worker process itself, and perturbation seeds."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.load import load_config
from distrl.devices.sim.world import setup_of
from distrl.experience.frames import FrameCache
from distrl.pretraining.demonstrations import (
    LENGTH_BYTES,
    DemonstratedStep,
    WorkerJob,
    demonstrate,
    demonstration_tasks,
    draw,
    make_renderer,
    no_frame,
    play_successfully,
    read_episodes,
    with_perturbation_seed,
    write_episodes,
)
from distrl.types import Action, Finish, Observation, Press, Swipe, Tap, TypeText, Wait
from support.batches import PERTURBED, led_astray, some_tasks
from support.pixels import pixel_config

SHARE = st.floats(0.0, 1.0)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Tap, SHARE, SHARE),
    st.builds(Swipe, SHARE, SHARE, SHARE, SHARE),
    st.builds(TypeText, st.text(max_size=9)),
    st.builds(Finish, answer=st.text(max_size=9)),
    st.just(Press("home")),
    st.just(Wait()),
)
STEPS = st.builds(
    DemonstratedStep,
    observation=st.builds(Observation, instruction=st.text(max_size=12)),
    action=ACTIONS,
    frame=st.binary(max_size=20),
)
EPISODES = st.lists(st.lists(STEPS, max_size=3).map(tuple), max_size=4)


def written(episodes: list[tuple[DemonstratedStep, ...]]) -> bytes:
    file = BytesIO()
    write_episodes(episodes, file)
    return file.getvalue()


@given(EPISODES)
def test_what_a_worker_writes_is_what_the_learner_reads(episodes: list[tuple[DemonstratedStep, ...]]) -> None:
    assert list(read_episodes(BytesIO(written(episodes)))) == episodes


@given(EPISODES, st.data())
def test_output_that_is_cut_off_anywhere_gives_the_whole_episodes_before_the_cut(
    episodes: list[tuple[DemonstratedStep, ...]], data: st.DataObject
) -> None:
    whole = written(episodes)
    cut = data.draw(st.integers(0, len(whole)))
    found = list(read_episodes(BytesIO(whole[:cut])))
    assert found == episodes[: len(found)]
    assert len(written(episodes[: len(found) + 1])) > cut or len(found) == len(episodes)


def test_output_that_is_no_episode_is_an_error_and_not_an_episode() -> None:
    garbage = (5).to_bytes(LENGTH_BYTES, "big") + b"\xc1\xc1\xc1\xc1\xc1"
    with pytest.raises(msgspec.DecodeError):
        list(read_episodes(BytesIO(garbage)))


def test_the_process_writes_what_the_function_draws_and_ends_when_nobody_reads() -> None:
    job = WorkerJob(config=pixel_config(warm_start__demonstrations=3), number=0, num=1)
    process = subprocess.Popen(
        (sys.executable, "-m", "distrl.pretraining.demonstrations"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.msgpack.encode(job))
    process.stdin.close()
    found = list(islice(read_episodes(process.stdout), 4))  # type: ignore[arg-type]
    process.stdout.close()
    assert process.wait(60) == 0
    assert found == list(islice(draw(job), 4))


def test_a_job_survives_the_way_to_its_process() -> None:
    job = WorkerJob(config=pixel_config(warm_start__samples=9), number=2, num=5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=WorkerJob) == job


def test_the_first_turn_keeps_the_seed_and_later_ones_have_seeds_of_their_own() -> None:
    task = some_tasks("sim-general", 2)[0]
    assert with_perturbation_seed(task, 0) is task
    seeds = [setup_of(with_perturbation_seed(task, turn)).seed for turn in range(200)]
    assert len(set(seeds)) == 200
    assert with_perturbation_seed(task, 7) == with_perturbation_seed(task, 7)
    assert with_perturbation_seed(task, 3).instruction == task.instruction


def test_an_oracle_that_loses_its_way_gives_no_episode() -> None:
    task = some_tasks("sim-general", 6)[2]
    assert play_successfully(task, PERTURBED) is not None
    assert play_successfully(led_astray(task), PERTURBED) is None


def test_a_renderer_puts_a_frame_for_each_screen_into_memory() -> None:
    config, frames = pixel_config(), FrameCache(64)
    task = demonstration_tasks(pixel_config(warm_start__demonstrations=1))[0]
    pairs = demonstrate([task], config.devices.sim.perturbations, history=2, render=make_renderer(config, frames))
    assert all(frames.get(seen.screenshot).startswith(b"\xff\xd8") for seen, _ in pairs)


def test_policies_that_read_no_screenshots_render_nothing() -> None:
    assert make_renderer(load_config(None, {}), FrameCache(4)) is no_frame
    text_only = load_config(None, {"policy.kind": "vlm", "policy.vlm.path": "model", "policy.vlm.pictures": False})
    assert make_renderer(text_only, FrameCache(4)) is no_frame
