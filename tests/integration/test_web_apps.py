"""Web apps by others on Chromium phones: every template played by hand on the real app, exact resets, and what becomes of apps that die."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from distrl.config.schema import WebConfig
from distrl.devices.base import DEVICE_FAULTS, Device, Fleet, cause_of
from distrl.devices.web.apps.mail import Mail
from distrl.devices.web.apps.packages import NODE
from distrl.devices.web.apps.phone import AppPhone
from distrl.devices.web.apps.server import Server, free_ports
from distrl.devices.web.fleet import make_devices
from distrl.errors import ConfigError, DeviceLost, LossCause
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, attempt_of, run_episode, with_verdict
from distrl.tasks.judges import Attempt, AutoJudge, judge_attempt
from distrl.tasks.webapps.suite import WebAppsSuite
from distrl.tasks.webapps.templates import TEMPLATES
from distrl.types import (
    Action,
    AppEnd,
    Decision,
    Ending,
    EndState,
    Finish,
    Observation,
    Tap,
    Task,
    Trajectory,
    Verdict,
    Wait,
)
from support.webapps import HANDS, Hand, apps_folder, play
from support.webs import is_running, needs_chromium

pytestmark = needs_chromium
SUITE = WebAppsSuite()
LIMIT_S = 600.0


def first_of(template: str) -> Task:
    return SUITE.task("test", SUITE.templates.index(template))


@asynccontextmanager
async def phones(count: int = 1) -> AsyncIterator[list[Device]]:
    made = make_devices(WebConfig(apps_folder=apps_folder()), Fleet(owner="test", count=count, seed=0))
    try:
        yield list(made)
    finally:
        for device in made:
            await device.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(LIMIT_S):
            await work()

    asyncio.run(within())


async def verdict(device: Device, task: Task, claim: Finish) -> Verdict:
    end = EndState(claim=claim, device=await device.end_state())
    return await judge_attempt(AutoJudge(), Attempt(task=task, end=end, ending=Ending.FINISHED), deadline_s=60)


@pytest.mark.parametrize(
    "app", [pytest.param("budget", marks=pytest.mark.long), "mail", pytest.param("wiki", marks=pytest.mark.long)]
)
def test_every_template_fails_when_nothing_is_done_and_succeeds_when_it_is_played(app: str) -> None:
    templates = [name for name in TEMPLATES if name.startswith(f"{app}.")]
    assert set(HANDS) == set(TEMPLATES)

    async def work() -> None:
        async with phones() as (device,):
            for template in templates:
                task = first_of(template)
                await device.reset(task)
                idle = await verdict(device, task, Finish(answer="nothing"))
                assert (idle.outcome, idle.false_completion, idle.side_effects) == ("failure", True, ()), template
                assert idle.reason.startswith("missing: ")
                claim = await play(device, task)
                done = await verdict(device, task, claim)
                assert done.success, (template, done)

    run(work)


def test_a_reset_brings_back_exactly_what_a_task_begins_with_and_undoes_all_that_was_done() -> None:
    async def work() -> None:
        async with phones() as (device,):
            for template in ("wiki.delete", "mail.read_all"):
                task = first_of(template)
                await device.reset(task)
                await play(device, task)
                end = await device.end_state()
                assert isinstance(end, AppEnd)
                assert end.changes
                await device.reset(task)
                again = await device.end_state()
                assert isinstance(again, AppEnd)
                assert again.changes == ()

    run(work)


def test_what_nobody_asked_for_is_a_side_effect_and_a_failure() -> None:
    async def work() -> None:
        async with phones() as (device,):
            task = first_of("mail.delete")
            await device.reset(task)
            hand = Hand(device)
            await hand.tap("Delete all emails")
            await hand.tap("Delete all emails")  # the second tap is its question whether that is meant
            found = await verdict(device, task, Finish())
            assert (found.outcome, found.progress) == ("failure", 1.0), found
            assert len(found.side_effects) == 4
            assert all(effect.endswith("is gone") for effect in found.side_effects)

    run(work)


def test_an_episode_of_the_usual_loop_ends_with_the_apps_own_data_and_can_be_kept() -> None:
    task = first_of("mail.read_all")
    seen_before: list[Observation] = []

    async def decide(seen: Observation) -> tuple[Decision, int]:
        action: Action = Finish()
        if not seen_before:
            mark = next(each for each in seen.elements if each.description == "Mark all emails as read")
            action = Tap(*mark.bounds.centre)
        seen_before.append(seen)
        return Decision(action=action, choice=(), logp=0.0, entropy=0.0, value=0.0), 0

    async def work() -> None:
        async with phones() as (device,):
            tools = EpisodeTools(decide=decide, clock=asyncio.get_running_loop().time)
            played = await run_episode("e", device, task, tools, EpisodeLimits(history=4, repeat_penalty=0.0))
            assert played.trajectory is not None
            found = await judge_attempt(AutoJudge(), attempt_of(played.trajectory), deadline_s=60)
            assert found.success, found
            kept = with_verdict(played.trajectory, found)
            assert msgspec.json.decode(msgspec.json.encode(kept), type=Trajectory) == kept

    run(work)


def test_two_phones_have_apps_of_their_own() -> None:
    async def work() -> None:
        async with phones(2) as (one, two):
            task = first_of("mail.read_all")
            await asyncio.gather(one.reset(task), two.reset(task))
            await play(one, task)
            assert (await verdict(one, task, Finish())).success
            assert (await verdict(two, task, Finish())).progress == 0.0
            assert isinstance(one, AppPhone)
            assert isinstance(two, AppPhone)
            assert not set(one.tab.context.allowed) & set(two.tab.context.allowed)

    run(work)


def test_an_app_that_dies_in_the_middle_is_a_fault_of_the_device_and_the_phone_comes_back() -> None:
    async def work() -> None:
        async with phones() as (device,):
            task = first_of("mail.delete")
            await device.reset(task)
            assert isinstance(device, AppPhone)
            mail = device._apps["mail"]
            assert isinstance(mail, Mail)
            assert mail._server is not None
            os.kill(mail._server.pid, signal.SIGKILL)
            await until(lambda: not mail.alive)
            with pytest.raises(DEVICE_FAULTS) as fault:
                await device.perform(Wait())
            assert cause_of(fault.value) is LossCause.SERVER
            with pytest.raises(DEVICE_FAULTS):
                await device.end_state()
            await device.restart()
            await device.reset(task)
            assert (await verdict(device, task, await play(device, task))).success

    run(work)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)


# --- servers, which need no Chromium ------------------------------------------------------------------------------------

SERVE = "const s=require('http').createServer((q,a)=>a.end('{}'));s.listen(+process.argv[1],'127.0.0.1',()=>console.log('ready'))"


def serving(folder: Path, ports: tuple[int, ...]) -> list[str]:
    return [NODE, "-e", SERVE, str(ports[0])]


def test_a_port_that_was_taken_is_left_for_another() -> None:
    apps_folder()

    async def work() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            choices = [(int(taken.getsockname()[1]),), free_ports(1)]
            server = await Server.start("app", serving, says="ready", choose=lambda count: choices.pop(0))
            assert await server.ask("GET", "/") == {}
            assert server.ports[0] != taken.getsockname()[1]
            await server.close()
            with pytest.raises(DeviceLost, match="EADDRINUSE"):
                await Server.start("app", serving, says="ready", choose=lambda count: (int(taken.getsockname()[1]),))

    run(work)


def test_a_program_that_ends_at_once_is_told_with_what_it_said() -> None:
    apps_folder()

    def words(folder: Path, ports: tuple[int, ...]) -> list[str]:
        return [NODE, "-e", "console.log('no luck today'); process.exit(3)"]

    async def work() -> None:
        with pytest.raises(DeviceLost, match="no luck today"):
            await Server.start("app", words, says="ready")

    run(work)


OWNER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from distrl.devices.web.apps.server import Server
async def main():
    server = await Server.start("app", lambda folder, ports: ["node", "-e", sys.argv[2], str(ports[0])], says="ready")
    print(server.pid, server._folder, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_an_app_ends_with_its_owner_even_after_a_kill() -> None:
    apps_folder()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, "", SERVE], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert is_running(int(pid))
        owner.kill()
        owner.wait()
        until_s = time.monotonic() + 60
        while (is_running(int(pid)) or Path(folder).exists()) and time.monotonic() < until_s:
            time.sleep(0.05)
        assert not is_running(int(pid))
        assert not Path(folder).exists()
    finally:
        owner.kill()
        owner.wait()


# --- what is not installed ----------------------------------------------------------------------------------------------


def test_missing_packages_are_told_with_the_command_that_brings_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        make_devices(WebConfig(apps_folder=str(tmp_path)), Fleet(owner="test", count=1, seed=0))
    assert f"npm install --prefix {tmp_path}" in refused.value.fix
    old = tmp_path / "node_modules" / "@actual-app" / "web"
    old.mkdir(parents=True)
    (old / "package.json").write_text('{"version": "1.0.0"}')
    with pytest.raises(ConfigError, match=r"has @actual-app/web 1\.0\.0"):
        make_devices(WebConfig(apps_folder=str(tmp_path)), Fleet(owner="test", count=1, seed=0))


def test_without_node_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distrl.devices.web.chromium import find_chromium

    only = tmp_path / "bin"
    only.mkdir()
    (only / "chromium").symlink_to(find_chromium())
    monkeypatch.setenv("PATH", str(only))
    with pytest.raises(ConfigError, match="no program 'node'") as refused:
        make_devices(WebConfig(apps_folder=str(tmp_path)), Fleet(owner="test", count=1, seed=0))
    assert "apt-get install nodejs" in refused.value.fix
