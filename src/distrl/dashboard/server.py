"""The server of the dashboard: which port, who may look, and how it is started beside a training."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from distrl.dashboard.security import Access, is_any, is_loopback
from distrl.errors import UsageError

if TYPE_CHECKING:
    from distrl.dashboard.teleoperation import Attempts

USUAL_PORT = 8642
TRIES = 50
"""Ports that are tried, one after the other."""
TOKEN_VARIABLE = "DISTRL_VIEW_TOKEN"  # noqa: S105  # the name of a variable
START_S, END_S = 60.0, 3.0
SHORTEST_TOKEN = 16


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the dashboard is."""

    host: str
    port: int
    token: str = ""

    @property
    def url(self) -> str:
        """To open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if is_any(self.host):
            host = socket.gethostname()
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def access_for(host: str) -> Access:
    """Who may look at a server that listens at `host`: beyond this machine, whoever has the token."""
    if is_loopback(host):
        return Access(host=host)
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token and len(token) < SHORTEST_TOKEN:
        raise UsageError(
            f"the token in {TOKEN_VARIABLE} has {len(token)} characters",
            expected=f"at least {SHORTEST_TOKEN}",
            fix=f"export {TOKEN_VARIABLE}=$(openssl rand -hex 24), or unset it: then one is made",
        )
    return Access(host=host, token=token or secrets.token_urlsafe(24))


def listen(host: str, port: int) -> tuple[socket.socket, str]:
    """A socket at this port or the next free one, and what there is to say about that; port 0: any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(65535, port + TRIES) + 1):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, candidate))
            found.listen(128)
        except OSError as error:
            found.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UsageError(f"cannot listen at {host}: {error.strerror}", expected="an address of this machine", fix="--host 127.0.0.1") from error  # fmt: skip
            continue
        moved = f"port {port} is taken: using {candidate}" if port and candidate != port else ""
        return found, moved
    raise UsageError(f"the ports {port} to {port + TRIES} are taken", expected="a free one", fix="--port 0, which takes any free one")  # fmt: skip


def serve(
    place: Path,
    access: Access,
    listening: socket.socket,
    *,
    ready: Callable[[Address], None],
    attempts: Attempts | None = None,
) -> None:
    """Serve until interrupted; `ready` hears the address once it answers."""
    import uvicorn

    from distrl.dashboard.app import make_app

    address = Address(host=access.host, port=listening.getsockname()[1], token=access.token)
    config = uvicorn.Config(
        make_app(place, access, attempts), log_level="error", access_log=False, server_header=False, ws="none",
        timeout_graceful_shutdown=1, timeout_keep_alive=30,
    )  # fmt: skip
    server = uvicorn.Server(config)
    ready(address)
    server.run(sockets=[listening])


# --- beside a training ------------------------------------------------------------------------------------------------


@contextmanager
def beside(run: Path, tell: Callable[[str], None]) -> Iterator[str]:
    """Serve one run in a process of its own while this lasts; its address, or empty where it could not be started.

    The process has a lower priority than the training, ends with it, and is not waited for but for its address.
    """
    try:
        process, address = _start(run, tell)
    except (OSError, UsageError) as error:
        tell(f"no dashboard: {str(error).splitlines()[0]}")
        yield ""
        return
    try:
        yield address
    finally:
        _stop(process)


def _start(run: Path, tell: Callable[[str], None]) -> tuple[subprocess.Popen[bytes], str]:
    listening, moved = listen("127.0.0.1", USUAL_PORT)
    with listening:  # bound here, so that the address is known at once, and handed on
        port = listening.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "distrl",
            "view",
            str(run),
            "--no-browser",
            "--socket",
            str(listening.fileno()),
        ]
        with (run / "logs" / "view.out").open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=output,
                pass_fds=(listening.fileno(),), start_new_session=True,
            )  # fmt: skip
    if moved:
        tell(moved)
    return process, f"http://127.0.0.1:{port}/"


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def end_with_starter() -> None:
    """End this process once whoever started it is gone: its end of the pipe to stdin closes, however it ended."""
    import threading

    def wait() -> None:
        with suppress(OSError, ValueError):
            while sys.stdin.buffer.read(4096):
                time.sleep(0.1)
        os._exit(0)

    threading.Thread(target=wait, name="starter", daemon=True).start()
