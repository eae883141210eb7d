from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from distrl.config.schema import PixelConfig
from distrl.errors import StoreError, UsageError
from distrl.experience.frames import FrameCache
from distrl.policies.base import NoFrames, PolicyContext, Scores
from distrl.policies.distribution import ActionDistribution
from distrl.policies.pixel.batches import collate
from distrl.policies.pixel.features import Encoded
from distrl.policies.pixel.grammar import KINDS, POINTING, TYPE, Choice, grid_of, to_action
from distrl.policies.pixel.network import PixelNetwork
from distrl.policies.pixel.policy import PixelPolicy
from distrl.policies.pointer.words import read
from distrl.types import Decision, Finish, Observation, TypeText
from support.pixels import FRAMES, TINY, pictured, pictured_screens, tiny_pixels


def decide(policy: PixelPolicy, observations: list[Observation], *, temperature: float = 1.0) -> list[Decision]:
    return policy.decide(observations, temperature=temperature, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def score(policy: PixelPolicy, observations: list[Observation], choices: list[tuple[int, ...]]) -> Scores:
    return policy.score([policy.encode(observation) for observation in observations], choices)


def all_choices(observation: Observation) -> list[Choice]:
    """Everything that can be said on a screen."""
    num_words = len(read(observation.instruction))
    pointing = [(kind, square, 0) for kind in range(len(POINTING)) for square in range(grid_of(TINY).num_squares)]
    spans = [(TYPE, first, last) for first in range(num_words) for last in range(first, num_words)]
    return [*pointing, *spans, *((kind, 0, 0) for kind in range(len(KINDS)) if kind > TYPE)]


def close(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, atol=1e-4, rtol=1e-4)


# --- the distribution -----------------------------------------------------------------------------------------------


def test_what_was_decided_is_scored_the_same_by_the_same_weights() -> None:
    policy, seen = tiny_pixels(spread=0.05), pictured_screens(24)
    decisions = decide(policy, seen)
    found = score(policy, seen, [decision.choice for decision in decisions])
    assert close(found.logp_N, torch.tensor([decision.logp for decision in decisions]))
    assert close(found.entropy_N, torch.tensor([decision.entropy for decision in decisions]))
    assert close(torch.sigmoid(found.value_logit_N), torch.tensor([decision.value for decision in decisions]))


def test_a_learner_that_caches_screenshots_scores_like_those_who_decode_them() -> None:
    seen = pictured_screens(6) * 2
    choices: list[tuple[int, ...]] = [(0, index, 0) for index in range(12)]
    acting, learning = tiny_pixels(spread=0.05), tiny_pixels(spread=0.05, learning=True)
    assert close(score(acting, seen, choices).logp_N, score(learning, seen, choices).logp_N)


def test_probabilities_of_everything_that_can_be_chosen_sum_to_one_and_give_the_exact_entropy() -> None:
    policy = tiny_pixels(spread=0.1)
    seen = pictured_screens(3)[1]
    choices = all_choices(seen)
    found = score(policy, [seen] * len(choices), list(choices))
    chance = found.logp_N.double().exp()
    assert float(chance.sum()) == pytest.approx(1.0, abs=1e-4)
    surprise = -(chance * found.logp_N.double()).sum()
    assert float(found.entropy_N[0]) == pytest.approx(float(surprise), abs=1e-3)


def test_what_else_is_in_a_batch_changes_nothing() -> None:
    policy = tiny_pixels(spread=0.05)
    seen = [*pictured_screens(5), msgspec.structs.replace(pictured_screens(5)[0], instruction="", recent=())]
    choices: list[tuple[int, ...]] = [(0, 3, 0), (TYPE, 0, 0), (6, 0, 0), (1, 9, 0), (), (TYPE, 0, 0)]
    together = score(policy, seen, choices)
    alone = [score(policy, [one], [choice]) for one, choice in zip(seen, choices, strict=True)]
    assert close(together.logp_N, torch.cat([found.logp_N for found in alone]))
    assert close(together.value_logit_N, torch.cat([found.value_logit_N for found in alone]))


def test_temperature_zero_takes_the_likeliest_whatever_the_dice_say() -> None:
    policy, seen = tiny_pixels(spread=0.1), pictured_screens(6)
    first = policy.decide(seen, temperature=0.0, generator=torch.Generator().manual_seed(1))
    again = policy.decide(seen, temperature=0.0, generator=torch.Generator().manual_seed(2))
    assert [decision.choice for decision in first] == [decision.choice for decision in again]


def test_the_picture_the_words_and_the_history_all_count() -> None:
    policy = tiny_pixels(spread=0.1)
    seen = next(observation for observation, _ in pictured() if observation.recent)
    other = next(o for o, _ in pictured() if o.screenshot != seen.screenshot)
    changes: list[dict[str, object]] = [
        {"screenshot": other.screenshot}, {"instruction": "Call Ada"}, {"recent": ()},
    ]  # fmt: skip
    varied = [seen, *(msgspec.structs.replace(seen, **change) for change in changes)]
    chances = score(policy, varied, [(0, 5, 0)] * 4).logp_N.tolist()
    assert len({round(chance, 5) for chance in chances}) == 4


def test_elements_are_never_read() -> None:
    policy, seen = tiny_pixels(spread=0.1), pictured_screens(4)
    blind = [msgspec.structs.replace(one, elements=()) for one in seen]
    assert decide(policy, seen) == decide(policy, blind)


def test_the_critic_sends_no_gradient_into_the_trunk() -> None:
    policy = tiny_pixels(spread=0.05)
    found = policy.score([policy.encode(one) for one in pictured_screens(2)], [(), ()])
    found.value_logit_N.sum().backward()  # type: ignore[no-untyped-call]
    bent = {name.partition(".")[0] for name, weights in policy.network.named_parameters() if weights.grad is not None}
    assert bent == {"value_head"}


def test_every_other_weight_learns_from_what_was_chosen() -> None:
    policy = tiny_pixels(spread=0.05)
    seen = [observation for observation, _ in pictured() if observation.recent][:3]
    found = policy.score([policy.encode(one) for one in seen], [(0, 3, 0), (1, 4, 0), (TYPE, 0, 1)])
    (found.logp_N.sum() + found.entropy_N.sum()).backward()  # type: ignore[no-untyped-call]
    idle = {name for name, weights in policy.network.named_parameters() if weights.grad is None}
    assert {name.partition(".")[0] for name in idle} == {"value_head"}


# --- what it sees ---------------------------------------------------------------------------------------------------


def test_an_observation_without_a_picture_is_refused_with_the_fix() -> None:
    with pytest.raises(UsageError, match=r"keep_screenshots") as caught:
        decide(tiny_pixels(), [Observation(instruction="Go")])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("frames", [NoFrames(), FrameCache(4)])
def test_a_picture_that_nobody_has_is_named(frames: NoFrames | FrameCache) -> None:
    policy = PixelPolicy(TINY, PolicyContext(frames=frames))
    with pytest.raises(StoreError, match="sha256:0000") as caught:
        policy.encode(Observation(instruction="Go", screenshot=f"sha256:{'0' * 64}"))
    assert caught.value.fix


def test_a_picture_that_cannot_be_decoded_becomes_a_black_one_and_is_counted() -> None:
    policy = tiny_pixels(spread=0.1)
    whole = FRAMES.get(pictured_screens(1)[0].screenshot)
    torn = [FRAMES.put(data) for data in (b"\xff\xd8 no picture \xff\xd9", whole[:40])]
    seen = [Observation(instruction="Go", screenshot=reference) for reference in torn]
    first, second = decide(policy, seen)
    assert first.entropy == pytest.approx(second.entropy, abs=1e-5)
    assert policy.num_undecodable == 2


def test_colours_are_shifted_in_training_and_nothing_else() -> None:
    policy = tiny_pixels(config=msgspec.structs.replace(TINY, jitter=0.2), spread=0.05)
    plain = policy.encode(pictured_screens(2)[1])
    varied = [policy.augment(plain) for _ in range(20)]
    tints = np.stack([item.tint_C for item in varied if item.tint_C is not None])
    assert tints.shape == (20, 6)
    assert np.abs(tints - [1, 1, 1, 0, 0, 0]).max() <= 0.2
    for item in varied:
        assert msgspec.structs.replace(item, tint_C=None) == plain
    with torch.no_grad():
        chances = policy.score([plain, *varied], [(0, 5, 0)] * 21).logp_N
    assert len(set(chances.tolist())) > 15
    assert tiny_pixels().augment(plain) is plain


# --- what it says ---------------------------------------------------------------------------------------------------


def test_what_is_imitated_is_what_would_be_done() -> None:
    policy, grid = tiny_pixels(), grid_of(TINY)
    for observation, action in pictured():
        choice = policy.imitate(observation, action)
        if choice is None:
            assert isinstance(action, Finish)
            assert action.answer
            continue
        kind, first, last = choice
        done = to_action((kind, first, last), observation, grid)
        assert type(done) is type(action)
        if isinstance(action, TypeText):
            assert done == action


# --- sizes and places -----------------------------------------------------------------------------------------------


def test_the_full_size_has_about_twenty_one_million_parameters() -> None:
    network = PixelNetwork(PixelConfig())
    assert 20_000_000 < sum(weights.numel() for weights in network.parameters()) < 22_000_000


def test_the_full_size_runs_forward_and_backward_on_another_device_without_a_tensor_left_behind() -> None:
    """On a device whose tensors have a shape and no content: one that stayed on the CPU on the way is an error."""
    items = [tiny_pixels().encode(one) for one in pictured_screens(2)]
    elsewhere = torch.device("meta")
    network = PixelNetwork(PixelConfig(text_bytes=TINY.text_bytes)).to(elsewhere)
    pictures = torch.zeros(2, 448, 224, 3, dtype=torch.uint8, device=elsewhere)
    logits = network(pictures, collate(items, elsewhere))
    assert logits.square_BHS.shape == (2, 2, 392)
    spread = ActionDistribution(logits.kind_BK, logits.square_BHS, logits.span_BII)
    logp, entropy = spread.logp([(0, 5, 0), (TYPE, 0, 1)]), spread.entropy()
    (logp.sum() + entropy.sum()).backward()  # type: ignore[no-untyped-call]
    assert {part.device for part in (logp, entropy, logits.value_B, network.stem[0][0].weight.grad)} == {elsewhere}


# --- weights --------------------------------------------------------------------------------------------------------


def test_weights_survive_dump_and_restore_bit_by_bit() -> None:
    first, second = tiny_pixels(0, spread=0.1), tiny_pixels(1)
    assert first.dump() != second.dump()
    second.restore(first.dump(), source="a test")
    assert second.dump() == first.dump()
    assert decide(first, pictured_screens(4)) == decide(second, pictured_screens(4))


def test_a_seed_decides_the_first_weights() -> None:
    assert tiny_pixels(3).dump() == tiny_pixels(3).dump() != tiny_pixels(4).dump()


@pytest.mark.parametrize("change", [{"width": 64}, {"joint_layers": 2}, {"picture_height": 64}, {"text_bytes": 32}])
def test_weights_of_another_architecture_are_refused_by_name(change: dict[str, int]) -> None:
    policy, other = tiny_pixels(), tiny_pixels(config=msgspec.structs.replace(TINY, **change))
    with pytest.raises(StoreError, match=r"v000007\.safetensors holds weights of another architecture") as caught:
        policy.restore(other.dump(), source="v000007.safetensors")
    assert "width 32 with 1 + 1 layers for 64 × 128 and 64 bytes" in str(caught.value)


def test_memory_holds_a_picture_as_it_was_sent() -> None:
    policy, seen = tiny_pixels(), pictured_screens(1)[0]
    encoded: Encoded = policy.encode(seen)
    assert encoded.image is FRAMES.get(seen.screenshot)
    assert len(encoded.image) < TINY.picture_width * TINY.picture_height * 3 / 4
