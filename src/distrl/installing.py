"""The command that installs an extra of distrl.

distrl is on no package index, where anybody may take its name: extras come from a clone, or from a wheel that was built in one.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

CLONE = Path(__file__).parents[2]


def install(extras: str, *, clone: Path = CLONE) -> str:
    """How extras, such as `train` or `train,vlm`, get beside the distrl that runs: in `clone`, unless it was installed as a wheel."""
    if not (clone / "constraints.txt").is_file():
        return f"pip install '{wheel(extras)}', the wheel that `make wheel` builds in a clone"
    there = "" if Path.cwd() == clone else f"cd {clone} && "
    pip = ".venv/bin/pip" if Path(sys.prefix) == clone / ".venv" else "pip"
    return f"{there}{pip} install -c constraints.txt -e '.[{extras}]'"


def wheel(extras: str) -> str:
    """The name of this version's wheel, with extras, as pip takes it."""
    return f"distrl-{version('distrl')}-py3-none-any.whl[{extras}]"
