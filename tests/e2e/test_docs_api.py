"""The Python of the API's page works as shown, from the first block to the last."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.runs import PATIENCE_S

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-api.md"


def test_the_blocks_of_the_page_run_one_after_the_other(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 6
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "episode.gif").read_bytes().startswith(b"GIF89a")
