"""The page on clusters declares as many phones as the run of its example wants: workers without a place would wait for ever."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def a_file(holding: str) -> dict[str, Any]:
    """The one file of the page that has this setting."""
    files = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (made for made in map(yaml.safe_load, files) if holding in made)
    return dict(found)


def start_options() -> set[str]:
    """What `ray start` takes."""
    command = [str(Path(sys.executable).with_name("ray")), "start", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    return set(re.findall(r"^ +(--[a-z-]+)", said, re.MULTILINE))


def test_ray_accepts_the_file_for_its_cluster_launcher() -> None:
    pytest.importorskip("ray", reason="needs the extra [ray]")
    pytest.importorskip("jsonschema", reason="Ray checks the file with it")
    from ray.autoscaler._private.util import prepare_config, validate_config

    given = a_file("cluster_name")
    made = prepare_config(given)
    validate_config(made)
    kinds = made["available_node_types"]
    assert set(kinds) == {"head", "phones"}
    assert kinds[made["head_node_type"]]["max_workers"] == 0
    assert made["setup_commands"] == made["worker_setup_commands"] == given["setup_commands"]
    config = load_config(CONFIG)
    assert (
        kinds["phones"]["min_workers"] >= config.runtime.min_workers
    )  # or the run is refused: nothing has asked for a machine by then
    assert kinds["phones"]["resources"]["phone"] >= config.devices.per_worker
    starts = [command for command in made["head_start_ray_commands"] if "ray start" in command]
    for word in shlex.split(starts[-1].partition("ray start")[2]):
        assert word.partition("=")[0] in start_options()
    for file in given["file_mounts"].values():
        assert file.startswith("~") or "/dist/" in file or (ROOT / file).exists()


def test_the_file_for_kuberay_is_of_the_installed_ray_and_its_parameters_are_those_of_ray_start() -> None:
    ray = pytest.importorskip("ray", reason="needs the extra [ray]")
    spec = a_file("apiVersion")["spec"]
    assert spec["rayVersion"] == ray.__version__  # the operator refuses `authOptions` without
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        assert {f"--{name}" for name in group["rayStartParams"]} <= start_options()
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in group["template"]["spec"].get("volumes", [])}
    (phones,) = spec["workerGroupSpecs"]
    (told,) = shlex.split(phones["rayStartParams"]["resources"])
    assert json.loads(told)["phone"] >= load_config(CONFIG).devices.per_worker
