"""The page on clusters declares as many phones as the run of its example wants: workers without a place would wait for ever."""

from __future__ import annotations

import json
import re

from distrl.config.load import load_config
from distrl.runtime.base import worker_names
from support.pages import ROOT, shell_commands

CONFIG = ROOT / "configs" / "cluster.toml"


def test_the_machine_with_phones_has_room_for_all_workers_of_the_example() -> None:
    config = load_config(CONFIG)
    wanted = {config.runtime.device_resource: len(worker_names(config)) * config.devices.per_worker}
    (joins,) = (
        each.words
        for each in shell_commands()
        if each.place.startswith("docs/cluster.md:") and "--resources" in each.words
    )
    assert json.loads(joins[-1]) == wanted
    (comment,) = re.findall(r"--resources '(.*?)'", CONFIG.read_text(encoding="utf-8"))
    assert json.loads(comment) == wanted
