"""The Chromium phones of one role: of pages alone, or with web apps of their own where `devices.web.apps_folder` names some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from distrl.config.schema import WebConfig
from distrl.devices.base import Device, Fleet
from distrl.devices.web import device
from distrl.devices.web.browser import Browser
from distrl.devices.web.chromium import find_chromium


def make_devices(settings: WebConfig, fleet: Fleet) -> Sequence[Device]:
    """They share one browser, which starts with the first task; an error with the fix where something is not installed."""
    if not settings.apps_folder:
        return device.make_devices(settings, fleet)
    from distrl.devices.web.apps.packages import check_packages
    from distrl.devices.web.apps.phone import AppPhone, make_apps

    find_chromium(settings.chromium)
    folder = check_packages(settings.apps_folder)
    browser = Browser(settings, name=f"{fleet.owner}/browser")
    names = [f"{fleet.owner}/web-{number}" for number in range(fleet.count)]
    return [cast(Device, AppPhone(name, settings, browser, apps=make_apps(folder, name))) for name in names]
