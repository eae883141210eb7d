"""Real web apps for tests, where they are installed in the user's cache, and hands that play their tasks through the device protocol."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from distrl.devices.base import Capture, Device
from distrl.devices.web.apps.packages import check_packages, install_command
from distrl.errors import ConfigError
from distrl.types import AppCheck, Finish, Press, Tap, Task, TypeText, UiElement, Wait

LOOKS = 40


@functools.cache
def apps_folder() -> str:
    """The folder with the packages; the test is skipped where they are not installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = str(cache / "distrl-tests" / "webapps")
    try:
        check_packages(folder)
    except ConfigError as error:
        pytest.skip(f"{error.seen}: {install_command(folder)}")
    return folder


# --- hands --------------------------------------------------------------------------------------------------------------


class Hand:
    """Plays by what the screen shows."""

    def __init__(self, device: Device) -> None:
        self.device = device

    async def find(self, text: str, *, kind: str = "", place: int = 0) -> UiElement:
        """The element that says this, once there is one."""
        capture = Capture()
        for _ in range(LOOKS):
            capture = await self.device.capture(screenshot=False)
            for said in (_says, _begins):
                found = [each for each in capture.elements if said(each, text) and kind in ("", each.class_name)]
                if len(found) > place:
                    return found[place]
            await self.device.perform(Wait())
        raise AssertionError((text, [(each.class_name, each.text, each.description) for each in capture.elements]))

    async def tap(self, text: str, *, kind: str = "", place: int = 0) -> None:
        """Tap what says this."""
        element = await self.find(text, kind=kind, place=place)
        performed = await self.device.perform(Tap(*element.bounds.centre))
        assert performed.valid, performed.why

    async def type(self, text: str) -> None:
        """Type into the field that has the focus."""
        performed = await self.device.perform(TypeText(text))
        assert performed.valid, performed.why

    async def enter(self) -> None:
        """Press enter."""
        assert (await self.device.perform(Press("enter"))).valid


def _says(element: UiElement, text: str) -> bool:
    return text in (element.text, element.description)


def _begins(element: UiElement, text: str) -> bool:
    return element.text.startswith(text) or element.description.startswith(text)


def _quoted(task: Task) -> list[str]:
    return task.instruction.split('"')[1::2]


async def _open_note(hand: Hand, title: str) -> None:
    await hand.tap("close all")
    await hand.tap("Recent", kind="Tab")
    await hand.tap(title, kind="Link")


async def _wiki_create(hand: Hand, task: Task) -> str:
    title, text = _quoted(task)
    await hand.tap("new tiddler")
    await hand.tap("New Tiddler", kind="EditText")
    await hand.type(title)
    await hand.tap("Type the text for this tiddler", kind="EditText")
    await hand.type(text)
    await hand.tap("Confirm changes to this tiddler")
    return ""


async def _wiki_delete(hand: Hand, task: Task) -> str:
    await _open_note(hand, _quoted(task)[0])
    await hand.tap("Edit this tiddler")
    await hand.tap("Delete this tiddler")
    return ""


async def _wiki_question(hand: Hand, task: Task) -> str:
    await _open_note(hand, _quoted(task)[0])
    capture = await hand.device.capture(screenshot=False)
    shown = [each.text for each in capture.elements if "the number is" in each.text]
    return shown[0].split()[-1]


async def _wiki_rewrite(hand: Hand, task: Task) -> str:
    title, text = _quoted(task)
    await _open_note(hand, title)
    await hand.tap("Edit this tiddler")
    await hand.tap("Type the text for this tiddler", kind="EditText")
    await hand.type(text)
    await hand.tap("Confirm changes to this tiddler")
    return ""


async def _wiki_tag(hand: Hand, task: Task) -> str:
    title, tag = _quoted(task)
    await _open_note(hand, title)
    await hand.tap("Edit this tiddler")
    await hand.tap("tag name", kind="EditText")
    await hand.type(tag)
    await hand.tap("add", kind="Button")
    await hand.tap("Confirm changes to this tiddler")
    return ""


async def _mail_delete(hand: Hand, task: Task) -> str:
    await _mail_open(hand, task)  # until then, what begins with Delete is what deletes all
    await hand.tap("Delete", kind="Link")
    return ""


async def _mail_open(hand: Hand, task: Task) -> str:
    await hand.tap(_quoted(task)[0], kind="Link")
    await hand.find("From:")
    return ""


async def _mail_question(hand: Hand, task: Task) -> str:
    await _mail_open(hand, task)
    for _ in range(LOOKS):
        capture = await hand.device.capture(screenshot=False)
        if shown := [each.text for each in capture.elements if "the code is" in each.text]:
            return shown[0].split()[-1]
        await hand.device.perform(Wait())
    raise AssertionError("the message is not shown")


async def _mail_read_all(hand: Hand, task: Task) -> str:
    await hand.tap("Mark all emails as read")
    return ""


async def _budget_account(hand: Hand, task: Task) -> str:
    await hand.tap("Accounts", kind="Link")
    await hand.tap("Add account")
    await hand.tap("Create a local account", kind="Button")
    await hand.tap("Name:", kind="EditText")
    await hand.type(_quoted(task)[0])
    await hand.tap("Balance:", kind="EditText")
    await hand.type(task.instruction.split()[-1].replace(",", ""))
    await hand.tap("Create", kind="Button")
    await hand.find(_quoted(task)[0])
    return ""


async def _budget_amount(hand: Hand, task: Task) -> str:
    category = _quoted(task)[0]
    await hand.tap(f"Open budget menu for {category} category")
    await hand.find("Budgeted")
    await hand.find("Copy last month")
    await hand.type(task.instruction.split()[1].replace(",", ""))
    await hand.enter()
    await hand.find("Today")
    return ""


async def _budget_question(hand: Hand, task: Task) -> str:
    await hand.tap("Accounts", kind="Link")
    name = _quoted(task)[0]
    for _ in range(LOOKS):
        shown = (await hand.find(name)).text.removeprefix(name).strip()
        if shown != "0.00":  # what it shows until its database has answered
            return shown
        await hand.device.perform(Wait())
    raise AssertionError(f"{name} stays at 0.00")


async def _budget_rename(hand: Hand, task: Task) -> str:
    category, name = _quoted(task)
    await hand.tap(category, kind="Button")
    await hand.find("Edit notes")
    await hand.tap(category, kind="TextView")
    await hand.tap(category, kind="EditText")
    await hand.type(name)
    await hand.enter()
    return ""


HANDS: dict[str, Callable[[Hand, Task], Awaitable[str]]] = {
    "budget.account": _budget_account,
    "budget.amount": _budget_amount,
    "budget.question": _budget_question,
    "budget.rename": _budget_rename,
    "mail.delete": _mail_delete,
    "mail.open": _mail_open,
    "mail.question": _mail_question,
    "mail.read_all": _mail_read_all,
    "wiki.create": _wiki_create,
    "wiki.delete": _wiki_delete,
    "wiki.question": _wiki_question,
    "wiki.rewrite": _wiki_rewrite,
    "wiki.tag": _wiki_tag,
}


async def play(device: Device, task: Task) -> Finish:
    """Do the task by hand; what the agent then says."""
    answer = await HANDS[task.template](Hand(device), task)
    assert isinstance(task.check, AppCheck)
    return Finish(answer=answer)
