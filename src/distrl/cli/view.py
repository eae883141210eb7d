"""`distrl view`: the dashboard of a run or of a folder of runs, in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.cli.extras import need_view_packages
from distrl.errors import StoreError

if TYPE_CHECKING:
    from distrl.dashboard.server import Address

NICE = 10
"""Added to the priority of a dashboard beside a training."""


def configure(parser: argparse.ArgumentParser) -> None:
    from distrl.cli.main import whole_number

    parser.add_argument(
        "run", nargs="?", type=Path, default=Path("runs"), help="a run folder, or a folder of runs (default: runs)"
    )
    port = whole_number("--port", 0, 65535, 8642)
    parser.add_argument("--port", type=port, metavar="N", help="the first port to try (8642); 0: any free one")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="another address needs a token (default: 127.0.0.1)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--json", action="store_true", help="print the address as one JSON object")
    inherited = whole_number("--socket", 0, 1_000_000, 3)  # how `distrl train` hands its own over
    parser.add_argument("--socket", type=inherited, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    need_view_packages()
    import socket

    from distrl.dashboard.server import USUAL_PORT, access_for, end_with_starter, listen, serve

    _check(args.run)
    access = access_for(args.host)
    if args.socket is not None:
        os.nice(NICE)
        end_with_starter()
        listening = socket.socket(fileno=args.socket)
    else:
        listening, moved = listen(args.host, USUAL_PORT if args.port is None else args.port)
        if moved:
            print(f"distrl: {moved}", file=sys.stderr)

    def ready(address: Address) -> None:
        _tell(address, as_json=args.json)
        if not args.no_browser:
            open_browser(address.url)

    serve(args.run, access, listening, ready=ready)
    return 0


def _check(place: Path) -> None:
    """Raise now where there is nothing to show and nothing will come."""
    from distrl.runtime.run_folder import open_run

    if (place / "config.toml").exists() or not place.exists():
        if not place.exists():
            raise StoreError(
                f"{place} does not exist",
                expected="a run folder, or a folder of runs",
                fix="distrl train, or name the folder",
            )
        open_run(place)
    elif not place.is_dir():
        raise StoreError(f"{place} is no folder", expected="a run folder, or a folder of runs", fix="distrl view runs")


def _tell(address: Address, *, as_json: bool) -> None:
    from distrl.cli.main import print_json

    if as_json:
        print_json({"url": address.url, "port": address.port})
    else:
        print(f"dashboard: {address.url}   (Ctrl-C ends it)")
    sys.stdout.flush()


def open_browser(url: str) -> None:
    """Open it where there is a screen; over ssh, the address is enough."""
    import threading
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    threading.Timer(0.5, webbrowser.open, (url,)).start()
