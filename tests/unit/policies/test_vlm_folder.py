"""What a model's folder must look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.errors import ConfigError
from distrl.policies.vlm.folder import check_folder

ROOT = Path(__file__).parents[3]


def test_a_model_that_is_not_there_comes_with_both_ways_to_get_one() -> None:
    with pytest.raises(ConfigError, match="is no model folder") as caught:
        check_folder("models/no-such-model")
    assert "hf download" in caught.value.fix
    assert 'docs/vlm.md says under "A small language model"' in caught.value.fix
    with pytest.raises(ConfigError, match="is no model folder") as caught:
        check_folder("HuggingFaceTB/SmolVLM-256M")
    assert caught.value.fix.startswith("hf download HuggingFaceTB/SmolVLM-256M --local-dir models/SmolVLM-256M, then")
    assert "### A small language model" in (ROOT / "docs" / "vlm.md").read_text(encoding="utf-8")
