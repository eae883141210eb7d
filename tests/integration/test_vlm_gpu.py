"""What only a GPU runs: captured graphs, their draws, adapters that change underneath them, and the memory that a process may take."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from distrl.config.load import load_config
from distrl.policies.vlm.fast_generation import FastGenerate
from distrl.policies.vlm.policy import VlmPolicy
from distrl.runtime.factory import make_policy
from distrl.types import Decision, Observation
from support.vlms import mixed_screens, seen, shake, tiny_model, tiny_vlm

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


LIMITED = """
import sys, torch
from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.gpu_memory import allowed_bytes, free_bytes, limit_memory
from distrl.policies.vlm.loading import load_model
from distrl.policies.vlm.scoring import activation_budget_bytes

here = torch.device(sys.argv[1])
limit_memory(here, 1.0, key="policy.gpu_memory_gb")
held = torch.empty(400 * 2**20, dtype=torch.uint8, device=here)  # of whole segments: nothing is reserved beside it
assert abs(allowed_bytes(here) - 1e9) < 1e5, allowed_bytes(here)
assert 0 < free_bytes(here) <= 0.59e9, free_bytes(here)
assert activation_budget_bytes(here) <= 0.37e9
try:
    torch.empty(700_000_000, dtype=torch.uint8, device=here)
except torch.OutOfMemoryError:
    print("no more than allowed")
limit_memory(here, 0.4195, key="policy.gpu_memory_gb")
try:
    load_model(VlmConfig(path=sys.argv[2]), here)
except ConfigError as error:
    print(error)
try:
    limit_memory(here, 1e6, key="policy.gpu_memory_gb")
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("device", ["cuda", str(GPU)])
def test_a_process_takes_no_more_of_a_gpu_than_it_may_and_says_what_would_fit(device: str) -> None:
    command = [sys.executable, "-c", LIMITED, device, str(tiny_model("text"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "no more than allowed" in done.stdout
    assert "this process may take 0.0 GB" in done.stdout
    assert "--policy.gpu_memory_gb 0" in done.stdout


@pytest.mark.parametrize("family", ["qwen2.5-vl", "text"])
def test_a_gpu_without_its_number_is_the_first_one(family: str) -> None:
    policy = tiny_vlm(family, generate=None, device=torch.device("cuda"), dtype="float32", gradient_checkpointing=True)
    assert isinstance(policy._generate, FastGenerate)
    screens = [seen(), seen(instruction="Go")]
    decisions = decide(policy, screens)
    assert scored(policy, screens, decisions) == pytest.approx([one.logp for one in decisions], abs=1e-3)
    encoded, choices = [policy.encode(one) for one in screens], [one.choice for one in decisions]
    policy.score(encoded, choices).logp_N.sum().backward()  # type: ignore[no-untyped-call]
    assert {weights.grad.device for weights in policy.weights().values() if weights.grad is not None} == {
        torch.device("cuda", 0)
    }


@pytest.mark.parametrize("learning", [False, True])
def test_roles_make_their_policy_on_the_gpu_that_auto_finds(learning: bool) -> None:
    small = {"policy.kind": "vlm", "policy.vlm.path": str(tiny_model("text")), "policy.vlm.pictures": "false"}
    places = {"policy.device": "auto", "learner.device": "auto"}
    policy = make_policy(load_config(None, {**small, **places}), learning=learning)
    assert isinstance(policy, VlmPolicy)
    assert policy.device == torch.device("cuda", 0)
    assert isinstance(policy._generate, FastGenerate)


def test_prepared_observations_are_decided_as_others_while_answers_are_under_way() -> None:
    policy = tiny_vlm("qwen2.5-vl", generate=None, device=GPU, dtype="float32")
    screens = mixed_screens()
    expected = decide(policy, screens)
    again = tiny_vlm("qwen2.5-vl", generate=None, device=GPU, dtype="float32")
    with ThreadPoolExecutor(1) as beside:
        preparing = beside.submit(again.prepare, screens)
        decide(again, [screens[0]])
        preparing.result()
    found = decide(again, screens)
    assert [one.choice for one in found] == [one.choice for one in expected]
    assert [one.logp for one in found] == pytest.approx([one.logp for one in expected], abs=1e-3)


def test_a_cache_has_room_for_prompts_that_grow_with_the_history() -> None:
    policy = tiny_vlm("text", generate=None, device=GPU, dtype="float32")
    decide(policy, [seen(instruction="word " * 150)])
    assert isinstance(policy._generate, FastGenerate)
    cache = policy._generate.cache
    decide(policy, [seen(instruction="word " * 160)])
    assert policy._generate.cache is cache
