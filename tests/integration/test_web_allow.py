"""What a page can reach: every way out that a browser has, tried by a hostile page, with and without leave to go there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from distrl.config.schema import WebConfig
from distrl.devices.web.browser import Browser
from distrl.devices.web.chromium import resolver_rules
from distrl.devices.web.device import WebDevice
from distrl.types import Tap, WebSetup
from support.webs import named, needs_chromium, texts

pytestmark = needs_chromium
HEAD = """
<link rel=prefetch href="$E/prefetch"><link rel=preconnect href="$E"><link rel=preload as=script href="$E/preload">
<link rel=stylesheet href="$E/css"><link rel=modulepreload href="$E/modulepreload">
<script type="speculationrules">{"prefetch":[{"source":"list","urls":["$E/speculation"],"eagerness":"immediate"}]}</script>
"""
WORKER = "fetch('$E/worker',{mode:'no-cors'}).catch(()=>0);new WebSocket('$S/worker-socket')"
SERVICE = """
self.addEventListener('install', e => self.skipWaiting());
self.addEventListener('activate', e => e.waitUntil(clients.claim()));
self.addEventListener('fetch', e => { if (e.request.url.includes('asked'))
  e.respondWith(fetch('$E/service', {mode: 'no-cors'}).catch(() => new Response('none'))); });
"""
BODY = """
<p id="said">begun</p><a href="/redirect?link">Redirected</a><a href="/calm" ping="$E/ping">Pinged</a>
<img src="$E/image"><img src="/redirect?image"><video src="$E/video"></video><object data="$E/object"></object>
<iframe src="$E/frame"></iframe><iframe src="/redirect?frame"></iframe>
<iframe srcdoc="<img src='$E/srcdoc'>"></iframe><iframe src="data:text/html,<img src='$E/data'>"></iframe>
<iframe name="inner"></iframe><form id="form" action="$E/form" method="post" target="inner"></form>
<script>
const attempt = async (work) => { try { await work(); } catch {} };
attempt(() => fetch('$E/fetch', {mode: 'no-cors'}));
attempt(() => fetch('/redirect?fetch', {mode: 'no-cors'}));
attempt(() => fetch('$E/kept', {mode: 'no-cors', keepalive: true}));
attempt(() => navigator.sendBeacon('$E/beacon'));
attempt(() => new WebSocket('$S/socket'));
attempt(() => new EventSource('$E/events'));
attempt(() => import('$E/module.js'));
attempt(() => new Worker(URL.createObjectURL(new Blob([`$WORKER`]))));
attempt(() => { const frame = document.createElement('iframe');
  frame.src = URL.createObjectURL(new Blob(["<img src='$E/blob'>"], {type: 'text/html'})); document.body.append(frame); });
attempt(async () => { await navigator.serviceWorker.register('/service.js'); await navigator.serviceWorker.ready;
  await new Promise((done) => setTimeout(done, 100)); await fetch('/asked'); });
attempt(async () => { const peer = new RTCPeerConnection({iceServers: [{urls: ['stun:$A']},
    {urls: ['turn:$A?transport=tcp', 'turn:$A?transport=udp'], username: 'u', credential: 'c'}]});
  peer.createDataChannel('x'); await peer.setLocalDescription(await peer.createOffer()); });
attempt(async () => { const transport = new WebTransport('https://$A/transport'); await transport.ready; });
attempt(() => form.submit());
attempt(() => { const beside = window.open('about:blank'); beside.document.write("<img src='$E/popup'>"); });
setTimeout(() => { said.textContent = 'all tried'; }, 1500);
</script>
"""
WAYS = {
    "prefetch", "preload", "css", "modulepreload", "speculation", "worker", "worker-socket", "service", "image", "redirect?image",
    "video", "object", "frame", "redirect?frame", "srcdoc", "data", "form", "fetch", "redirect?fetch", "kept", "beacon", "socket",
    "events", "module.js", "blob", "popup", "report",
}  # fmt: skip
"""What the other server hears of where a page may go there. Peers and transports need UDP, which nothing here may use."""


class Other(asyncio.DatagramProtocol):
    """A server of another origin that notes who comes, over TCP or UDP."""

    def __init__(self) -> None:
        self.heard: set[str] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = (await reader.readline()).decode("latin-1").split()
        self.heard.add(words[1].lstrip("/") if len(words) > 1 else "a connection")
        writer.write(
            b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        writer.close()

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.heard.add("a datagram")


@asynccontextmanager
async def hostile(other: Other) -> AsyncIterator[tuple[str, str]]:
    """The origins of a page that tries all ways to another one, and of that one."""
    there = await asyncio.start_server(other.answer, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: other, local_addr=("127.0.0.1", port))
    elsewhere = f"http://127.0.0.1:{port}"

    def filled(text: str) -> str:
        names = {"$WORKER": WORKER, "$E": elsewhere, "$S": f"ws://127.0.0.1:{port}", "$A": f"127.0.0.1:{port}"}
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        if path.startswith("/redirect"):
            head = (
                f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}{path}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode())
        else:
            page = f"<!DOCTYPE html><html><head>{HEAD}</head><body>{BODY}</body></html>"
            body, kind = {"/": (page, "text/html"), "/service.js": (SERVICE, "text/javascript")}.get(
                path, ("<p>calm</p>", "text/html")
            )
            policy = f"Content-Security-Policy-Report-Only: img-src 'none'; report-uri {elsewhere}/report"
            data = filled(body).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{policy}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + data)
        writer.close()

    here = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{here.sockets[0].getsockname()[1]}", elsewhere
    finally:
        udp.close()
        there.close()
        here.close()


async def _attempt(*, allowed: bool) -> tuple[set[str], list[str]]:
    """What the other server heard, and where the phone was after each of two taps on links."""
    other, urls = Other(), []
    async with asyncio.timeout(120), hostile(other) as (here, elsewhere):
        settings = WebConfig(allow=(here, elsewhere) if allowed else (here,), load_s=15.0, settle_s=5.0)
        device = WebDevice("test/web-0", settings, Browser(settings, name="browser"))
        try:
            await device.start(WebSetup(url=f"{here}/"))
            for _ in range(300):
                if (await texts(device))[0] == "all tried" and (other.heard >= WAYS or not allowed):
                    break
                await asyncio.sleep(0.1)
            for link in ("Redirected", "Pinged") if not allowed else ():
                await device.perform(Tap(*named(await device.capture(screenshot=False), link).bounds.centre))
                urls.append(device.tab.url.removeprefix(here))
        finally:
            await device.close()
    return other.heard, urls


def test_a_page_reaches_another_origin_in_every_way_where_it_may_and_in_none_where_it_may_not() -> None:
    heard, _ = asyncio.run(_attempt(allowed=True))
    assert heard >= WAYS, WAYS - heard
    assert "a datagram" not in heard
    heard, urls = asyncio.run(_attempt(allowed=False))
    assert heard == set()
    assert urls == ["/", "/calm"]


def test_names_are_looked_up_for_allowed_origins_alone() -> None:
    assert resolver_rules(()) == "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"
    rules = resolver_rules(("https://shop.example:8443", "http://[::1]:80", "http://127.0.0.1:8000"))
    assert rules.endswith("EXCLUDE localhost, EXCLUDE 127.0.0.1, EXCLUDE shop.example, EXCLUDE ::1")
