"""What a policy is built from: its own settings and a context, the same for every kind."""

from __future__ import annotations

import inspect

import pytest
import torch

from distrl.config.schema import PointerConfig
from distrl.errors import StoreError
from distrl.policies.base import HasNotices, NoFrames, PolicyContext, RandomAugmentation, notices_of
from distrl.policies.pixel.policy import PixelPolicy
from distrl.policies.pointer.policy import PointerPolicy
from distrl.policies.vlm.policy import VlmPolicy
from distrl.runtime.factory import make_policy
from support.batches import screens, tiny_policy
from support.learners import small_config
from support.pixels import FRAMES, TINY, pictured_screens, pixel_config, tiny_pixels


@pytest.mark.parametrize("policy", [PointerPolicy, PixelPolicy, VlmPolicy])
def test_every_policy_takes_its_settings_and_a_context(policy: type) -> None:
    parameters = [p for p in inspect.signature(policy).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [parameter.name for parameter in parameters] == ["config", "context"]


def test_a_context_has_defaults_for_a_policy_on_the_cpu_without_screenshots() -> None:
    context = PolicyContext()
    assert (context.device, context.learning, context.seed) == (torch.device("cpu"), False, 0)
    with pytest.raises(StoreError, match="sha256:abc") as caught:
        context.frames.get("sha256:abc")
    assert "FrameCache" in caught.value.fix


def test_an_endless_reference_makes_no_endless_message() -> None:
    with pytest.raises(StoreError) as caught:
        NoFrames().get("x" * 10_000)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("config", [small_config(), pixel_config()], ids=["pointer", "pixel"])
def test_the_seed_of_a_run_decides_the_first_weights(config: object) -> None:
    assert make_policy(config, FRAMES).dump() == make_policy(config, FRAMES, learning=True).dump()  # type: ignore[arg-type]


def test_the_seed_of_a_context_decides_weights_and_augmentation() -> None:
    settings = PointerConfig(width=16, layers=1, word_swap_share=0.5)
    one, same, other = (PointerPolicy(settings, PolicyContext(seed=seed)) for seed in (4, 4, 5))
    assert one.dump() == same.dump() != other.dump()
    assert one.augmentation_state == same.augmentation_state != other.augmentation_state


def test_policies_that_augment_at_random_say_so_and_can_be_put_back() -> None:
    policy = PointerPolicy(PointerConfig(width=16, layers=1, word_swap_share=0.5), PolicyContext())
    assert isinstance(policy, RandomAugmentation)
    encoded = policy.encode(screens(1)[0])
    state = policy.augmentation_state
    first = [policy.augment(encoded).words_I.tolist() for _ in range(5)]
    policy.augmentation_state = state
    assert [policy.augment(encoded).words_I.tolist() for _ in range(5)] == first


def test_only_a_learner_caches_decoded_screenshots() -> None:
    seen = pictured_screens(2)
    acting, learning = tiny_pixels(), tiny_pixels(learning=True)
    for policy in (acting, learning):
        policy.score([policy.encode(one) for one in seen], [(), ()])
    assert acting._images._cache is None
    assert learning._images._cache is not None
    assert len(learning._images._cache) == len({one.screenshot for one in seen})
    assert learning._images._cache.capacity == TINY.image_cache


def test_a_policy_without_notices_has_none() -> None:
    class Noticing:
        notices = ["runs slowly here"]  # noqa: RUF012

    assert notices_of(tiny_policy()) == []
    assert not isinstance(tiny_policy(), HasNotices)
    assert notices_of(Noticing()) == ["runs slowly here"]  # type: ignore[arg-type]
