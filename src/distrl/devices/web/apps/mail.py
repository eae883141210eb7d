"""MailDev, a mail catcher: messages come by SMTP, and its REST interface tells which it holds.

Table `messages`, by subject, which has to be unique: `from`, `text` and whether it was read.
"""

from __future__ import annotations

import asyncio
import smtplib
import time
from email.message import EmailMessage
from pathlib import Path

from distrl.devices.web.apps.base import Tables
from distrl.devices.web.apps.packages import NODE, package_folder
from distrl.devices.web.apps.server import CALL_S, POLL_S, Server, same_ports
from distrl.devices.web.tab import Tab
from distrl.errors import DeviceLost, LossCause
from distrl.types import Value

TO = "me@phone.test"
TABLE = "messages"
ARRIVED_S = 30.0
ASKED = (
    "((page) => !page || page.get('$http').pendingRequests.length === 0)"
    "(globalThis.angular && angular.element(document.documentElement).injector())"
)


class Mail:
    """The mail catcher of one phone."""

    name, size = "mail", (600, 900)

    def __init__(self, folder: Path, phone: str) -> None:
        self._program, self._phone = package_folder(folder, self.name) / "bin" / "maildev", phone
        self._server: Server | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._server is not None and self._server.alive

    @property
    def allowed(self) -> str:
        """Where its pages are."""
        return self._server.origin if self._server is not None else ""

    async def serve(self) -> None:
        """Start it on two free ports, for pages and for mail."""
        choose = same_ports(self._server)
        await self.close()
        name = f"mail of {self._phone}"
        self._server = await Server.start(name, self._words, num_ports=2, says="webapp running at", choose=choose)

    def _words(self, folder: Path, ports: tuple[int, ...]) -> list[str]:
        local = ["--ip", "127.0.0.1", "--web-ip", "127.0.0.1", "--web", str(ports[0]), "--smtp", str(ports[1])]
        return [NODE, str(self._program), *local, "--mail-directory", str(folder / "mail")]

    async def begin(self, tab: Tab, records: Tables) -> None:
        """Delete what there is, send these, and open the list anew."""
        server = self._running()
        await server.ask("DELETE", "/email/all")
        messages = records.get(TABLE, {})
        await asyncio.to_thread(_send, server, messages)
        await tab.forget(server.origin)
        await tab.go(f"{server.origin}/")

    async def home(self, tab: Tab) -> None:
        """Its first page."""
        await tab.go(f"{self.allowed}/")

    async def rebuild(self, tab: Tab) -> None:
        """Start it again: it keeps nothing."""
        await self.serve()

    async def read(self, tab: Tab) -> Tables:
        """What it holds, once its page waits for no answer."""
        await self._until_asked(tab)
        found: dict[str, dict[str, Value]] = {}
        for message in await self._running().ask("GET", "/email"):
            fields: dict[str, Value] = {
                "from": str(message["from"][0]["address"]),
                "text": str(message.get("text", "")).strip(),
                "read": bool(message.get("read")),
            }
            found[str(message["subject"])] = fields
        return {TABLE: found}

    async def _until_asked(self, tab: Tab) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ARRIVED_S
        while not await tab.evaluate(ASKED, bool):
            if loop.time() > until_s:
                raise DeviceLost(f"mail of {self._phone} left its page without an answer", cause=LossCause.LATE)
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """End it."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _running(self) -> Server:
        if self._server is None or not self._server.alive:
            raise DeviceLost(f"mail of {self._phone} does not run", cause=LossCause.SERVER)
        return self._server


def _send(server: Server, messages: dict[str, dict[str, Value]]) -> None:
    """One after the other, so that they stand in this order."""
    try:
        with smtplib.SMTP("127.0.0.1", server.ports[1], local_hostname="localhost", timeout=CALL_S) as connection:
            for number, (subject, fields) in enumerate(messages.items(), start=1):
                message = EmailMessage()
                message["Subject"], message["From"], message["To"] = subject, str(fields["from"]), TO
                message.set_content(str(fields["text"]))
                connection.send_message(message)
                _until_arrived(server, number)
    except (OSError, smtplib.SMTPException) as error:
        raise DeviceLost(f"{server.name} takes no mail: {error}", cause=LossCause.SERVER) from None


def _until_arrived(server: Server, count: int) -> None:
    until_s = time.monotonic() + ARRIVED_S
    while len(server.ask_now("GET", "/email")) < count:
        if time.monotonic() > until_s:
            raise DeviceLost(f"{server.name} did not take a message within {ARRIVED_S:g} s", cause=LossCause.LATE)
        time.sleep(POLL_S)
