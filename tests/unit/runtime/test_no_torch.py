"""What needs no torch loads none: the supervisor, who asks for the newest version, and whoever looks at a run from Python."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

from distrl.config.load import load_config
from distrl.runtime.run_folder import create_run

SUPERVISOR = """
import sys
from pathlib import Path
from distrl.config.schema import RuntimeConfig
from distrl.runtime.local import LocalRuntime
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.session import Session
assert LocalRuntime(RunFolder(Path(sys.argv[1])), RuntimeConfig()).transport.weights.latest() is None
print("torch" in sys.modules)
"""


READER = """
import sys
import distrl
run = distrl.open_run(sys.argv[1])
run.config, run.summary, run.status(), run.evaluations(), run.metrics(), list(run.episodes())
print([name for name in ("torch", "gymnasium") if name in sys.modules])
"""


def test_looking_at_a_run_from_python_loads_neither_torch_nor_gymnasium(tmp_path: Path) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    command = [sys.executable, "-c", READER, str(run.path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_supervisor_loads_no_torch(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", SUPERVISOR, tmp_path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
