"""A training run on a list of 500 instructions whose episodes a model judges: a local endpoint, simulated phones."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.tasks.base import SPLITS, suite, tasks_of
from support.chats import KEY, KEY_ENV, Act, ChatServer, Handler, fails, says, sends
from support.runs import TINY, distrl, flags

SETTINGS = {
    **TINY,
    "run.episodes": 20,
    "tasks.suite": "list",
    "tasks.list.max_steps": 6,
    "judge.kind": "model",
    "judge.model.model": "judge-1",
    "judge.model.backoff_s": 0.05,
    "rollout.workers": 1,
    "rollout.keep_screenshots": "true",
    "devices.per_worker": 8,
    "devices.sim.screenshot_width": 96,
    "warm_start.demonstrations": 0,
    "evaluation.episodes": 2,
}


def write_list(path: Path) -> None:
    """500 instructions of simulated phones, with nothing that a judge could go by but the screen."""
    tasks = [task for split in SPLITS for task in tasks_of(suite("sim-general"), split, 400)]
    found = list({task.instruction.casefold(): task for task in tasks}.values())[::2][:500]
    lines = [msgspec.json.encode({"instruction": task.instruction, "setup": task.setup}) for task in found]
    assert len(lines) == 500
    path.write_bytes(b"\n".join(lines))


def by_claim(handler: Handler) -> None:
    """Believes every claim that something is done."""
    line = handler.asked["messages"][1]["content"][0]["text"].split("\n")[1]
    says("success" if json.loads(line)["claim"]["status"] == "complete" else "failure", "as claimed")(handler)


def holding_the_key(run: RunFolder) -> list[str]:
    """What of a run holds the key: files as they are, and reasons, which may be compressed in a file."""
    with ExperienceStore(run.experience) as store:
        reasons = [store.read(row.id).verdict.reason for row in store.after(0, 10_000)]
    files = [str(path) for path in run.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    return files + [reason for reason in reasons if KEY in reason]


def test_a_list_of_500_instructions_trains_with_a_model_as_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    write_list(tmp_path / "tasks.jsonl")
    with ChatServer(fails(429, Retry_After="0.1"), fails(500), usual=by_claim) as server:
        settings = {
            **SETTINGS,
            "run.root": tmp_path,
            "tasks.list.path": tmp_path / "tasks.jsonl",
            "judge.model.url": server.url,
        }
        done = distrl("train", *flags(settings), "--json")
    assert done.returncode == 0, done.stderr
    run = RunFolder(next(tmp_path.glob("*/config.toml")).parent)
    with ExperienceStore(run.experience) as store:
        played = [store.read(row.id) for row in store.after(0, 10_000)]
    assert len(played) >= 20
    assert {trajectory.verdict.reason for trajectory in played} >= {"as claimed"}
    for trajectory in played:
        claim = trajectory.end.claim
        outcome = "success" if claim is not None and claim.status == "complete" else "failure"
        assert trajectory.verdict.outcome == outcome, trajectory.verdict.reason
    assert any(part["type"] == "image_url" for asked in server.asked for part in asked["messages"][1]["content"])
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert (holding_the_key(run), KEY in done.stdout + done.stderr) == ([], False)


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (fails(401, f"no such key: {KEY}"), "unauthorised"),
        pytest.param(fails(429, Retry_After="3600"), "rate_limited", marks=pytest.mark.long),
        pytest.param(sends(b"<html>hello</html>", kind="text/html"), "no_api", marks=pytest.mark.long),
    ],
)
def test_a_run_whose_judge_has_no_verdicts_ends_with_3_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Act, cause: str
) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    write_list(tmp_path / "tasks.jsonl")
    with ChatServer(usual=act) as server:
        settings = {
            **SETTINGS,
            "run.root": tmp_path,
            "run.episodes": 10_000,
            "runtime.no_verdicts": 6,
            "tasks.list.path": tmp_path / "tasks.jsonl",
            "judge.model.url": server.url,
        }
        ended = distrl("train", *flags(settings))
    assert ended.returncode == 3, ended.stderr
    assert f"without a verdict (runtime.no_verdicts): {cause}: " in ended.stderr
    assert "--resume" in ended.stderr
    assert KEY not in ended.stdout + ended.stderr
    run = RunFolder(next(tmp_path.glob("*/config.toml")).parent)
    for words in (("status", run.path), ("report", run.path)):
        told = distrl(*words)
        assert told.returncode == 0
        assert KEY not in told.stdout + told.stderr
    assert holding_the_key(run) == []


def test_a_run_without_the_key_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_ENV, raising=False)
    write_list(tmp_path / "tasks.jsonl")
    settings = {
        **SETTINGS,
        "run.root": tmp_path / "runs",
        "tasks.list.path": tmp_path / "tasks.jsonl",
        "judge.model.url": "http://127.0.0.1:9/v1",
    }
    refused = distrl("train", *flags(settings))
    assert refused.returncode == 3
    assert f"the environment variable {KEY_ENV} is not set" in refused.stderr
    assert not (tmp_path / "runs").exists()
