"""The benchmark of the first run trains what `make train` trains."""

from __future__ import annotations

from pathlib import Path

from distrl.bench.first_run import CONFIG
from distrl.config.load import config_hash, load_config

FILE = Path(__file__).parents[3] / "configs" / "first-run.toml"


def test_the_benchmark_trains_what_make_train_trains() -> None:
    assert config_hash(load_config(None, CONFIG)) == config_hash(load_config(FILE))
