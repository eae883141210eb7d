"""The single-file examples and the notebook do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.runs import PATIENCE_S, TINY, flags, last_json

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SINGLE = sorted(EXAMPLES.glob("*.py"))
PARTS: dict[str, dict[str, Any]] = {
    "suite, device, judge and KL to a reference": {
        "tasks.suite": "custom_suite:sounds",
        "devices.kind": "custom_device:guarded_phones",
        "devices.options.forbidden": '["Factory reset"]',
        "judge.kind": "custom_judge:ProgramJudge",
        "algorithm.kind": "kl_to_reference:HeldBack",
        "algorithm.options.kl_weight": 0.1,
    },
    "policy and algorithm": {
        "policy.kind": "custom_policy:OverlapPolicy",
        "algorithm.kind": "custom_algorithm:Reinforce",
        "algorithm.options.entropy_weight": 0.02,
    },
}
JUDGE = """
import json, sys
asked = json.load(sys.stdin)
assert asked["instruction"] and asked["screens"]
print(json.dumps({"outcome": "success" if asked["claim"] else "failure", "reason": asked["ending"]}))
"""


def python(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join(filter(None, (str(EXAMPLES), environment.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, env={**environment, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("file", SINGLE, ids=lambda file: file.name)
def test_an_example_fits_on_a_screen_and_is_listed(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) < 60
    assert f"[{file.name}]({file.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("parts", PARTS)
def test_examples_train_by_their_import_paths(parts: str, tmp_path: Path) -> None:
    (tmp_path / "my_judge.py").write_text(JUDGE)
    of_other_kinds = tuple(
        table for kind, table in (("policy.kind", "policy."), ("devices.kind", "devices.sim.")) if kind in PARTS[parts]
    )
    settings = {key: value for key, value in TINY.items() if not key.startswith(of_other_kinds)}
    settings |= {
        "run.root": "runs",
        "run.episodes": 12,
        "evaluation.episodes": 4,
        "rollout.workers": 1,
        "devices.per_worker": 8,
    }
    settings |= PARTS[parts]
    if "judge.kind" in settings:
        settings["judge.options.command"] = json.dumps([sys.executable, "my_judge.py"])
    done = python("-m", "distrl", "train", *flags(settings), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = last_json(done.stdout)
    assert summary["episodes"] >= 12
    assert summary["updates"] > 0
    assert (summary["lost_episodes"], summary["restarts"]) == (0, 0)


def test_demonstrations_that_a_person_wrote_down_are_learnt(tmp_path: Path) -> None:
    recorded = python(EXAMPLES / "own_demonstrations.py", EXAMPLES / "demonstrations.json", cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    *said, following = recorded.stdout.splitlines()
    assert following == f"next: distrl sft first-run --data {said[-1]}"
    count = len(json.loads((EXAMPLES / "demonstrations.json").read_text()))
    assert [line.endswith("-> success") for line in said[:-1]] == [True] * count
    (tmp_path / "small.toml").write_text(
        "[policy.pointer]\nwidth = 16\nlayers = 1\n[warm_start]\nepochs = 60\nlearning_rate = 0.02\n"
    )
    learnt = python("-m", "distrl", "sft", "small.toml", "--data", said[-1], "--json", cwd=tmp_path)
    assert learnt.returncode == 0, learnt.stderr
    found = last_json(learnt.stdout)
    assert found["examples"] >= 2 * count
    assert found["loss"] < 1.5


@pytest.mark.parametrize(
    ("does", "seen"),
    [
        (["tap Contacts", "tap Contax"], "tap Contax: cannot be done"),
        (["tap Contacts"], "no action left: cannot be done"),
        (["tap Contacts", "swipe left"], "swipe left: cannot be done"),
    ],
)
def test_a_demonstration_that_does_not_fit_is_told_with_what_would_and_leaves_no_run(
    does: list[str], seen: str, tmp_path: Path
) -> None:
    good = json.loads((EXAMPLES / "demonstrations.json").read_text())[:1]
    (tmp_path / "mine.json").write_text(json.dumps([*good, {"task": "sim-start/train/00001", "does": does}]))
    refused = python(EXAMPLES / "own_demonstrations.py", "mine.json", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.startswith(seen)) == (1, True), refused.stderr
    assert "tap Add contact" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine.json"]


def test_the_cells_of_the_notebook_run_and_its_outputs_are_empty(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "first_run.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    code = "\n".join("".join(cell["source"]) for cell in cells)
    fewer = "rollout__workers=1, devices__per_worker=8, evaluation__episodes=20, warm_start__demonstrations=50"
    short, changed = re.subn(r"(run__minutes=)MINUTES", rf"\g<1>0.1, {fewer}", code)
    assert changed == 1
    checked = f"{short}\nassert playback._repr_html_().startswith('<img')\nprint('the end')\n"
    # As a notebook's kernel runs them: while the loop of its thread runs.
    (tmp_path / "cells.py").write_text(
        f"import asyncio\nasync def kernel():\n    exec({checked!r}, globals())\nasyncio.run(kernel())\n"
    )
    done = python("cells.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "before" in done.stdout
    assert done.stdout.endswith("the end\n")
