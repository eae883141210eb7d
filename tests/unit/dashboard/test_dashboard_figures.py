"""Curves, charts, health and Prometheus: what is shown is what was written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import distrl
from distrl.bench.system.stored_run import write_stored_run
from distrl.dashboard import prometheus
from distrl.dashboard.app import make_app
from distrl.dashboard.catalogue import VersionTimes
from distrl.dashboard.figures import METRIC_CHARTS, MOST_LINES, charts_of
from distrl.dashboard.fleet import FleetView, changed
from distrl.dashboard.health import health_of, lines_of, without_numbers
from distrl.dashboard.run_list import OpenRun, RunList
from distrl.dashboard.security import Access
from distrl.dashboard.series import MOST_POINTS, Curve, MetricCurves
from distrl.errors import UsageError
from distrl.runtime.run_folder import take
from distrl.telemetry.events import EventLog
from distrl.telemetry.live import DeviceView, DeviceViews, FileScreens
from distrl.telemetry.metrics import METRICS
from support.asgi import ask


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stored_run(tmp_path_factory.mktemp("runs"), 400).path


@pytest.fixture
def opened(path: Path) -> OpenRun:
    found = OpenRun(path)
    found.refresh()
    return found


def test_a_long_curve_is_thinned_out_and_keeps_its_ends_and_shape() -> None:
    curve = Curve()
    for number in range(50_000):
        curve.add(float(number), number / 50_000)
    assert len(curve.points) < MOST_POINTS
    assert curve.points[0] == (0.0, 0.0)
    assert curve.points[-1][0] > 49_000
    assert all(abs(value - at / 50_000) < 1e-4 for at, value in curve.points)


def test_devices_are_as_busy_as_between_two_lines_and_a_new_process_counts_anew(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 1)
    run.metrics.unlink()
    log = EventLog(run.metrics, clock=iter(range(100)).__next__)
    for busy_s, device_s in ((5.0, 10.0), (14.0, 20.0), (0.5, 1.0), (9.5, 11.0)):
        log.write("worker", role="worker-0", **{"worker/busy_s": busy_s, "worker/device_s": device_s})
    curves = MetricCurves(distrl.open_run(run.path), VersionTimes())
    curves.refresh()
    assert [value for _, value in curves.curves["worker/busy_share"]["worker-0"].points] == [0.5, 0.9, 0.9]


def test_metrics_are_followed_line_by_line_and_half_a_line_waits(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 1)
    tail = distrl.open_run(run.path).follow()
    first = len(tail.new())
    assert first
    assert not tail.new()
    with run.metrics.open("ab") as file:
        file.write(b'{"time_s":1,"event":"learner","learner/version":4}\n{"time_s":2,"eve')
        file.flush()
        assert [line["learner/version"] for line in tail.new()] == [4]
        file.write(b'nt":"learner","learner/version":5}\nnonsense\n')
        file.flush()
        assert [line["learner/version"] for line in tail.new()] == [5]
    run.metrics.write_bytes(b'{"time_s":3,"event":"learner","learner/version":6}\n')
    assert [line["learner/version"] for line in tail.new()] == [6]


def test_every_chart_names_declared_metrics_and_says_what_is_healthy(opened: OpenRun) -> None:
    computed = {"worker/busy_share"}
    assert all(name in METRICS or name in computed for chart in METRIC_CHARTS for name in chart.names)
    charts = charts_of(opened, "all")
    assert all(chart.says.endswith(".") and chart.healthy and chart.lines for chart in charts)
    assert [chart.id for chart in charts][:2] == ["success", "evaluations"]


@pytest.mark.parametrize("group", ["suite", "template", "length"])
def test_success_is_counted_by_group_and_every_episode_is_in_one(opened: OpenRun, group: str) -> None:
    chart = charts_of(opened, group)[0]  # type: ignore[arg-type]
    assert sum(line.n for line in chart.lines) == 400
    assert all(
        low <= value <= high
        for line in chart.lines
        for (_, value), low, high in zip(line.points, line.low, line.high, strict=True)
    )


def test_the_staleness_histogram_counts_every_episode(opened: OpenRun) -> None:
    chart = next(chart for chart in charts_of(opened, "all") if chart.id == "arrival")
    assert sum(count for _, count in chart.lines[0].points) == 400


# --- health -----------------------------------------------------------------------------------------------------------


def test_health_counts_restarts_and_losses_by_cause(opened: OpenRun) -> None:
    health = health_of(opened)
    assert [(one.who, one.why, one.count) for one in health.restarts] == [("worker-1", "killed by SIGKILL", 1)]
    assert health.losses
    assert all("it took over … s to answer" in one.why for one in health.losses)
    assert [role.role for role in health.roles] == ["learner", "worker-0", "worker-1", "evaluator"]


def test_causes_that_differ_in_their_times_alone_are_one() -> None:
    assert without_numbers("silent for 12 s while x (3.5 s)") == without_numbers("silent for 7 s while x (0.1 s)")
    assert without_numbers("exit code 3") != without_numbers("exit code 4")


def test_logs_are_searched_newest_first_whatever_the_case(path: Path) -> None:
    run = distrl.open_run(path)
    lines = lines_of(run, "", "SIGKILL died")
    assert [(line.role, line.event) for line in lines] == [("supervisor", "died")]
    assert " · because killed by SIGKILL" in lines[0].text
    times = [line.time_s for line in lines_of(run, "worker-0", "")]
    assert times == sorted(times, reverse=True)
    assert len(times) > 100
    assert {line.event for line in lines_of(run, "", "trouble")} <= {"died", "device_lost"}
    assert not lines_of(run, "", "no line says this")
    with pytest.raises(UsageError):
        lines_of(run, "../config", "")


# --- Prometheus -------------------------------------------------------------------------------------------------------


def test_only_live_runs_are_told_to_prometheus_in_its_format(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 5)
    runs = RunList(tmp_path)
    assert prometheus.exposition(runs) == ""
    lock = take(run.lock("supervisor"), wait_s=1, what="it")
    try:
        text = prometheus.exposition(RunList(tmp_path))
    finally:
        lock.release()
    assert f'distrl_learner_version{{run="{run.name}",role="learner"}} 0\n' in text
    for line in text.splitlines():
        assert line.startswith("# ") or (len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) is not None)
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)


def test_every_address_of_a_stored_run_answers(path: Path) -> None:
    app = make_app(path, Access())
    listed = ask(app, "/api/runs").json
    assert listed["single"]
    assert [run["name"] for run in listed["runs"]] == [path.name]
    for rest in (
        "",
        "/fleet",
        "/episodes",
        "/choices",
        "/learning",
        "/learning?by=length",
        "/health",
        "/logs",
        "/episodes/episode-000007",
    ):
        answer = ask(app, f"/api/runs/{path.name}{rest}")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), rest
        assert answer.json
    assert ask(app, f"/api/runs/{path.name}/fleet/picture?device=x").status == 404


def test_devices_in_quarantine_are_named_before_those_that_restart(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 2)
    states = {"phone-1": "restarting", "phone-2": "playing", "phone-3": "quarantined", "phone-4": "absent"}
    devices = tuple(
        DeviceView(device=f"worker-0/{name}", role="worker-0", state=state, waiting="its turn", losses=3)  # type: ignore[arg-type]
        for name, state in states.items()
    )
    FileScreens(run.heartbeats, "worker-0").show(DeviceViews(time_s=1.0, devices=devices))
    health = health_of(OpenRun(run.path))
    assert [(one.device, one.state) for one in health.out_of_use] == [
        ("worker-0/phone-3", "quarantined"),
        ("worker-0/phone-4", "absent"),
        ("worker-0/phone-1", "restarting"),
    ]
    assert health.num_devices == 4


def test_a_chart_of_very_many_roles_draws_some_and_says_how_many_there_are(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    log = EventLog(run.metrics)
    for number in range(50):
        log.write("worker", role=f"worker-{number}", **{"worker/invalid/share": 0.1})
    opened = OpenRun(run.path)
    opened.refresh()
    chart = next(chart for chart in charts_of(opened, "all") if chart.id == "invalid")
    assert len(chart.lines) == MOST_LINES
    assert f"the first {MOST_LINES} are drawn" in chart.says


def test_devices_are_read_once_for_all_who_look_at_the_same_time(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    fleet = OpenRun(run.path).fleet
    assert fleet.tiles() is fleet.tiles()


def test_a_device_on_which_nothing_happens_is_sent_once(tmp_path: Path) -> None:
    run, time_s, sent = write_stored_run(tmp_path, 4), 1e9, dict[str, int]()
    screens = FileScreens(run.heartbeats, "worker-0")
    fleet = FleetView(distrl.open_run(run.path))

    def shown(*steps: int, play_s: float, at_s: float) -> list[str]:
        views = (DeviceView(device=f"phone-{number}", role="worker-0", state="playing", step=step, play_s=play_s) for number, step in enumerate(steps))  # fmt: skip
        screens.show(DeviceViews(time_s=time_s + at_s, devices=tuple(views)))
        _, tiles = fleet.read()
        fresh, now = changed(tiles, sent)
        sent.update(now)
        return [msgspec.json.decode(tile)["device"] for tile in fresh]

    assert shown(1, 1, play_s=1.0, at_s=0.0) == ["phone-0", "phone-1"]
    assert shown(1, 2, play_s=2.1, at_s=1.04) == ["phone-1"]
    assert shown(1, 2, play_s=3.0, at_s=2.1) == []
    assert shown(1, 2, play_s=0.0, at_s=5.0) == ["phone-0", "phone-1"]  # the same first step of another episode


def test_a_machine_whose_clock_stands_at_its_beginning_shows_its_devices(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 4)
    views = (DeviceView(device="phone-0", role="worker-0", state="playing", play_s=0.5),)
    FileScreens(run.heartbeats, "worker-0").show(DeviceViews(time_s=0.5, devices=views))
    _, tiles = FleetView(distrl.open_run(run.path)).read()
    assert [(tile.device, tile.began_s) for tile in tiles] == [("phone-0", 0.0)]
