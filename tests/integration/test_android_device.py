"""Android devices, the real adb program and simulated phones: the device protocol, faults and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.device import FRESH_S, AndroidDevice, make_devices
from distrl.devices.base import Device, Fleet
from distrl.devices.serve_sim.android import PACKAGE, AndroidSettings
from distrl.devices.serve_sim.lock import SLEEP, Kind
from distrl.devices.serve_sim.server import FaultSettings, ServedPhone
from distrl.devices.serve_sim.shell import Done
from distrl.devices.sim.world import start_state
from distrl.errors import ConfigError, DeviceError, DeviceLost, LossCause, TaskError
from distrl.tasks.android import AndroidJudge
from distrl.tasks.judges import Attempt
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.oracle import Oracle, play_oracle
from distrl.tasks.sim.suites import suite
from distrl.types import (
    AndroidCheck,
    AndroidEnd,
    AndroidSetup,
    Ending,
    EndState,
    Finish,
    LongPress,
    Press,
    SimEnd,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Unparsed,
    Wait,
)
from support.androids import CALM, connected, own_server
from support.rollouts import a_page_task, a_phone

QUICK = AndroidConfig(quiet_s=0.0, wait_s=0.0, call_s=15.0)
Play = Callable[[AndroidDevice, ServedPhone, Adb], Awaitable[None]]


@pytest.fixture(scope="module")
def config() -> Iterator[AdbConfig]:
    with own_server() as config:
        yield config


def on_a_phone(
    config: AdbConfig, play: Play, *, android: AndroidSettings = CALM, settings: AndroidConfig = QUICK
) -> None:
    async def run() -> None:
        async with connected(config, settings=android, faults=FaultSettings(restart_s=0.5)) as (adb, (phone,)):
            device = AndroidDevice(phone.serial, replace(settings, port=config.port), adb)
            async with asyncio.timeout(120):
                await play(device, phone, adb)

    asyncio.run(run())


def an_android_task(check: AndroidCheck | None = None, **setup: object) -> Task:
    return Task(
        id="android/train/0",
        suite="android",
        template="t",
        split="train",
        instruction="x",
        setup=AndroidSetup(**setup),  # type: ignore[arg-type]
        check=check or AndroidCheck(activity=f"{PACKAGE}notes"),
    )


async def solve(device: Device, task: Task) -> tuple[EndState, int]:
    """The oracle plays a task of the simulated phones; how the phone was left, and after how many steps."""
    await device.reset(task)
    oracle = Oracle(task)
    for steps in range(1, 60):
        action = oracle.act((await device.capture(screenshot=False)).elements)
        await device.perform(action)
        if isinstance(action, Finish):
            return EndState(claim=action, device=await device.end_state()), steps
    raise AssertionError(f"the oracle does not find its way through {task.id}")


def test_a_device_over_adb_is_one_like_any_other(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        assert isinstance(device, Device)
        assert device.name == phone.serial

    on_a_phone(config, play)


@pytest.mark.parametrize("keyboard", [True, False])
def test_the_oracle_solves_tasks_over_adb_as_it_does_in_the_process(config: AdbConfig, keyboard: bool) -> None:
    tasks = [suite("sim-general").task("test", index) for index in range(0, 96, 8)]

    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        for task in tasks:
            end, steps = await solve(device, task)
            assert judge(task, start_state(task), end).success, task.id
            assert steps == len(play_oracle(task).actions), task.id

    on_a_phone(config, play, android=replace(CALM, adb_keyboard=keyboard))


def test_elements_over_adb_are_those_of_the_phone_itself(config: AdbConfig) -> None:
    task = suite("sim-general").task("test", 3)

    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(task)
        inside = a_phone()
        await inside.reset(task)
        for action in (Swipe(0.8, 0.45, 0.2, 0.45), Press("home"), Tap(0.1, 0.2)):
            here, there = await inside.capture(screenshot=False), await device.capture(screenshot=False)
            assert [_plain(e) for e in here.elements] == [_plain(e) for e in there.elements]
            for one, other in zip(here.elements, there.elements, strict=True):
                gaps = [abs(a - b) for a, b in zip(_sides(one), _sides(other), strict=True)]
                assert max(gaps) < 0.003
            assert (await inside.perform(action)).changed == (await device.perform(action)).changed

    on_a_phone(config, play)


def test_picture_and_elements_come_together(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task(open=f"{PACKAGE}notes"))
        capture = await device.capture(screenshot=True)
        assert Image.open(BytesIO(capture.screenshot)).size == (540, 1200)
        assert (capture.width_px, capture.height_px, capture.app) == (1080, 2400, f"{PACKAGE}notes")
        assert capture.elements

    for transfer in ("raw", "png"):
        on_a_phone(
            config,
            play,
            android=replace(CALM, width_px=1080, height_px=2400),
            settings=replace(QUICK, transfer=transfer),  # type: ignore[arg-type]
        )


def test_a_loading_screen_is_waited_for(config: AdbConfig) -> None:
    slow = replace(CALM, perturbations=replace(CALM.perturbations, slow_rate=1.0))
    task = suite("sim-general").task("test", 0)

    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(task)
        first = next(e for e in (await device.capture(screenshot=False)).elements if e.clickable)
        await device.perform(Tap(*first.bounds.centre))
        assert all(e.class_name != "ProgressBar" for e in (await device.capture(screenshot=False)).elements)

    on_a_phone(config, play, android=slow, settings=replace(QUICK, quiet_s=0.3))


TYPED = ["two tickets", 'it\'s $5 `now`; "so" && %s\\', "caf\u00e9 \u4e2d\u6587 \U0001f600", "100%s"]


@pytest.mark.parametrize("text", TYPED)
def test_text_of_any_content_replaces_what_a_field_held(config: AdbConfig, text: str) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await _focus_a_field(device)
        for typed in ("something else", text):
            done = await device.perform(TypeText(typed))
            assert done.valid
            assert done.changed
            assert _field(await _elements(device)).text == typed

    on_a_phone(config, play)
    if text.isascii():
        on_a_phone(config, play, android=replace(CALM, adb_keyboard=False))


def test_what_cannot_be_done_is_an_invalid_step_with_its_reason(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task())
        await device.capture(screenshot=False)
        for action, why in (
            (Tap(1.5, 0.2), "outside the screen"),
            (Swipe(0.1, 0.1, -1, 0), "outside the screen"),
            (TypeText("hello"), "no field has the focus"),
            (Unparsed("click!"), "not an action"),
        ):
            done = await device.perform(action)
            assert not done.valid
            assert why in done.why
        await _focus_a_field(device)
        done = await device.perform(TypeText("caf\u00e9"))
        assert not done.valid
        assert "ADBKeyBoard" in done.why
        for action in (Wait(), Finish()):
            assert (await device.perform(action)).valid

    on_a_phone(config, play, android=replace(CALM, adb_keyboard=False))


def test_a_set_up_runs_and_the_end_state_is_what_the_check_asks_about(config: AdbConfig) -> None:
    check = AndroidCheck(
        settings={"global/airplane_mode_on": "1", "secure/none": "null"},
        packages={f"{PACKAGE}notes": True, "com.none": False},
        files={"/sdcard/a b.txt": True, "/sdcard/none": False},
        activity=f"{PACKAGE}notes",
    )
    task = an_android_task(
        check,
        stop=(f"{PACKAGE}music",),
        clear=(f"{PACKAGE}mail",),
        settings={"global/airplane_mode_on": "1"},
        open=f"{PACKAGE}notes",
    )

    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        phone.android.files["/sdcard/a b.txt"] = b"x"
        await device.reset(task)
        left = await device.end_state()
        assert isinstance(left, AndroidEnd)
        assert left.activity == f"{PACKAGE}notes/.home"
        assert (left.settings, left.packages, left.files) == (check.settings, check.packages, check.files)

    on_a_phone(config, play)


def test_what_a_phone_cannot_tell_is_unknown_and_neither_there_nor_missing(config: AdbConfig) -> None:
    """A service that is down, and a folder that adb may not read, would else be a failure of the agent, or a success."""
    check = AndroidCheck(
        settings={"global/airplane_mode_on": "1"},
        packages={f"{PACKAGE}notes": True, "com.none": False},
        files={"/data/data/secret": False},
    )

    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task(check, settings=check.settings))
        commands = phone.android._commands
        broken = {
            "settings": Done(err=b"cmd: Can't find service: settings\n", code=20),
            "pm": Done(err=b"cmd: Can't find service: package\n", code=20),
            "ls": Done(err=b"ls: /data/data/secret: Permission denied\n", code=1),
        }
        for name, missing in (("settings", 1), ("pm", 2), ("ls", 1)):
            answer = broken[name]
            phone.android._commands = lambda name=name, answer=answer: {**commands(), name: lambda *_: answer}  # type: ignore
            left = await device.end_state()
            attempt = Attempt(task=device._task, end=EndState(claim=Finish(), device=left), ending=Ending.FINISHED)  # type: ignore[arg-type]
            verdict = await AndroidJudge().judge(attempt)
            assert (verdict.outcome, verdict.reason.count(",") + 1) == ("unknown", missing)
        phone.android._commands = commands  # type: ignore[method-assign]
        left = await device.end_state()
        assert isinstance(left, AndroidEnd)
        assert (left.settings, left.packages, left.files) == (check.settings, check.packages, check.files)

    on_a_phone(config, play)


def test_intents_open_apps_with_extras_of_any_content_and_what_cannot_be_opened_is_named(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task())
        extras = {"title": "it's; $(reboot) `x` \n笔记", "empty": ""}
        await device.phone.start_intent("android.settings.SETTINGS", data="a b'c://d", extras=extras)
        assert phone.android.state.place.app == "settings"
        assert phone.android.started[-1][-7:] == ["a b'c://d", "--es", "title", extras["title"], "--es", "empty", ""]
        await device.phone.open(f"{PACKAGE}notes/.ErrorLog$Inner")  # not every Error is one
        assert phone.android.state.place.app == "notes"
        assert phone.android.started[-1] == ["-n", f"{PACKAGE}notes/.ErrorLog$Inner"]
        for what in ("https://example.org/?a=1&b='", "com.none", "com.none/.Main"):
            with pytest.raises(DeviceError, match="cannot open it"):
                await device.phone.open(what)

    on_a_phone(config, play)


def test_tasks_that_do_not_fit_a_phone_over_adb_are_refused(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        with pytest.raises(TaskError, match="CustomSetup"):
            await device.reset(a_page_task())
        with pytest.raises(TaskError, match="no name of a package"):
            await device.reset(an_android_task(open="com.x; rm -rf"))
        for setup in ({"open": "https://a\0b"}, {"settings": {"global/x": "half \ud83d"}}):
            with pytest.raises(TaskError, match="no shell can take"):
                await device.reset(an_android_task(**setup))
        await device.reset(an_android_task(AndroidCheck(files={"/a\0": False})))
        with pytest.raises(TaskError, match="no shell can take"):
            await device.end_state()

    on_a_phone(config, play)


def test_a_swiped_lock_opens_and_a_secure_one_is_named(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        phone.android.lock.lock("swipe")
        await device.reset(an_android_task())
        phone.android.lock.lock("secure")
        with pytest.raises(DeviceLost, match="is locked"):
            await device.reset(an_android_task())

    on_a_phone(config, play)


def test_a_locked_phone_is_named_also_where_the_task_is_a_simulated_one(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        phone.android.lock.lock("secure")
        with pytest.raises(DeviceLost, match="is locked") as lost:
            await device.reset(suite("sim-general").task("test", 0))
        assert lost.value.cause is LossCause.PERSON
        assert "screen lock to None" in lost.value.fix

    on_a_phone(config, play)


@pytest.mark.parametrize("elements", [True, False])
@pytest.mark.parametrize("kind", ["", "swipe"])
def test_a_screen_that_goes_off_while_a_policy_thinks_is_turned_on_and_the_episode_goes_on(
    config: AdbConfig, kind: Kind, elements: bool
) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task(AndroidCheck(activity=f"{PACKAGE}notes"), open=f"{PACKAGE}notes"))
        before = await device.capture(screenshot=True)
        phone.android.lock.kind = kind
        for end in (False, True):
            await adb.check(phone.serial, f"input keyevent {SLEEP}")
            assert phone.android.lock.asleep
            await asyncio.sleep(FRESH_S)  # a hierarchy that was read a moment ago is taken for that of now
            if end:
                left = await device.end_state()
                assert isinstance(left, AndroidEnd)
                assert left.activity == f"{PACKAGE}notes/.home"
            else:
                after = await device.capture(screenshot=True)
                assert (after.elements, after.screenshot) == (before.elements, before.screenshot)

    on_a_phone(config, play, settings=replace(QUICK, elements=elements))


def test_a_lock_screen_is_never_shown_to_a_policy_that_reads_elements(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task(open=f"{PACKAGE}notes"))
        for screenshot in (False, True):
            phone.android.lock.lock("swipe")
            await asyncio.sleep(FRESH_S)
            assert (await device.capture(screenshot=screenshot)).app == f"{PACKAGE}notes"
        phone.android.lock.lock("secure")
        await asyncio.sleep(FRESH_S)
        with pytest.raises(DeviceLost, match="is locked"):
            await device.capture(screenshot=True)

    on_a_phone(config, play)


@pytest.mark.parametrize("elements", [True, False])
def test_a_phone_that_locks_itself_in_an_episode_is_lost_and_no_failure_of_the_agent(
    config: AdbConfig, elements: bool
) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await adb.check(phone.serial, "locksettings set-pin 1234")
        await device.reset(an_android_task())
        for ask in (device.capture(screenshot=True), device.end_state()):
            await adb.check(phone.serial, f"input keyevent {SLEEP}")
            with pytest.raises(DeviceLost, match="is locked") as lost:
                await ask
            assert lost.value.cause is LossCause.PERSON
        await adb.check(phone.serial, "input text 1234")
        await adb.check(phone.serial, "input keyevent 66")
        await device.reset(an_android_task())
        assert await device.end_state()

    on_a_phone(config, play, settings=replace(QUICK, elements=elements))


@pytest.mark.parametrize(("transfer", "display"), [("raw", ""), ("png", ""), ("raw", "4619827259835644672")])
def test_a_phone_that_folds_is_photographed_whatever_it_warns_of(
    config: AdbConfig, transfer: str, display: str
) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        warned = b"Multiple displays" in await adb.exec_out(phone.serial, "screencap")
        assert warned
        capture = await device.capture(screenshot=True)
        assert (capture.width_px, capture.height_px, bool(capture.screenshot)) == (360, 720, True)

    folding, settings = replace(CALM, num_displays=2), replace(QUICK, transfer=transfer, display=display)
    on_a_phone(config, play, android=folding, settings=settings)


@pytest.mark.parametrize("fault", ["truncate", "garbage", "slow"])
def test_one_bad_answer_is_asked_for_again(config: AdbConfig, fault: str) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task())
        for screenshot in (False, True):
            phone.next_fault = fault  # type: ignore[assignment]
            capture = await device.capture(screenshot=screenshot)
            assert capture.elements
        assert phone.injected[fault] == 2

    on_a_phone(config, play)


@pytest.mark.parametrize("screenshot", [False, True])
def test_a_hierarchy_that_stays_empty_is_a_lost_phone_and_never_an_empty_screen(
    config: AdbConfig, screenshot: bool
) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task())
        whole, empty = phone.android._hierarchy, "<?xml version='1.0'?><hierarchy rotation=\"0\"></hierarchy>"
        dumps = iter([empty, empty, whole(), empty, empty, empty])
        phone.android._hierarchy = lambda: next(dumps)  # type: ignore[method-assign]
        assert (await device.capture(screenshot=screenshot)).elements
        await asyncio.sleep(FRESH_S)
        with pytest.raises(DeviceLost, match="no UI hierarchy in 3 tries: the hierarchy is empty") as lost:
            await device.capture(screenshot=screenshot)
        assert lost.value.cause is LossCause.DAMAGED
        assert "devices.android.elements = false" in lost.value.fix

    on_a_phone(config, play)


@pytest.mark.parametrize("kind", ["truncate", "garbage"])
@pytest.mark.parametrize("transfer", ["raw", "png"])
def test_a_picture_that_stays_damaged_is_a_lost_phone(config: AdbConfig, transfer: str, kind: str) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task())
        whole = phone.android._screencap(["screencap", "-p" * (transfer == "png")], b"").out
        damaged = whole[: len(whole) // 2] if kind == "truncate" else bytes(reversed(whole))
        phone.android._screencap = lambda *_: Done(damaged)  # type: ignore[method-assign]
        with pytest.raises(DeviceLost, match="2 damaged screenshots in a row") as lost:
            await device.capture(screenshot=True)
        assert lost.value.cause is LossCause.DAMAGED
        assert 'devices.android.transfer = "png"' in lost.value.fix

    on_a_phone(config, play, settings=replace(QUICK, transfer=transfer))


@pytest.mark.parametrize("fault", ["drop", "restart", "hang"])
def test_a_lost_phone_comes_back_by_a_restart(config: AdbConfig, fault: str, tmp_path: Path) -> None:
    task = suite("sim-general").task("test", 0)

    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(task)
        phone.next_fault = fault  # type: ignore[assignment]
        with pytest.raises(DeviceLost):
            await device.perform(Press("home"))
        await _restart(device)
        end, _ = await solve(device, task)
        assert judge(task, start_state(task), end).success
        log = (tmp_path / f"{phone.serial.replace(':', '-')}.log").read_text(encoding="utf-8")
        assert "distrl" in log

    on_a_phone(config, play, settings=replace(QUICK, call_s=1.0, logcat=str(tmp_path)))


def test_a_phone_that_is_lost_again_and_again_is_rebooted(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.restart()
        assert "System now ready" in list(phone.android.log)[-1]
        phone.android.log.clear()
        await device.restart()
        assert any("System now ready" in line for line in phone.android.log)

    on_a_phone(config, play, settings=replace(QUICK, reboot_after=1))


def test_a_damaged_end_state_is_a_fault_and_never_an_outcome(config: AdbConfig) -> None:
    task = suite("sim-general").task("test", 0)

    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(task)
        assert isinstance(await device.end_state(), SimEnd)
        whole = phone.android.shell("cmd distrl end-state").out
        for damaged in (whole[: len(whole) // 2], bytes(range(200)), b""):
            phone.android._cmd = lambda *_, out=damaged: Done(out)  # type: ignore[method-assign]
            with pytest.raises(DeviceLost, match="damaged"):
                await device.end_state()

    on_a_phone(config, play)


def test_long_presses_reach_the_phone(config: AdbConfig) -> None:
    async def play(device: AndroidDevice, phone: ServedPhone, adb: Adb) -> None:
        await device.reset(an_android_task(open=f"{PACKAGE}notes"))
        await device.perform(LongPress(0.5, 0.3))
        assert "LongPress" in list(phone.android.log)[-1]

    on_a_phone(config, play)


def test_workers_share_the_serials_out_and_an_evaluation_may_use_all() -> None:
    settings = AndroidConfig(serials=("a", "b", "c"))
    workers = ("worker-0", "worker-1")
    names = [
        [d.name for d in make_devices(settings, Fleet(owner=w, count=9, seed=0, workers=workers))] for w in workers
    ]
    assert names == [["a", "c"], ["b"]]
    fleet = Fleet(owner="evaluator", count=2, seed=0, purpose="evaluation", workers=workers)
    assert [d.name for d in make_devices(settings, fleet)] == ["a", "b"]
    with pytest.raises(ConfigError, match=r"fewer rollout.workers"):
        make_devices(AndroidConfig(serials=("a",)), Fleet(owner="worker-1", count=1, seed=0, workers=workers))


def test_without_serials_the_connected_phones_are_used(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config, 2) as (_, phones):
            made = await asyncio.to_thread(
                make_devices, AndroidConfig(port=config.port), Fleet(owner="evaluator", count=5, seed=0)
            )
            assert {d.name for d in made} == {phone.serial for phone in phones}

    asyncio.run(play())


async def _restart(device: AndroidDevice) -> None:
    """As the pool does: again where a phone is not back yet."""
    for _ in range(20):
        try:
            return await device.restart()
        except DeviceLost:
            await asyncio.sleep(0.2)
    raise AssertionError("the phone does not come back")


async def _focus_a_field(device: AndroidDevice) -> None:
    await device.reset(an_android_task(open=f"{PACKAGE}browser"))
    await device.perform(Tap(*_field(await _elements(device)).bounds.centre))
    assert _field(await _elements(device)).focused


async def _elements(device: AndroidDevice) -> tuple[UiElement, ...]:
    return (await device.capture(screenshot=False)).elements


def _field(elements: tuple[UiElement, ...]) -> UiElement:
    return next(e for e in elements if e.class_name == "EditText")


def _plain(e: UiElement) -> tuple[object, ...]:
    return (
        e.text,
        e.description,
        e.class_name,
        e.resource_id,
        e.clickable,
        e.scrollable,
        e.checked,
        e.focused,
        e.enabled,
    )


def _sides(e: UiElement) -> tuple[float, ...]:
    return e.bounds.left, e.bounds.top, e.bounds.right, e.bounds.bottom
