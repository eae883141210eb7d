"""The Python API as a script and a notebook use it: training in a file without a main guard, with a part of one's own beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.runs import PATIENCE_S, TINY

JUDGE = """
from distrl.types import Verdict

class Lenient:
    def __init__(self, settings): pass
    async def judge(self, attempt):
        return Verdict(outcome="success", reason="all are fine")
"""
SCRIPT = """
import asyncio, json, logging
import distrl, mine

async def cell():  # a notebook runs its cells inside an event loop
    logging.basicConfig(level=logging.WARNING)
    seen = []
    settings = {**json.load(open("tiny.json")), "judge.kind": mine.Lenient, "run.episodes": 12}
    run = distrl.train(settings, progress=False, watch=lambda snapshot: seen.append(snapshot.phase))
    first = run.summary.episodes
    again = run.resume(run__episodes=first + 8, progress=False)
    report = run.evaluate(episodes=3)
    print(json.dumps({
        "phases": sorted(set(seen)),
        "episodes": [first, len(list(again.episodes()))],
        "success": [run.summary.success_after, report.success],
        "reasons": sorted({episode.verdict.reason for episode in run.episodes()}),
        "policy": run.policy().version == run.summary.policy_version,
    }))

asyncio.run(cell())
"""


def test_a_script_trains_resumes_and_evaluates_with_a_judge_that_lies_beside_it(tmp_path: Path) -> None:
    code, work = tmp_path / "code", tmp_path / "work"
    code.mkdir()
    work.mkdir()
    (code / "mine.py").write_text(JUDGE)
    (code / "script.py").write_text(SCRIPT)
    (work / "tiny.json").write_text(
        json.dumps({**TINY, "run.root": "runs", "rollout.workers": 1, "evaluation.episodes": 4})
    )
    command = [sys.executable, str(code / "script.py")]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "training" in found["phases"] or "collecting" in found["phases"], found["phases"]
    assert found["episodes"][1] >= found["episodes"][0] + 8
    assert found["success"] == [1.0, 1.0]
    assert found["reasons"] == ["all are fine"]
    assert found["policy"]
