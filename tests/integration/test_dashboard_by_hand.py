"""A person takes the phone in a real Chromium: mouse and keyboard become actions, the judge speaks, and a success is learnt from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import distrl
from distrl.cli.main import main
from distrl.runtime.run_folder import RunFolder
from distrl.tasks.base import find_task, suite
from distrl.tasks.sim.oracle import Oracle
from distrl.telemetry.live import DeviceView, DeviceViews, FileScreens
from distrl.types import Action, Finish, LongPress, Observation, Press, Swipe, Tap, TypeText, UiElement
from support.browser import Browser, Page, browser
from support.dashboards import Dashboard, dashboard, trying
from support.trajectories import make_trajectory


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


def state_of(page: Page) -> dict[str, object]:
    """What the server says of the attempt that the page shows."""
    found = page.run("fetch('/api/attempts/' + location.pathname.split('/')[2]).then(a => a.text())")
    return json.loads(found)  # type: ignore[no-any-return]


def on_canvas(page: Page, x: float, y: float) -> tuple[float, float]:
    """Where a place of the phone is in the window."""
    box = page.run(
        "(() => { const c = document.querySelector('canvas.hand'); c.scrollIntoView({block: 'center'}); const b = c.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
    )
    return box[0] + x * box[2], box[1] + y * box[3]


def do(page: Page, action: Action) -> None:
    """With mouse and keyboard."""
    match action:
        case Tap(x=x, y=y):
            page.press(on_canvas(page, x, y))
        case LongPress(x=x, y=y):
            page.press(on_canvas(page, x, y), hold_s=0.7)
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            page.drag(on_canvas(page, x, y), on_canvas(page, to_x, to_y))
        case TypeText(text=text):
            page.run("document.querySelector('canvas.hand').focus()")
            page.key(text[0])
            page.until("document.activeElement.matches('.phone input')")
            page.type(text[1:])
            page.key("Enter")
        case Press(key="enter"):
            page.run("document.querySelector('canvas.hand').focus()")
            page.key("Enter")
        case Press(key="back"):
            page.run("document.querySelector('canvas.hand').focus()")
            page.key("Backspace")
        case Press(key="home"):
            page.run("[...document.querySelectorAll('button')].find(b => b.innerText === 'Home').click()")
        case Finish(status=status, answer=answer):
            page.run(f"document.querySelector('[aria-label=\"Answer to the task\"]').value = {json.dumps(answer)}")
            name = "Done" if status == "complete" else "Impossible"
            page.run(f"[...document.querySelectorAll('button')].find(b => b.innerText === '{name}').click()")
        case _:
            raise AssertionError(action)


def play_like_the_oracle(page: Page, task: str) -> list[Action]:
    """Play the task to its end; what was done."""
    oracle, done = Oracle(find_task(suite(task.partition("/")[0]), task)), list[Action]()
    while not (state := state_of(page))["over"]:
        seen = msgspec.convert(state["observation"], Observation)
        action = oracle.act(tuple[UiElement, ...](seen.elements))
        do(page, action)
        done.append(action)
        page.until(f"/^step {len(done)} /.test(document.querySelector('.where').innerText)")
    return done


@pytest.mark.parametrize("task", ["sim-start/train/00043", "sim-general/train/00058"])
def test_a_task_is_done_by_hand_and_kept_as_a_demonstration(chromium: Browser, task: str, tmp_path: Path) -> None:
    page = chromium.page()
    with trying(task, tmp_path) as shown:
        page.open(shown.url)
        page.until(
            "!!document.querySelector('canvas.hand') && /Your move/.test(document.querySelector('.caption').innerText)"
        )
        assert page.text("h1") == find_task(suite(task.partition("/")[0]), task).instruction
        done = play_like_the_oracle(page, task)
        page.until("/success/.test(document.querySelector('[aria-label=Verdict]').innerText)")
        page.picture(tmp_path / "verdict.png")
        page.click("[aria-label=Verdict] button")
        page.until("/distrl sft/.test(document.querySelector('[aria-label=Verdict]').innerText)")
        assert page.errors == []
    (folder,) = (tmp_path / "runs").iterdir()
    (kept,) = distrl.open_run(folder).episodes(source="demonstration")
    assert [type(step.decision.action) for step in kept.steps] == [type(action) for action in done]
    assert {type(action) for action in done} >= {Tap, LongPress, Finish}
    assert kept.verdict.success


def test_what_was_done_by_hand_is_learnt_by_sft(chromium: Browser, tmp_path: Path) -> None:
    page, task = chromium.page(), "sim-start/train/00000"
    with trying(task, tmp_path) as shown:
        page.open(shown.url)
        page.until("!!document.querySelector('canvas.hand')")
        play_like_the_oracle(page, task)
        page.click("[aria-label=Verdict] button")
        page.until("/distrl sft/.test(document.querySelector('[aria-label=Verdict]').innerText)")
    (folder,) = (tmp_path / "runs").iterdir()
    config = tmp_path / "small.toml"
    config.write_text(f'[run]\nroot = "{tmp_path / "learnt"}"\n[policy.pointer]\nwidth = 16\nlayers = 1\n')
    assert main(["sft", str(config), "--data", str(folder)]) == 0
    (learnt,) = (tmp_path / "learnt").iterdir()
    assert list((learnt / "weights").iterdir())


def test_the_same_page_works_with_the_keyboard_alone_on_a_phone_and_without_a_hold_on_the_run(
    chromium: Browser, tmp_path: Path
) -> None:
    task = find_task(suite("sim-start"), "sim-start/train/00000")
    episode = msgspec.structs.replace(make_trajectory("played-1"), task=task)
    run = distrl.record([episode], run__root=str(tmp_path))
    before = sorted(str(file) for file in run.path.rglob("*"))
    page = chromium.page(width=390, height=844, dark=True)
    with dashboard(tmp_path) as shown:
        page.open(f"{shown.url}/runs/{run.name}/episodes/played-1")
        page.until("!!document.querySelector('.head button')")
        page.run("document.querySelector('.head button').focus()")
        page.key("Enter")
        page.until("location.pathname.startsWith('/try/') && !!document.querySelector('.elements button')")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        for number, key in enumerate(("ArrowDown", "Backspace", "ArrowUp"), 1):
            page.run("document.querySelector('canvas.hand').focus()")
            page.key(key)
            page.until(f"/^step {number} /.test(document.querySelector('.where').innerText)")
        page.run("document.querySelector('.elements button').focus()")
        page.key("Enter")
        page.until("/^step 4 /.test(document.querySelector('.where').innerText)")
        assert "tap" in page.text(".did")
        page.run("[...document.querySelectorAll('button')].find(b => b.innerText === 'Impossible').click()")
        page.until("/Only a success/.test(document.querySelector('[aria-label=Verdict]').innerText)")
        address = page.run("location.pathname")
        page.run("[...document.querySelectorAll('button')].find(b => b.innerText === 'Try again').click()")
        page.until(
            f"location.pathname !== {json.dumps(address)} && /Your move/.test(document.querySelector('.caption').innerText)"
        )
        assert page.errors == []
        page.open(f"{shown.url}{address}")
        page.until("/given back/.test(document.querySelector('.error')?.innerText)")
    assert sorted(str(file) for file in run.path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["sim", "web"])
def test_a_task_is_offered_where_a_person_can_play_it(chromium: Browser, kind: str, tmp_path: Path) -> None:
    task = find_task(suite("sim-start"), "sim-start/train/00000")
    settings: dict[str, Any] = {"run__root": str(tmp_path), "devices__kind": kind, "warm_start__demonstrations": 0}
    run = distrl.record([msgspec.structs.replace(make_trajectory("played-1"), task=task)], **settings)
    (heartbeats := RunFolder(run.path).heartbeats).mkdir(exist_ok=True)
    FileScreens(heartbeats, "w").show(
        DeviceViews(time_s=1.0, devices=(DeviceView(device="d", role="w", state="playing", task=task.id),))
    )
    page, offer = (
        chromium.page(),
        "[...document.querySelectorAll('button')].filter(b => b.innerText === 'Try this task yourself' && !b.hidden).length",
    )
    with dashboard(tmp_path) as shown:
        page.open(f"{shown.url}/runs/{run.name}/episodes/played-1")
        page.until("!!document.querySelector('.verdict')")
        assert page.run(offer) == (kind == "sim")
        assert page.run("getComputedStyle(document.querySelector('[role=alert]')).whiteSpace") == "pre-line"
        page.open(f"{shown.url}/runs/{run.name}/fleet")
        page.until("!!document.querySelector('.tile')")
        page.click(".tile")
        page.until("!!document.querySelector('dialog[open]')")
        assert page.run(offer) == (kind == "sim")


def test_a_page_of_another_site_cannot_take_a_phone(chromium: Browser, tmp_path: Path) -> None:
    task = find_task(suite("sim-start"), "sim-start/train/00000")
    run = distrl.record([msgspec.structs.replace(make_trajectory("played-1"), task=task)], run__root=str(tmp_path))
    with dashboard(tmp_path) as shown, dashboard(tmp_path) as other:
        assert isinstance(shown, Dashboard)
        page = chromium.page()
        page.open(f"{other.url}/nonsense")  # of another origin: another port
        body = json.dumps({"run": run.name, "episode": "played-1"})
        for kind in ("application/json", "text/plain"):
            taken = page.run(
                f"fetch('{shown.url}/api/attempts', {{method: 'POST', mode: '{'cors' if 'json' in kind else 'no-cors'}', headers: {{'Content-Type': '{kind}'}}, body: {json.dumps(body)}}}).then(a => a.type + a.status, e => 'refused')"
            )
            assert taken in ("refused", "opaque0")
        page.open(f"{shown.url}/nonsense")
        own = f"fetch('/api/attempts', {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: {json.dumps(body)}}}).then(a => a.status)"
        assert [page.run(own) for _ in range(5)] == [
            200,
            200,
            200,
            200,
            400,
        ]  # none of the four was taken by the other site
