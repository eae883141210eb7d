"""The supervisor stays small: it asks for the newest version, and loads no torch for that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_the_supervisor_loads_no_torch(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", SUPERVISOR, tmp_path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
