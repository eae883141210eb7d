"""Without an extra of the package, a verb says at once which one it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from distrl.config.load import load_config
from distrl.installing import install
from distrl.runtime.run_folder import create_run
from support.pages import ROOT

PIP = ".venv/bin/pip" if Path(sys.prefix) == ROOT / ".venv" else "pip"
COMMAND = f"cd {ROOT} && {PIP} install -c constraints.txt -e '.[{{}}]'"
"""How an extra is installed in a clone by somebody who is elsewhere."""

HIDES = """
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden())
"""


def without(folder: Path, *hidden: str) -> dict[str, str]:
    """An environment in which Python does not find these packages."""
    (folder / "sitecustomize.py").write_text(HIDES.format(hidden=hidden))
    paths = [str(folder), *(path for path in sys.path if path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def refused(command: list[str], env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "distrl", *command],
        capture_output=True, text=True, env=env, cwd=cwd, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) <= 4
    return done.stderr


@pytest.mark.parametrize("verb", ["train", "evaluate", "export", "sft", "bench"])
def test_without_torch_the_extra_is_named_at_once(verb: str, tmp_path: Path) -> None:
    run = str(create_run(load_config(None, {"run.root": str(tmp_path / "runs")}), now=datetime(2026, 5, 4)).path)
    command = {
        "train": ["train", "--run.root", "new"],
        "evaluate": ["evaluate", run],
        "export": ["export", run, "out"],
        "sft": ["sft", run, "--data", run],
        "bench": ["bench", "replay", "--quick"],
    }[verb]
    said = refused(command, without(tmp_path, "torch"), tmp_path)
    assert "torch is not installed" in said
    assert f"try: {COMMAND.format('train')}" in said
    assert not (tmp_path / "new").exists()


FROM_PYTHON = """
import sys
import distrl
from distrl.errors import UsageError
try:
    {call}
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "call",
    [
        "distrl.train(run__root='new')",
        "distrl.open_run(sys.argv[1]).resume()",
        "distrl.evaluate(sys.argv[1])",
        "distrl.load_policy(sys.argv[1])",
        "distrl.open_run(sys.argv[1]).policy()",
    ],
)
def test_without_torch_the_extra_is_named_from_python_too_and_nothing_is_made(call: str, tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path / "runs")}), now=datetime(2026, 5, 4)).path
    before = sorted(run.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", FROM_PYTHON.format(call=call), str(run)],
        capture_output=True, text=True, env=without(tmp_path, "torch"), cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("torch is not installed")
    assert f"try: {COMMAND.format('train')}" in done.stdout
    assert not (tmp_path / "new").exists()
    assert sorted(run.rglob("*")) == before


def test_a_language_model_without_transformers_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).write_text("{}")
    flags = ["--policy.kind", "vlm", "--policy.vlm.path", str(model), "--policy.vlm.pictures", "false"]
    said = refused(["train", *flags, "--run.root", "new"], without(tmp_path, "transformers"), tmp_path)
    assert f"try: {COMMAND.format('vlm')}" in said
    assert not (tmp_path / "new").exists()


def test_other_verbs_do_without_torch(tmp_path: Path) -> None:
    env = without(tmp_path, "torch")
    for command in (["config", "show"], ["tasks", "show", "sim-start/test/0"]):
        done = subprocess.run([sys.executable, "-m", "distrl", *command], capture_output=True, env=env, check=False)
        assert done.returncode == 0, done.stderr


def test_an_extra_comes_from_the_clone_or_from_the_wheel_that_was_built_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    assert install("train,vlm") == f"{PIP} install -c constraints.txt -e '.[train,vlm]'"
    assert install("ray", clone=tmp_path).startswith("pip install 'distrl-0.1.0-py3-none-any.whl[ray]'")


def test_nothing_has_a_reader_install_distrl_from_an_index_where_it_is_not() -> None:
    files = [
        *ROOT.glob("*.md"),
        *(file for folder in ("docs", "src", "examples", "configs") for file in (ROOT / folder).rglob("*.*")),
    ]
    texts = {
        file: file.read_text(encoding="utf-8") for file in files if file.suffix in (".md", ".py", ".toml", ".ipynb")
    }
    assert [str(file) for file, text in texts.items() if re.search(r"pip install [^\n`]*\bdistrl\[", text)] == []
