"""Devices that were there when a run was set up, and are not any more."""

from __future__ import annotations

from distrl.devices.base import Device, Fleet
from distrl.errors import DeviceLost
from distrl.types import Task
from support.rollouts import Page


class Gone(Page):
    """A device that answers neither to a reset nor to a restart."""

    async def reset(self, task: Task) -> None:
        raise DeviceLost(f"{self.name} is lost: the cable is out")

    async def restart(self) -> None:
        raise DeviceLost(f"{self.name} is lost: the cable is out")


def make_gone(settings: object, fleet: Fleet) -> list[Device]:
    """As many as are asked for, all of them gone."""
    return [Gone(f"{fleet.owner}/page-{number}") for number in range(fleet.count)]
