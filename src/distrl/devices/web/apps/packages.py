"""The npm packages that the apps come from, in a folder that the user names. Nothing here installs anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from distrl.errors import ConfigError

PACKAGES = {"budget": "@actual-app/web", "mail": "maildev", "wiki": "tiddlywiki"}
"""By app: Actual Budget, MailDev and TiddlyWiki."""
VERSIONS = {"@actual-app/web": "25.6.0", "maildev": "2.2.1", "tiddlywiki": "5.4.1"}
"""Those that the tasks were made with."""
NODE = "node"
NEED_NODE = ("mail", "wiki")
"""Apps that are a program of node; the others are pages alone."""


def install_command(folder: str) -> str:
    """What the user runs once."""
    named = " ".join(f"{package}@{version}" for package, version in VERSIONS.items())
    return f"npm install --prefix {folder or 'FOLDER'} --ignore-scripts --legacy-peer-deps {named}"


def check_packages(folder: str) -> Path:
    """The folder, where it holds all packages in their versions and there is a node to run them; else `ConfigError` with the command."""
    if not folder:
        raise ConfigError(
            "devices.web.apps_folder is empty",
            expected="the folder that the apps are installed in",
            fix=f"{install_command('')}; then --devices.web.apps_folder FOLDER",
        )
    if shutil.which(NODE) is None:
        raise ConfigError(
            f"there is no program {NODE!r} on this machine",
            expected="Node.js 20 or later, which the apps of devices.web.apps_folder run on",
            fix="apt-get install nodejs npm (Debian), or https://nodejs.org",
        )
    found = Path(folder).expanduser().absolute()
    for package, version in VERSIONS.items():
        if (seen := _version_in(found, package)) != version:
            raise ConfigError(
                f"{found} has {package} {seen}" if seen else f"{found} has no {package}",
                expected=f"{package} {version}",
                fix=install_command(str(found)),
            )
    return found


def package_folder(folder: Path, app: str) -> Path:
    """Where the package of an app is."""
    return folder / "node_modules" / PACKAGES[app]


def _version_in(folder: Path, package: str) -> str:
    try:
        text = (folder / "node_modules" / package / "package.json").read_text(encoding="utf-8")
        return str(json.loads(text)["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
