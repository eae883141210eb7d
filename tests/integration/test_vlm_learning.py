"""From demonstrations over asynchronous updates to an exported folder, for every family of models, without a network."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

from distrl.config.schema import WarmStartConfig
from distrl.experience.frames import FrameStore
from distrl.policies.vlm.export import export_adapter, export_merged
from distrl.policies.vlm.policy import VlmPolicy
from distrl.pretraining.cloning import Example, clone, examples_for
from distrl.rollout.batching import Batcher, Batching
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Action, Finish, Observation, Press, Step, Tap, Trajectory
from support.learners import Workshop, small_config
from support.trajectories import make_trajectory
from support.vlms import FAMILIES, PICTURES, seen, tiny_vlm

ROUTE: tuple[Action, ...] = (Tap(0.5, 0.05), Press("back"), Finish())
"""What a demonstration does."""
BATCHING = Batching(batch_size=4, batch_wait_s=0.0, temperature=0.0, seed=0)


class Studio:
    """A run folder for one family of models."""

    def __init__(self, folder: Path, family: str) -> None:
        self.folder, self.family = folder, family
        self.frames = FrameStore(folder / "experience")
        self.references = [self.frames.put(picture) for picture in PICTURES.values()]
        config = small_config(
            algorithm={"aride": {"critic_warmup_updates": 1}}, learner={"batch_trajectories": 2, "learning_rate": 3e-2}
        )
        self.workshop = Workshop(folder, config, policy=self.policy)

    def policy(self, seed: int = 0) -> VlmPolicy:
        return tiny_vlm(self.family, seed=seed, frames=self.frames, answer_tokens=24, elements=self.family == "text")

    def screens(self) -> list[Observation]:
        return [seen(reference, recent=()) for reference in self.references]

    def demonstrations(self, policy: VlmPolicy) -> list[Example]:
        return examples_for(policy, zip(self.screens(), ROUTE, strict=True))

    def deliver(self, policy: VlmPolicy, count: int) -> None:
        """Store episodes that `policy` has decided, every other one a success."""
        for number in range(count):
            dice = torch.Generator().manual_seed(number)
            decisions = policy.decide(self.screens(), temperature=1.0, generator=dice)
            success = number % 2 == 0
            steps = [
                Step(observation=screen, decision=decision, version=0, reward=float(success and t == 2), valid=t != 1)
                for t, (screen, decision) in enumerate(zip(self.screens(), decisions, strict=True))
            ]
            self.workshop.store.add(_episode(f"episode-{number}", tuple(steps), success=success))


def _episode(id: str, steps: tuple[Step, ...], *, success: bool) -> Trajectory:
    return msgspec.structs.replace(make_trajectory(id, success=success), steps=steps)


def likeliest(policy: VlmPolicy, studio: Studio) -> list[tuple[int, ...]]:
    decisions = policy.decide(studio.screens(), temperature=0.0, generator=torch.Generator())
    return [decision.choice for decision in decisions]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "screens"])
def test_a_model_goes_from_demonstrations_over_updates_to_a_folder(family: str, tmp_path: Path) -> None:
    studio = Studio(tmp_path, family)
    learner = studio.workshop.learner()
    policy: Any = studio.workshop.policy

    # The warm start: what was shown becomes likelier.
    examples = studio.demonstrations(policy)
    assert len(examples) == len(ROUTE)
    losses = [
        clone(
            policy,
            examples,
            WarmStartConfig(epochs=epochs, learning_rate=2e-2),
            random=Random(0),
            report=lambda now: None,
        )
        for epochs in (1, 4)
    ]
    assert losses[1] < 0.8 * losses[0]

    # Asynchronous updates on episodes of an older version; a worker takes the new one between two decisions.
    learner.publish()
    worker = studio.policy(seed=9)
    batcher = Batcher(worker, WeightsFolder(tmp_path / "weights"), BATCHING)
    batcher.swap()
    before = likeliest(worker, studio)
    assert before == likeliest(policy, studio)
    studio.deliver(worker, 4)
    for _ in range(3):
        learner.step()
    learner.publish()
    batcher.swap()
    assert (learner.updates, batcher.version) == (3, 1)
    assert likeliest(worker, studio) == likeliest(policy, studio) != before

    # The next incarnation has all of it.
    learner.save()
    other = studio.workshop.learner()
    assert other.resume()
    assert studio.workshop.policy.dump() == policy.dump()
    assert other.updates == 3

    # Others read the folder without us.
    _check_folders(policy, tmp_path)


def _check_folders(policy: VlmPolicy, folder: Path) -> None:
    """Adapter and whole model say the same as the policy."""
    kind: Any = AutoModelForImageTextToText if policy.config.pictures else AutoModelForCausalLM
    inputs = policy.tokenizer("Task: Turn the Wi-Fi on", return_tensors="pt")
    with torch.no_grad():
        wanted = policy.network.base(**inputs).logits
        export_adapter(policy, folder / "adapter")
        base = kind.from_pretrained(policy.config.path)
        plain = base(**inputs).logits
        adapted = PeftModel.from_pretrained(base, folder / "adapter")(**inputs).logits
        (folder / "merged" / "distrl").mkdir(parents=True)  # as a model that is itself an export brings along
        export_merged(policy, folder / "merged")
        merged = kind.from_pretrained(folder / "merged")(**inputs).logits
    assert not torch.allclose(plain, wanted, atol=1e-3)
    assert torch.allclose(adapted, wanted, atol=1e-4)
    assert torch.allclose(merged, wanted, atol=1e-4)
    assert AutoTokenizer.from_pretrained(folder / "merged").chat_template == policy.tokenizer.chat_template
    originals = {file.name for file in Path(policy.config.path).iterdir()}
    assert originals <= {file.name for file in (folder / "merged").iterdir()}
    # Servers take all tensors that lie beside the model's for parts of it.
    assert [file.name for file in (folder / "merged").glob("*.safetensors")] == ["model.safetensors"]
    assert (folder / "adapter" / "distrl" / "value_head.safetensors").stat().st_size < 100_000
