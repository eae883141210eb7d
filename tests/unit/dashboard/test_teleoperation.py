"""Attempts by hand: who may begin one, what its device is, when it ends, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.types import ASGIApp

import distrl
from distrl.config.load import load_config
from distrl.dashboard.app import make_app
from distrl.dashboard.security import LONGEST_BODY, Access, cookie_of
from distrl.dashboard.teleoperation import IDLE_S, MOST, Attempts
from distrl.errors import TaskError, UsageError
from distrl.tasks.base import find_task, suite
from distrl.tasks.sim.oracle import Oracle
from distrl.types import Finish, Swipe, Tap, TypeText, Wait, WebSetup
from support.asgi import Answer, ask
from support.trajectories import make_trajectory

TASK = find_task(suite("sim-start"), "sim-start/train/3")
CONFIG = load_config(None, {})
TOKEN = "a-token-of-a-few-letters"
OWN = {"origin": "http://127.0.0.1:8642", "content_type": "application/json"}


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    found = Attempts(tmp_path / "runs")
    yield found
    found.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    episode = msgspec.structs.replace(make_trajectory("played-1"), task=TASK)
    distrl.record([episode], run__root=str(folder))
    return folder


@pytest.fixture(scope="module")
def app(root: Path) -> ASGIApp:
    return make_app(root, Access())


def play_like_the_oracle(attempts: Attempts) -> str:
    """The id of a success."""
    attempt = attempts.take(TASK, CONFIG)
    oracle = Oracle(TASK)
    while not attempt.over:
        shown = attempt.show()
        attempt.act(shown.step, oracle.act(shown.observation.elements))
    assert attempt.verdict is not None
    assert attempt.verdict.success
    return attempt.id


def test_a_success_is_kept_once_as_a_demonstration_with_its_screens(attempts: Attempts, tmp_path: Path) -> None:
    attempt = attempts.get(play_like_the_oracle(attempts))
    folder = attempts.keep(attempt)
    assert attempts.keep(attempt) == folder
    another = attempts.get(play_like_the_oracle(attempts))
    assert attempts.keep(another) == folder
    run = distrl.open_run(folder)
    kept = list(run.episodes(source="demonstration"))
    assert len(kept) == 2
    assert kept[0].task == TASK
    assert kept[0].verdict.success
    assert len(kept[0].steps) == attempt.show().step
    assert isinstance(kept[0].steps[-1].decision.action, Finish)
    assert all(run.frame(step.observation.screenshot).startswith(b"\xff\xd8") for step in kept[0].steps)
    assert len({step.observation.screenshot for step in kept[0].steps}) > 1


def test_what_is_no_success_is_not_kept(attempts: Attempts, tmp_path: Path) -> None:
    attempt = attempts.take(TASK, CONFIG)
    with pytest.raises(UsageError, match="only a success"):
        attempts.keep(attempt)
    attempt.act(0, Finish())
    assert attempt.verdict is not None
    assert not attempt.verdict.success
    with pytest.raises(UsageError, match="only a success"):
        attempts.keep(attempt)
    assert not (tmp_path / "runs").exists()


def test_an_action_for_a_screen_that_is_gone_or_beside_the_screen_is_refused(attempts: Attempts) -> None:
    attempt = attempts.take(TASK, CONFIG)
    attempt.act(0, Wait())
    with pytest.raises(UsageError, match="the screen has changed"):
        attempt.act(0, Wait())
    for action in (Tap(1.0, 0.5), Tap(-0.1, 0.5), Swipe(0.5, 0.5, 0.5, 7.0), Tap(float("nan"), 0.5)):
        with pytest.raises(UsageError, match="beside the screen"):
            attempt.act(1, action)
    with pytest.raises(UsageError, match="letters"):
        attempt.act(1, TypeText("x" * 5000))
    assert attempt.show().step == 1


def test_a_step_limit_ends_an_attempt_and_the_judge_speaks(attempts: Attempts) -> None:
    attempt = attempts.take(msgspec.structs.replace(TASK, max_steps=2), CONFIG)
    attempt.act(0, Wait())
    assert not attempt.over
    attempt.act(1, Wait())
    assert attempt.over
    assert attempt.verdict is not None
    with pytest.raises(UsageError, match="has ended"):
        attempt.act(2, Wait())


def test_an_attempt_that_nobody_uses_gives_its_phone_back_and_there_are_not_many(tmp_path: Path) -> None:
    now_s = 0.0
    attempts = Attempts(tmp_path, clock=lambda: now_s)
    ids = [attempts.take(TASK, CONFIG).id for _ in range(MOST)]
    with pytest.raises(UsageError, match="playing already"):
        attempts.take(TASK, CONFIG)
    now_s = IDLE_S - 1
    attempts.get(ids[0])
    now_s = IDLE_S + 1
    attempts.leave_idle()
    attempts.get(ids[0])
    with pytest.raises(TaskError, match="given back"):
        attempts.get(ids[1])
    attempts.take(TASK, CONFIG)
    attempts.close()
    with pytest.raises(TaskError, match="given back"):
        attempts.get(ids[0])


def test_only_a_device_that_is_made_for_one_person_is_taken(attempts: Attempts) -> None:
    for kind in ("android", "web", "package.module:attribute"):
        devices = msgspec.structs.replace(CONFIG.devices, kind=kind)
        with pytest.raises(TaskError, match="simulated phones"):
            attempts.take(TASK, msgspec.structs.replace(CONFIG, devices=devices))
    first, second = (attempts.take(TASK, CONFIG).show().device for _ in range(2))
    assert first != second
    assert not first.startswith("worker")


@pytest.mark.parametrize(("kind", "suite_name", "offered"), [("sim", "sim-start", True), ("web", "miniwob", False)])
def test_a_task_is_offered_where_a_phone_can_be_made_for_it(
    kind: str, suite_name: str, offered: bool, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"devices__kind": kind, "tasks__suite": suite_name, "warm_start__demonstrations": 0}
    task = msgspec.structs.replace(TASK, setup=TASK.setup if offered else WebSetup(url="click-test", page="miniwob"))
    run = distrl.record(
        [msgspec.structs.replace(make_trajectory("e1"), task=task)], run__root=str(tmp_path), **settings
    )
    page = make_app(tmp_path, Access())
    assert ask(page, f"/api/runs/{run.name}/episodes/e1").json["by_hand"] is offered
    assert ask(page, f"/api/runs/{run.name}/fleet").json["by_hand"] is offered


# --- over HTTP --------------------------------------------------------------------------------------------------------


def post(app: ASGIApp, target: str, body: object = None, **headers: str) -> Answer:
    return ask(app, target, method="POST", body=msgspec.json.encode(body or {}), **{**OWN, **headers})


def begun(app: ASGIApp, root: Path) -> str:
    answer = post(app, "/api/attempts", {"run": next(root.glob("*/config.toml")).parent.name, "episode": "played-1"})
    assert answer.status == 200, answer.body
    return str(answer.json["id"])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "file://127.0.0.1:8642"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "navigate"},
        {"sec_fetch_site": "none", "sec_fetch_mode": "navigate"},
    ],
)
def test_only_a_page_of_this_dashboard_may_do_something(app: ASGIApp, root: Path, headers: dict[str, str]) -> None:
    id = begun(app, root)
    for target in ("/api/attempts", f"/api/attempts/{id}/act", f"/api/attempts/{id}/keep", f"/api/attempts/{id}/leave"):
        assert post(app, target, {"step": 0, "action": {"type": "wait"}}, **headers).status == 403, target
    assert ask(app, f"/api/attempts/{id}").json["step"] == 0
    assert post(app, f"/api/attempts/{id}/leave").status == 200


def test_nothing_else_takes_a_post_and_the_token_is_needed_for_it(app: ASGIApp, root: Path) -> None:
    for target in ("/api/runs", "/api/attemptsx", "/", "/api/attempts/../runs"):
        assert post(app, target).status == 405, target
    assert ask(app, "/api/attempts", method="DELETE", **OWN).status == 405
    guarded = make_app(root, Access(host="0.0.0.0", token=TOKEN))
    assert post(guarded, "/api/attempts", {"run": "x"}).status == 401
    assert post(guarded, "/api/attempts", {"run": "x"}, cookie=f"{cookie_of(TOKEN)}={TOKEN}").status == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"run": "../../etc", "task": "x"}, 404),
        ({"run": "RUN", "episode": "../../etc/passwd"}, 404),
        ({"run": "RUN", "task": "sim-start/train/99999999"}, 400),
        ({"run": "RUN", "task": "nonsense"}, 400),
        ({"run": 7}, 400),
        ({"step": 0}, 400),
        ([], 400),
        ("x" * (LONGEST_BODY + 1), 400),
    ],
)
def test_a_browser_that_sends_nonsense_is_told_so(app: ASGIApp, root: Path, body: object, status: int) -> None:
    name = next(root.glob("*/config.toml")).parent.name
    if isinstance(body, dict) and body.get("run") == "RUN":
        body = {**body, "run": name}
    answer = post(app, "/api/attempts", body)
    assert answer.status == status, answer.body
    assert answer.json["error"]


def test_an_attempt_is_played_over_http(app: ASGIApp, root: Path) -> None:
    id = begun(app, root)
    assert ask(app, f"/api/attempts/{id}/picture").headers["content-type"] == "image/jpeg"
    for action in (
        {"type": "tap", "x": 0.5},
        {"type": "unparsed", "raw": "x"},
        {"type": "press", "key": "power"},
        {"type": "tap", "x": 2, "y": 0},
    ):
        assert post(app, f"/api/attempts/{id}/act", {"step": 0, "action": action}).status == 400, action
    found = post(app, f"/api/attempts/{id}/act", {"step": 0, "action": {"type": "finish", "status": "impossible"}}).json
    assert (found["step"], found["over"]) == (1, True)
    assert found["verdict"]["outcome"] == "failure"
    assert post(app, f"/api/attempts/{id}/keep").status == 400
    again = post(app, f"/api/attempts/{id}/again").json
    assert (again["step"], again["task"]) == (0, found["task"])
    assert ask(app, f"/api/attempts/{id}").status == 400
    assert post(app, f"/api/attempts/{again['id']}/leave").status == 200
    assert ask(app, f"/api/attempts/{again['id']}").status == 400
