"""What the page of an episode tells of each step."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
import torch

import distrl
from distrl.algorithms.targets import ReturnInputs, lambda_returns
from distrl.bench.system.stored_run import write_stored_run
from distrl.dashboard.catalogue import Catalogue, VersionTimes
from distrl.dashboard.episode_page import advantages_of, element_hit, show
from distrl.types import Bounds, Ending, LongPress, Press, Swipe, Tap, Trajectory, UiElement


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    run = write_stored_run(tmp_path_factory.mktemp("runs"), 40)
    return list(distrl.open_run(run.path).episodes())


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.STEP_LIMIT, Ending.DEVICE_LOST])
def test_advantages_are_those_of_the_learners_own_maths(episodes: list[Trajectory], ending: Ending) -> None:
    for episode in episodes[:8]:
        episode = msgspec.structs.replace(episode, ending=ending, last_value=0.37)
        value_BT = torch.tensor([[step.decision.value for step in episode.steps]])
        inputs = ReturnInputs(
            value_BT=value_BT, reward_BT=torch.tensor([[step.reward for step in episode.steps]]), ratio_BT=torch.ones_like(value_BT),
            bootstrap_B=torch.tensor([0.0 if ending.is_terminal else 0.37]), mask_BT=torch.ones_like(value_BT, dtype=torch.bool),
        )  # fmt: skip
        right = lambda_returns(inputs, gamma=0.9, lambda_=0.8).advantage_BT[0].tolist()
        assert advantages_of(episode, gamma=0.9, lambda_=0.8) == pytest.approx(right, abs=1e-5)


def test_a_touch_hits_the_smallest_element_that_can_be_clicked() -> None:
    page = UiElement(bounds=Bounds(0, 0, 1, 1), clickable=True)
    label = UiElement(bounds=Bounds(0.1, 0.1, 0.2, 0.2), text="label")
    button = UiElement(bounds=Bounds(0.05, 0.05, 0.4, 0.4), text="button", clickable=True)
    elements = (page, label, button)
    assert element_hit(Tap(0.15, 0.15), elements) == 2
    assert element_hit(LongPress(0.9, 0.9), elements) == 0
    assert element_hit(Tap(0.5, 0.5), elements[1:]) == -1
    assert element_hit(Swipe(0.15, 0.15, 0.15, 0.9), elements) == -1
    assert element_hit(Press("back"), elements) == -1


def test_every_step_is_told_with_its_probability_and_place(tmp_path: Path) -> None:
    run = distrl.open_run(write_stored_run(tmp_path, 12).path)
    catalogue = Catalogue(run, VersionTimes())
    catalogue.refresh()
    for episode in run.episodes():
        entry = catalogue.entry(episode.id)
        assert entry is not None
        shown = show(run, entry, ("", ""), 9)
        assert len(shown.steps) == len(episode.steps)
        assert shown.verdict == episode.verdict
        for told, step in zip(shown.steps, episode.steps, strict=True):
            assert told.probability == pytest.approx(math.exp(step.decision.logp), abs=1e-5)
            assert told.staleness == max(0, 9 - step.version)
            assert told.action == step.decision.action


def test_a_step_without_a_probability_says_so(episodes: list[Trajectory], tmp_path: Path) -> None:
    def unknown(logp: float, choice: tuple[int, ...]) -> Trajectory:
        step = episodes[0].steps[0]
        decision = msgspec.structs.replace(step.decision, logp=logp, choice=choice, entropy=math.nan)
        return msgspec.structs.replace(
            episodes[0], id=f"odd{len(choice)}", steps=(msgspec.structs.replace(step, decision=decision),)
        )

    run = distrl.record([unknown(0.0, ()), unknown(-math.inf, (1,))], run__root=str(tmp_path))
    catalogue = Catalogue(run, VersionTimes())
    catalogue.refresh()
    for entry in catalogue.entries:
        shown = show(run, entry, ("", ""), -1)
        assert shown.steps[0].probability is None
        assert shown.steps[0].entropy == 0.0
        msgspec.json.encode(shown)
