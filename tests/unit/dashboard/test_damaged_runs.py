"""Runs that are half written, damaged or made to do harm: each page says what there is, and none of them costs another run its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.types import ASGIApp

import distrl
from distrl.bench.system.stored_run import write_stored_run
from distrl.dashboard.app import make_app
from distrl.dashboard.report import write_report
from distrl.dashboard.security import Access
from distrl.dashboard.trace import trace_of
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.live import DeviceView, DeviceViews, FileScreens
from distrl.types import Trajectory
from support.asgi import ask
from support.dashboards import odd_numbers

PAGES = (
    "", "/fleet", "/episodes", "/episodes?outcome=failure", "/choices", "/learning", "/learning?by=template", "/learning?by=length",
    "/health", "/logs", "/logs?text=a", "/episodes/odd",
)  # fmt: skip


def odd_metrics(run: RunFolder) -> None:
    with run.metrics.open("ab") as file:
        file.write(b'{"time_s":5,"event":"learner","learner/version":' + b"9" * 400 + b"}\n")
        file.write(b'{"time_s":5,"event":"learner","role":7,"learner/version":1e300,"a/b":true}\nnonsense\n\xff\xfe\n')


def odd_logs(run: RunFolder) -> None:
    for name in (os.fsdecode(b"bad\xff"), "two\nlines"):
        (run.logs / f"{name}.jsonl").write_bytes(b'{"time_s":5,"event":"device_lost","device":3}\n')
    with run.log("worker-0").open("ab") as file:
        file.write(b'{"time_s":5,"event":"died"}\n{"time_s":5,"event":"notice","text":5}\n{"time_s":5,"event":"spans","done":7}\n')  # fmt: skip


def odd_heartbeats(run: RunFolder) -> None:
    run.heartbeats.mkdir(exist_ok=True)
    (run.heartbeats / "worker-0.json").write_bytes(b'{"a":')
    (run.heartbeats / "worker-0.screens").write_bytes(b"\x00")


DAMAGES: tuple[Callable[[RunFolder], object], ...] = (
    odd_numbers, odd_metrics, odd_logs, odd_heartbeats,
    lambda run: (run.path / "env.json").unlink(), lambda run: shutil.rmtree(run.experience), lambda run: run.metrics.unlink(),
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_page_of_a_damaged_run_shows_what_there_is(tmp_path: Path, damage: Callable[[RunFolder], object]) -> None:
    run = write_stored_run(tmp_path, 12)
    damage(run)
    app = make_app(tmp_path, Access())
    (card,) = ask(app, "/api/runs").json["runs"]
    assert card["state"] == "stopped"
    for page in PAGES:
        answer = ask(app, f"/api/runs/{run.name}{page}")
        assert answer.status == 200 or (answer.status == 404 and page == "/episodes/odd"), (page, answer.body)
        assert answer.json
    assert write_report(run.path).stat().st_size > 2000
    assert trace_of(distrl.open_run(run.path)).startswith(b'{"traceEvents":')


def test_a_run_whose_settings_are_half_written_is_listed_with_the_reason(tmp_path: Path) -> None:
    half, whole = write_stored_run(tmp_path, 8), write_stored_run(tmp_path, 8, seed=1)
    text = half.config_file.read_text()
    half.config_file.write_text(text[: text.index("=") + 1])
    app = make_app(tmp_path, Access())
    cards = {card["name"]: card for card in ask(app, "/api/runs").json["runs"]}
    assert (cards[half.name]["state"], cards[whole.name]["state"]) == ("unreadable", "stopped")
    assert "config.toml" in cards[half.name]["why"]
    for page in PAGES:
        answer = ask(app, f"/api/runs/{half.name}{page}")
        assert 400 <= answer.status < 500, (page, answer.body)
        assert "config.toml" in answer.json["error"]


def test_a_folder_whose_name_is_no_text_is_listed_and_costs_no_other_run_its_place(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    shutil.copytree(run.path, tmp_path / os.fsdecode(b"2099-\xff-run"))
    app = make_app(tmp_path, Access())
    cards = {card["name"]: card for card in ask(app, "/api/runs").json["runs"]}
    assert cards[run.name]["state"] == "stopped"
    assert cards["2099-\ufffd-run"]["state"] == "unreadable"
    assert "rename" in cards["2099-\ufffd-run"]["why"]
    refused = ask(app, "/api/runs/2099-\ufffd-run/episodes")
    assert refused.status == 404
    assert "rename" in refused.json["error"]


def test_a_run_in_a_folder_whose_name_is_no_text_is_read(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    run = write_stored_run(tmp_path, 8)
    run.path.rename(folder / run.name)
    app = make_app(folder, Access())
    assert len(ask(app, f"/api/runs/{run.name}/episodes").json["entries"]) == 8
    refused = ask(app, f"/api/runs/{run.name}/frames/sha256:{'0' * 64}")
    assert refused.status == 404
    assert "error" in refused.json


@pytest.fixture
def linked(tmp_path: Path) -> tuple[ASGIApp, RunFolder]:
    """A run in which what it wrote of its machine is a link to something else."""
    run = write_stored_run(tmp_path / "runs", 8)
    (tmp_path / "secret.json").write_text('{"key": "nobody\'s business"}')
    (run.path / "env.json").unlink()
    (run.path / "env.json").symlink_to(tmp_path / "secret.json")
    return make_app(tmp_path / "runs", Access()), run


def test_a_link_in_a_run_folder_leads_nowhere(linked: tuple[ASGIApp, RunFolder]) -> None:
    app, run = linked
    shown = ask(app, f"/api/runs/{run.name}")
    assert shown.status == 200
    assert b"business" not in shown.body
    assert "business" not in write_report(run.path).read_text()


def test_first_priorities_that_are_no_numbers_are_in_no_bar(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 12)
    odd_numbers(run)
    app = make_app(tmp_path, Access())
    ask(app, f"/api/runs/{run.name}/episodes?text=x")
    charts = {chart["id"]: chart for chart in ask(app, f"/api/runs/{run.name}/learning").json["charts"]}
    assert sum(count for _, count in charts["priorities"]["lines"][0]["points"]) == 12


def test_episodes_of_a_run_that_has_none_are_none(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    shutil.rmtree(run.experience)
    found: list[Trajectory | None] = list(distrl.open_run(run.path).episodes_of(["a", "b"]))
    assert found == [None, None]


LATE = """
import json, sys
from pathlib import Path
import msgspec._utils
from distrl.dashboard.app import make_app
from distrl.dashboard.security import Access
from support.asgi import ask

stored = json.loads(sys.argv[2])
app = make_app(Path(sys.argv[1]), Access())
late, resolve = [], msgspec._utils._forward_ref
msgspec._utils._forward_ref = lambda value: late.append(value) or resolve(value)
for address in stored:
    assert ask(app, address).status == 200, address
print(json.dumps(late))
"""


def test_no_type_is_worked_out_while_several_threads_answer(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 4)
    FileScreens(run.heartbeats, "worker-0").show(DeviceViews(time_s=1.0, devices=(DeviceView(device="a", role="worker-0", state="idle"),)))  # fmt: skip
    addresses = ["/api/runs", *(f"/api/runs/{run.name}{page}" for page in ("", "/fleet", "/episodes?text=a", "/learning", "/health", "/episodes/episode-000002"))]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", LATE, str(tmp_path), json.dumps(addresses)], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == []
