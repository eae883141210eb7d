"""Settings that do not go together are refused before anything starts."""

from __future__ import annotations

import pytest

from distrl.config.load import load_config
from distrl.errors import ConfigError


def test_a_policy_that_looks_needs_pictures_to_be_kept() -> None:
    with pytest.raises(ConfigError, match="keep_screenshots is off") as caught:
        load_config(None, {"policy.kind": "pixel"})
    assert caught.value.fix == "--rollout.keep_screenshots true"
    assert load_config(None, {"policy.kind": "pixel", "rollout.keep_screenshots": "true"}).policy.kind == "pixel"


@pytest.mark.parametrize("key", ["policy.device", "learner.device"])
def test_the_pointer_takes_no_gpu(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} = cuda:1: the pointer runs on the CPU alone"):
        load_config(None, {key: "cuda:1"})
    load_config(None, {key: "auto"})


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CUDA", ""])
def test_a_device_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        load_config(None, {"policy.device": name})
