"""Accessible names, contrast and roles of every page and of the report, as axe-core judges them.

axe-core is not part of distrl: DISTRL_TEST_AXE names its `axe.min.js`, and without it these tests are skipped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import distrl
from distrl.bench.system.stored_run import write_stored_run
from distrl.dashboard.report import write_report
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.live import DeviceView, DeviceViews, FileScreens
from support.browser import Browser, browser
from support.dashboards import Dashboard, dashboard

VARIABLE = "DISTRL_TEST_AXE"
AXE = os.environ.get(VARIABLE, "")
PAGES = (
    "/", "/runs/RUN/fleet", "/runs/RUN/episodes", "/runs/RUN/episodes/episode-000007/1", "/runs/RUN/learning", "/runs/RUN/learning?by=template",
    "/runs/RUN/health", "/runs/RUN/settings", "/runs/RUN/episodes/none", "/compare?a=RUN&b=RUN",
)  # fmt: skip
BAD = "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => `${v.id}: ${v.nodes.map(n => n.target.join(' ')).slice(0, 5)}`))"

pytestmark = pytest.mark.skipif(not AXE, reason=f"{VARIABLE} does not name the axe.min.js of axe-core")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = write_stored_run(tmp_path_factory.mktemp("runs"), 60)
    steps = [episode.steps[0] for episode in distrl.open_run(run.path).episodes(last=6)]
    states = ("playing", "idle", "restarting", "quarantined", "absent", "playing")
    views = tuple(
        DeviceView(device=f"phone-{number}", role="worker-0", state=state, instruction=step.observation.instruction, max_steps=12, step=1, action=step.decision.action, seen=step.observation)
        for number, (state, step) in enumerate(zip(states, steps, strict=True))
    )  # fmt: skip
    FileScreens(run.heartbeats, "worker-0").show(DeviceViews(time_s=time.time(), devices=views))
    return run


@pytest.fixture(scope="module")
def shown(run: RunFolder) -> Iterator[Dashboard]:
    with dashboard(run.path.parent) as found:
        yield found


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_serious(chromium: Browser, shown: Dashboard, run: RunFolder, width: int, dark: bool) -> None:
    page, found = chromium.page(width=width, dark=dark), {}
    addresses = [shown.url + rest.replace("RUN", run.name) for rest in PAGES]
    for address in [*addresses, f"file://{write_report(run.path)}"]:
        page.open(address)
        page.until("!!document.querySelector('main h1')")
        page.run(f"{Path(AXE).read_text()};1")
        if bad := page.run(BAD):
            found[address] = bad
    assert found == {}
