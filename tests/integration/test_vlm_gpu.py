"""What only a GPU runs: captured graphs, their draws, and adapters that change underneath them."""

from __future__ import annotations

import pytest
import torch

from distrl.policies.vlm.policy import VlmPolicy
from distrl.types import Decision, Observation
from support.vlms import mixed_screens, seen, shake, tiny_vlm

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = torch.device("cuda", max(0, torch.cuda.device_count() - 1))
"""The last one: what is meant for it must not go to the first."""


def decide(policy: VlmPolicy, screens: list[Observation], seed: int = 0) -> list[Decision]:
    return policy.decide(screens, temperature=1.0, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def scored(policy: VlmPolicy, screens: list[Observation], decisions: list[Decision]) -> list[float]:
    encoded = [policy.encode(screen) for screen in screens]
    found: list[float] = policy.score(encoded, [decision.choice for decision in decisions]).logp_N.tolist()
    return found


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "text"])
def test_adapters_change_underneath_a_captured_graph(family: str, merge: bool) -> None:
    policy = tiny_vlm(family, generate=None, device=GPU, dtype="float32", merge=merge)
    assert not [notice for notice in policy.notices if "several times slower" in notice]
    screens = mixed_screens() if family != "text" else [seen(), seen(instruction="Turn the Wi-Fi on")]
    first = decide(policy, screens)
    again = decide(policy, screens)
    assert [one.choice for one in first] == [one.choice for one in again]
    assert scored(policy, screens, first) == pytest.approx([one.logp for one in first], abs=1e-3)
    other = shake(tiny_vlm(family, lora_rank=policy.config.lora_rank))
    policy.restore(other.dump(), source="the test")
    swapped = decide(policy, screens)
    assert [one.logp for one in swapped] != pytest.approx([one.logp for one in first], abs=1e-3)
    assert scored(policy, screens, swapped) == pytest.approx([one.logp for one in swapped], abs=1e-3)


def test_one_prompt_alone_goes_through_its_graph_as_many_go_without_one() -> None:
    policy = tiny_vlm("qwen2.5-vl", generate=None, device=GPU, dtype="bfloat16")
    policy.restore(shake(tiny_vlm("qwen2.5-vl"), by=0.01).dump(), source="the test")
    screens = mixed_screens()
    together = decide(policy, screens)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):  # the tower's graph is there from the second time on
        apart = [policy.decide([screen], temperature=1.0, generator=generator)[0] for screen in screens]
        generator.manual_seed(0)
    values = [[one.value for one in decisions] for decisions in (together, apart)]
    assert values[0] == pytest.approx(values[1], abs=0.02)
    assert scored(policy, screens, apart) == pytest.approx([one.logp for one in apart], abs=2.0)


def test_draws_go_on_from_the_seed_of_each_batch() -> None:
    policy = tiny_vlm("text", generate=None, device=GPU, dtype="float32")
    one, two = ([decision.choice for decision in decide(policy, [seen()] * 4, seed)] for seed in (1, 2))
    assert one != two
    assert len(set(one)) > 1
