"""Grounding of a vision-language model: what it trains on is what the policy asks and answers, and both stages learn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.devices.sim.paint import Written
from distrl.errors import ConfigError, StoreError
from distrl.policies.base import PolicyContext
from distrl.policies.vlm.policy import VlmPolicy
from distrl.policies.vlm.prompt_tokens import PromptTokens
from distrl.policies.vlm.screen_folder import VisionSize, load_vision, make_screen_model, save_screen_model, save_vision
from distrl.pretraining.demonstrations import WorkerJob
from distrl.pretraining.grounding.data_worker import annotated_screens
from distrl.pretraining.grounding.language_loss import LanguageLoss, ReadingLoss
from distrl.pretraining.grounding.language_samples import (
    NUMBER_READINGS,
    POINT,
    READ,
    READINGS,
    LanguageSampleWriter,
    language_fields,
    picture_size,
)
from distrl.pretraining.grounding.language_training import check_screens
from distrl.pretraining.grounding.queries import AnnotatedScreen, wording_of
from distrl.pretraining.grounding.samples import block_bytes, sample_views
from distrl.types import Finish
from support.vlms import NamedFrames, tiny_model

SIZE = VisionSize(width=32, layers=1, strides=(2, 4))
COUNT = 6


def config_of(path: Path | str, **changes: object) -> Config:
    """Tiny screenshots: squares of 8 pixels."""
    config = Config()
    vlm = replace(
        config.policy.vlm, path=str(path), elements=False, dialect="grid", answer_tokens=48, image_max_pixels=112 * 224, lora_rank=2,
        **changes,
    )  # fmt: skip
    return replace(
        config,
        devices=replace(config.devices, sim=replace(config.devices.sim, screenshot_width=112)),
        rollout=replace(config.rollout, keep_screenshots=True),
        policy=replace(config.policy, kind="vlm", vlm=vlm),
        warm_start=replace(config.warm_start, demonstrations=12, batch=4),
    )


@cache
def screens() -> tuple[AnnotatedScreen, ...]:
    """Some screens of demonstrations."""
    job = WorkerJob(config=config_of(tiny_model("spare")), number=0, num=1)
    return tuple(islice(annotated_screens(job, Random(4), picture_size(job.config)), 3 * COUNT))


class Recording:
    """`Tokens` that remembers what it was asked."""

    def __init__(self, tokens: PromptTokens) -> None:
        self._tokens, self.asked = tokens, list[tuple[object, object]]()

    def prompt(self, observation: object) -> list[int]:
        self.asked.append((observation, None))
        return self._tokens.prompt(observation)  # type: ignore[arg-type]

    def answer(self, action: object, observation: object) -> list[int] | None:
        self.asked[-1] = (observation, action)
        return self._tokens.answer(action, observation)  # type: ignore[arg-type]


def samples_of(config: Config, tokens: object) -> tuple[dict[str, Tensor], list[int]]:
    """The first screens as samples, and which of them."""
    fields = language_fields(config)
    block = bytearray(block_bytes(fields, COUNT))
    into, writer, taken = (
        sample_views(block, fields, COUNT),
        LanguageSampleWriter(config, tokens, Random(2)),
        list[int](),
    )  # type: ignore[arg-type]
    for number, screen in enumerate(screens()):
        if len(taken) < COUNT and writer.write(screen, into, len(taken)):
            taken.append(number)
    assert len(taken) == COUNT
    return {name: torch.from_numpy(np.array(field)) for name, field in into.items()}, taken


def test_queries_behind_one_screen_get_what_the_policy_gives_each_of_them_alone(tmp_path: Path) -> None:
    model, tokenizer = make_screen_model(tiny_model("spare"), SIZE, seed=0)
    save_screen_model(model, tokenizer, tmp_path, dtype=torch.float32)
    config = config_of(tmp_path)
    tokens = Recording(PromptTokens(config.policy.vlm, picture_size(config)))
    samples, taken = samples_of(config, tokens)
    loss = LanguageLoss(model, tokens._tokens.head(196), config.warm_start.grounding, seed=0)
    with torch.no_grad():
        plain = samples["picture"].permute(0, 3, 1, 2).float() / 127.5 - 1
        logp_BAV = loss.answer_logits(model.model.visual(plain), samples).log_softmax(-1)
    logp_BA = logp_BAV.gather(-1, samples["target"].long()[..., None])[..., 0] * (samples["weight"] > 0)
    frames = {str(number): screens()[number].frame for number in taken}
    policy = VlmPolicy(config.policy.vlm, PolicyContext(frames=NamedFrames(frames)))
    compared, asked = 0, [pair for pair in tokens.asked if pair[1] is not None]
    for row, number in enumerate(taken):
        for query in sorted(set(samples["query"][row][samples["weight"][row] > 0].tolist())):
            mask = (samples["query"][row] == query) & (samples["weight"][row] > 0)
            wanted = tuple(samples["target"][row][mask].tolist())
            places = samples["segment"][row] == query + 1
            ids = samples["token"][row][places].tolist()[: 1 - len(wanted) or None]
            observation = next(seen for seen, _ in asked if tokens._tokens.prompt(seen) == ids)
            seen = shot(observation, number)
            alone = policy.score([policy.encode(seen)], [wanted]).logp_N.detach()
            assert float(alone[0]) == pytest.approx(float(logp_BA[row][mask].sum()), abs=2e-3)
            compared += 1
    assert compared > 2 * COUNT


def test_of_a_screen_alone_neither_the_next_step_nor_the_words_nor_the_history_of_its_task_are_shown() -> None:
    config = config_of(tiny_model("spare"))
    fields, tokens = language_fields(config), Recording(PromptTokens(config.policy.vlm, picture_size(config)))
    into = sample_views(bytearray(block_bytes(fields, 1)), fields, 1)
    writer, kinds = LanguageSampleWriter(config, tokens, Random(2)), set[int]()
    for screen in screens():
        tokens.asked.clear()
        assert writer.write(replace(screen, demonstrated=False), into, 0)
        kinds |= set(into["kind"][0][into["weight"][0] > 0].tolist())
        wording, seen = wording_of(screen), [observation for observation, _ in tokens.asked]
        assert seen
        assert all(not one.recent and one.instruction != screen.observation.instruction for one in seen)  # type: ignore[attr-defined]
        if wording and len(wording.before) > 8:
            assert not any(one.instruction.startswith(wording.before) for one in seen)  # type: ignore[attr-defined]
    assert kinds == {POINT, READ}


def test_half_of_what_is_read_has_digits_where_the_body_of_a_screen_has_some() -> None:
    config = config_of(tiny_model("spare"))
    fields, tokens = language_fields(config), Recording(PromptTokens(config.policy.vlm, picture_size(config)))
    into = sample_views(bytearray(block_bytes(fields, 1)), fields, 1)
    writer = LanguageSampleWriter(config, tokens, Random(2))
    time = Written("9:41", 3.0, (4.0, 8.0, 12.0, 16.0))
    words = [Written(f"word {letter}", 20.0 + 8 * at, (5.0, 9.0)) for at, letter in enumerate("abcdefghij")]
    numbers = [Written(f"55{at} 01", 110.0 + 8 * at, (60.0, 64.0)) for at in range(6)]

    def read(*written: Written) -> list[str]:
        tokens.asked.clear()
        assert writer.write(replace(screens()[0], demonstrated=False, written=written), into, 0)
        return [action.answer for _, action in tokens.asked if isinstance(action, Finish)]

    for _ in range(20):
        said = read(time, *words, *numbers)
        assert (len(said), len(set(said) & {line.text for line in numbers}) >= 1) == (READINGS, True)
        assert sum(line.text in said for line in words) <= READINGS - NUMBER_READINGS
    plain = [text for _ in range(20) for text in read(time, *words)]
    assert (len(plain), plain.count("9:41") < len(plain) / 2) == (20 * READINGS, True)


def shot(observation: object, number: int) -> object:
    return replace(observation, screenshot=str(number))  # type: ignore[type-var]


def batches(config: Config) -> Iterator[dict[str, Tensor]]:
    samples, _ = samples_of(config, PromptTokens(config.policy.vlm, picture_size(config)))
    while True:
        yield samples


@pytest.mark.parametrize("stage", ["reading", "language"])
def test_each_stage_learns_what_it_is_shown(stage: str) -> None:
    config = config_of(tiny_model("spare"))
    model, _ = make_screen_model(tiny_model("spare"), SIZE, seed=0)
    head = PromptTokens(config.policy.vlm, picture_size(config)).head(196)
    loss = (
        ReadingLoss(model.model.visual, width=SIZE.width, seed=0)
        if stage == "reading"
        else LanguageLoss(model, head, config.warm_start.grounding, seed=0)
    )
    optimizer = torch.optim.AdamW(loss.parameters(), lr=3e-3)
    totals = []
    for samples in islice(batches(config), 12):
        found = loss.compute(samples, measured=True)
        optimizer.zero_grad()
        found.total.backward()
        optimizer.step()
        totals.append(float(found.total.detach()))
        assert all(bool(part.isfinite()) for part in found.parts.values())
    assert totals[-1] < 0.8 * totals[0]


def test_what_has_learnt_to_read_goes_on_in_another_model_and_another_size_is_refused(tmp_path: Path) -> None:
    one, _ = make_screen_model(tiny_model("spare"), SIZE, seed=1)
    other, _ = make_screen_model(tiny_model("spare"), SIZE, seed=2)
    assert not load_vision(other.model.visual, tmp_path)
    save_vision(one.model.visual, tmp_path)
    assert load_vision(other.model.visual, tmp_path)
    picture = torch.rand(1, 3, 224, 112)
    assert torch.equal(one.model.visual.squares(picture)[1], other.model.visual.squares(picture)[1])
    wide, _ = make_screen_model(tiny_model("spare"), VisionSize(width=64, layers=1, strides=(2, 4)), seed=0)
    with pytest.raises(StoreError, match="another architecture"):
        load_vision(wide.model.visual, tmp_path)


def test_screenshots_of_another_size_are_refused_with_the_size_that_fits() -> None:
    with pytest.raises(ConfigError, match=r"screenshot_width 336"):
        check_screens(config_of("x"), VisionSize())
    check_screens(config_of("x"), SIZE)


def test_the_verb_makes_a_folder_that_a_policy_loads_and_tells_how_it_went(tmp_path: Path) -> None:
    config, out = Path(__file__).parents[2] / "configs" / "screen-vlm.toml", tmp_path / "out"
    stages = ["--reading-minutes", "0.05", "--language-minutes", "0.05", "--demonstrations", "6"]
    size = ["--vision-width", "64", "--vision-layers", "1", "--warm_start.batch", "4"]
    small = ["--warm_start.grounding.pool", "16", "--learner.device", "cpu", "--policy.vlm.path", str(out)]
    asked = ["ground", str(config), "--language", str(tiny_model("spare")), "--json", *stages, *size, *small]
    # In a process of its own: threads that read screens once aborted it as it ended.
    ended = subprocess.run([sys.executable, "-m", "distrl", *asked], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["folder"] == str(out)
    assert min(told["reading"]["screens"], told["language"]["screens"]) >= 4
    assert len((out / "grounding.jsonl").read_text(encoding="utf-8").splitlines()) >= 2
    made = load_config(config, {"policy.vlm.path": str(out), "policy.device": "cpu"})
    assert VlmPolicy(made.policy.vlm, PolicyContext(frames=NamedFrames({}))).weights()
