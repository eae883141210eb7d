"""A Chromium phone with the real browser: gestures, what it sees, what pages may not do, and what becomes of crashes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from distrl.config.schema import WebConfig
from distrl.devices.base import Fleet
from distrl.devices.web.device import make_devices
from distrl.errors import DeviceError, DeviceLost, LossCause, TaskError
from distrl.types import Finish, LongPress, Press, Swipe, Tap, TypeText, Unparsed, Wait, WebSetup
from support.webs import Pages, group_of, is_running, named, needs_chromium, pages, tap, texts

pytestmark = needs_chromium
SAID = '<p id="said">nothing</p>'


def run(work: Callable[[Pages], Awaitable[None]], folder: Path, **settings: object) -> None:
    async def within() -> None:
        async with asyncio.timeout(120), pages(folder, **settings) as found:
            await work(found)

    asyncio.run(within())


def test_every_gesture_arrives_and_what_came_of_it_is_seen(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        device = await site.shown(
            f"{SAID}<button onclick=\"said.textContent='tapped'\">Tap me</button>"
            '<div id="hold" style="height:60px;background:#ddd" oncontextmenu="said.textContent=\'held\';return false">Hold me</div>'
            '<form onsubmit="said.textContent=\'sent \' + q.value;return false"><label>Search<input id="q" value="old"></label></form>'
            '<div id="rows" style="height:120px;overflow-y:auto">'
            + "".join(f'<p style="margin:0;height:50px">Row {row}</p>' for row in range(12))
            + "</div>"
        )
        capture = await device.capture(screenshot=True)
        assert Image.open(BytesIO(capture.screenshot)).size == (capture.width_px, capture.height_px) == (360, 720)
        assert capture.app == "page.html"
        assert named(capture, "Tap me").clickable
        assert named(capture, "Tap me").class_name == "Button"
        assert not named(capture, "nothing").clickable

        assert (await tap(device, "Tap me")).changed
        assert "tapped" in await texts(device)
        assert not (await device.perform(Tap(0.99, 0.99))).changed
        await device.perform(LongPress(*named(await device.capture(screenshot=False), "Hold me").bounds.centre))
        assert "held" in await texts(device)

        assert (await device.perform(TypeText("too early"))).why == "no field is focused"
        await tap(device, "q")
        assert named(await device.capture(screenshot=False), "q").focused
        assert (await device.perform(TypeText('näh & <b>"q"</b>'))).changed
        assert named(await device.capture(screenshot=False), "q").text == 'näh & <b>"q"</b>'
        await device.perform(Press("enter"))
        assert 'sent näh & <b>"q"</b>' in await texts(device)

        assert "Row 9" not in await texts(device)
        x, y = named(await device.capture(screenshot=False), "rows").bounds.centre
        for _ in range(6):
            await device.perform(Swipe(x, y, x, y - 0.12))
        assert "Row 9" in await texts(device)
        assert (await device.perform(Wait())).valid
        assert not (await device.perform(Unparsed("click that"))).valid
        assert not (await device.perform(Tap(1.5, 0.5))).valid
        assert (await device.perform(Finish())).valid

    run(work, tmp_path)


def test_what_is_covered_hidden_or_beyond_the_screen_is_no_element(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        cover = "position:fixed;top:0;left:0;width:100%;height:60px;background:#fff"
        device = await site.shown(
            f'<button style="position:absolute;top:10px">Under</button><div style="{cover}">Cover</div>'
            '<div style="height:80px"></div><button style="visibility:hidden">Invisible</button>'
            '<button style="opacity:0">Clear</button><button disabled>Off</button>'
            '<div style="height:900px"></div><button>Below</button>'
        )
        capture = await device.capture(screenshot=False)
        assert [each.text for each in capture.elements if each.text] == ["Cover", "Off"]
        assert not named(capture, "Off").enabled
        assert not named(capture, "Off").clickable

    run(work, tmp_path)


def test_a_dialog_written_inside_a_card_that_cuts_off_is_seen_whole(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        dialog = '<div style="position:fixed;inset:0"><button style="margin-top:400px" onclick="this.textContent=\'chosen\'">Fahrenheit</button></div>'
        menu = '<div style="position:absolute;top:300px;left:0"><button>Menu</button></div>'
        inside = '<div style="position:absolute;top:90px"><button>Cut off</button></div>'
        device = await site.shown(
            f'<div style="overflow:hidden;height:80px">{menu}{dialog}</div>'
            f'<div style="overflow:hidden;height:60px;position:relative">{inside}</div>'
        )
        assert await texts(device) == ["Fahrenheit"]  # it covers the menu
        assert (await tap(device, "Fahrenheit")).changed
        assert await texts(device) == ["chosen"]
        bare = await site.shown(f'<div style="overflow:hidden;height:80px">{menu}</div>{inside}', name="bare.html")
        assert await texts(bare) == ["Menu", "Cut off"]

    run(work, tmp_path)


def test_a_switch_that_is_part_of_its_row_shows_that_the_row_was_touched(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        device = await site.shown(
            '<div onclick="this.lastChild.firstChild.classList.toggle(\'on\')" style="height:50px"><span>At night</span>'
            '<span><i class="knob" style="display:inline-block;width:20px;height:20px"></i></span></div>'
            '<div onclick="0" style="height:50px">Nothing</div>'
        )
        assert (await tap(device, "At night")).changed
        assert not (await tap(device, "Nothing")).changed

    run(work, tmp_path)


def test_after_an_action_it_waits_for_quiet_from_then_on(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        later = "setTimeout(() => { this.textContent = 'Open' }, 200)"
        device = await site.shown(f'<button onclick="{later}">Shut</button>')
        await asyncio.sleep(1.1)  # the page has not changed for longer than `quiet_s`
        assert (await tap(device, "Shut")).changed
        assert await texts(device) == ["Open"]

    run(work, tmp_path, quiet_s=1.0)


def test_texts_of_a_screen_that_listens_as_a_whole_are_touched_where_it_has_few_parts_of_its_own(
    tmp_path: Path,
) -> None:
    async def work(site: Pages) -> None:
        for buttons, touched in ((1, True), (5, False)):
            parts = "".join(f"<button>Part {number}</button>" for number in range(buttons))
            device = await site.shown(
                f'<div onclick="0" style="height:600px"><p>A text</p>{parts}</div>', name=f"{buttons}.html"
            )
            assert named(await device.capture(screenshot=False), "A text").clickable is touched

    run(work, tmp_path)


def test_a_page_without_any_element_is_one_that_can_be_touched(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        device = await site.shown('<div style="height:700px;background:#eee"></div>')
        (whole,) = (await device.capture(screenshot=False)).elements
        assert whole.clickable
        assert (whole.bounds.left, whole.bounds.top, whole.bounds.right, whole.bounds.bottom) == (0.0, 0.0, 1.0, 1.0)

    run(work, tmp_path)


def test_shadow_roots_frames_and_frames_of_other_origins_are_looked_into(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        other = site.write("other.html", "<button onclick=\"this.textContent='Foreign tapped'\">Foreign</button>")
        inner = site.write("inner.html", "<button onclick=\"this.textContent='Inner tapped'\">Inner</button>")
        foreign = other.replace("127.0.0.1", "localhost")
        device = await site.shown(
            f'<div id="host"></div><div id="shut"></div><iframe src="{inner}" style="height:80px"></iframe><iframe src="{foreign}" style="height:80px"></iframe>'
            "<script>host.attachShadow({mode:'open'}).innerHTML='<button>Open root</button>';"
            "const b=document.createElement('button');b.textContent='Closed root';b.onclick=()=>{b.textContent='Closed tapped'};"
            "shut.attachShadow({mode:'closed'}).append(b)</script>"
        )
        assert await texts(device) == ["Open root", "Closed root", "Inner", "Foreign"]
        for name in ("Closed", "Inner", "Foreign"):
            full = "Closed root" if name == "Closed" else name
            assert (await tap(device, full)).changed
        assert await texts(device) == ["Open root", "Closed tapped", "Inner tapped", "Foreign tapped"]

    async def with_other(site: Pages) -> None:
        port = site.settings.allow[0].rpartition(":")[2]
        site.settings = WebConfig(allow=(*site.settings.allow, f"http://localhost:{port}"), load_s=5.0)
        await work(site)

    run(with_other, tmp_path)


def test_a_list_to_choose_from_opens_on_the_screen(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        options = "".join(f"<option>Colour {number}</option>" for number in range(30))
        device = await site.shown(f'{SAID}<select id="c" onchange="said.textContent=this.value">{options}</select>')
        assert named(await device.capture(screenshot=False), "c").class_name == "Spinner"
        await tap(device, "c")
        assert named(await device.capture(screenshot=False), "Colour 3").class_name == "ListItem"
        await tap(device, "Colour 3")
        assert (await texts(device))[0] == "Colour 3"
        await tap(device, "c")
        assert (await device.perform(Press("back"))).changed  # shuts the list, and leaves no page
        assert await texts(device) == ["Colour 3", "Colour 3"]

    run(work, tmp_path)


SWITCHES = """
<style>.knob {width: 40px; height: 24px; background: #ccc} .knob.on {background: #4c4}</style>
<div style="display:flex;justify-content:space-between"><span>Night mode</span>
<div class="knob w-[40px] h-6 p-0.5" style="cursor:pointer" onclick="this.classList.toggle('on')"></div></div>
<div style="display:flex;justify-content:space-between"><span>Sounds</span>
<div class="knob w-[40px] h-6 p-0.5" onclick="void 0"></div></div>
<button class="trash" style="width:40px;height:24px"></button>
"""


def test_a_switch_without_a_word_is_named_by_its_row_and_turning_it_is_a_change(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        device = await site.shown(SWITCHES)
        switches = {
            each.description: each for each in (await device.capture(screenshot=False)).elements if each.clickable
        }
        assert set(switches) == {"Night mode", "Sounds", "trash"}
        assert (await device.perform(Tap(*switches["Night mode"].bounds.centre))).changed
        assert not (await device.perform(Tap(*switches["Sounds"].bounds.centre))).changed

    run(work, tmp_path)


def test_it_waits_for_what_a_tap_sets_off(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        site.write("next.html", "<p>Arrived</p>")
        device = await site.shown(
            f"{SAID}<a href='next.html'>Next</a> <button onclick=\"let n=0;const t=setInterval(()=>{{said.textContent=n;"
            'if(++n>12)clearInterval(t)},10)">Count</button><div id="d" style="width:40px;transition:width .3s">w</div>'
        )
        await tap(device, "Count")
        assert (await texts(device))[0] == "12"
        assert (await tap(device, "Next")).changed
        assert await texts(device) == ["Arrived"]
        assert (await device.perform(Press("back"))).changed
        assert "Next" in await texts(device)
        assert not (await device.perform(Press("back"))).valid
        await tap(device, "Next")
        await device.perform(Press("home"))
        assert "Next" in await texts(device)

    run(work, tmp_path)


def test_a_page_that_was_not_made_for_phones_is_touched_where_it_is_shown(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        url = site.write("wide.html", "")
        place = "position:absolute;left:700px;top:1200px"
        (tmp_path / "wide.html").write_text(
            f'<!DOCTYPE html><div style="{place}" onclick="this.textContent=1">Far</div>'
        )
        device = site.phone()
        await device.start(WebSetup(url=url))
        assert named(await device.capture(screenshot=False), "Far").bounds.left > 0.5
        assert (await tap(device, "Far")).changed
        assert await texts(device) == ["1"]

    run(work, tmp_path)


COUNT = "let n=0;const t=setInterval(()=>{{{0};if(++n>12)clearInterval(t)}},10)"
"""Something that happens every 10 ms, twelve times."""


def test_it_waits_for_what_goes_on_in_a_frame(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        inner = site.write("inner.html", f'<button onclick="{COUNT.format("this.textContent=n")}">Count</button>')
        device = await site.shown(f'<iframe src="{inner}"></iframe>')
        await tap(device, "Count")
        assert await texts(device) == ["12"]

    run(work, tmp_path)


def test_it_waits_for_a_timer_that_a_tap_sets_and_not_for_those_of_a_page_that_polls(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        later = "setTimeout(()=>{said.textContent='first';setTimeout(()=>{said.textContent='second'},300)},400)"
        polls = "const poll=()=>{polled++;setTimeout(poll,100)};let polled=0;poll()"
        device = await site.shown(f'{SAID}<button onclick="{later}">Later</button><script>{polls}</script>')
        await tap(device, "Later")
        assert (await texts(device))[0] == "second"
        inner = site.write("inner.html", f'<button onclick="{later.replace("said", "this")}">Within</button>')
        await site.shown(f'<iframe src="{inner}"></iframe>')
        await tap(device, "Within")
        assert await texts(device) == ["second"]
        assert device.unsettled == 0

    run(work, tmp_path, settle_s=20.0)


def test_a_picture_shows_what_the_elements_say(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        colour = "document.body.style.background=n<12?'red':'lime';said.textContent=n"
        device = await site.shown(f'{SAID}<button onclick="{COUNT.format(colour)}">Colour</button>')
        first = await device.capture(screenshot=True)  # from now on it takes pictures while it waits
        await device.perform(Tap(*named(first, "Colour").bounds.centre))
        capture = await device.capture(screenshot=True)
        assert "12" in [each.text for each in capture.elements]
        red, green, blue = Image.open(BytesIO(capture.screenshot)).convert("RGB").getpixel((350, 700))
        assert (red < 50, green > 200, blue < 50) == (True, True, True), (red, green, blue)
        await device.start(WebSetup(url=site.write("page.html", "<p>Next</p>")))  # a document of its own counts anew
        other = (await device.capture(screenshot=True)).screenshot
        assert other not in (first.screenshot, capture.screenshot)
        assert Image.open(BytesIO(other)).convert("RGB").getpixel((350, 700)) == (255, 255, 255)

    run(work, tmp_path)


def test_it_waits_for_data_that_a_tap_asks_for_and_not_for_news_that_do_not_come(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if b"/news" not in asked:
            await asyncio.sleep(0.5)
            head = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
            writer.write(f"{head}data".encode())
            writer.close()
        await reader.read()

    async def work(site: Pages) -> None:
        load = f"fetch('{site.settings.allow[1]}/data').then(r=>r.text()).then(t=>{{said.textContent=t}})"
        poll = f"said.textContent='asked '+ ++n;fetch('{site.settings.allow[1]}/news?'+n)"
        device = await site.shown(
            f'{SAID}<button onclick="{load}">Load</button><button onclick="{poll}">Poll</button>'
            "<button onclick=\"new Worker('page.html')\">Work</button><script>let n=0</script>"
        )
        await tap(device, "Work")
        await tap(device, "Load")
        assert (await texts(device))[0] == "data"
        assert device.unsettled == 0
        for number in (1, 2, 3):
            await tap(device, "Poll")
            assert (await texts(device))[0] == f"asked {number}"
            assert device.unsettled == 1

    async def with_data() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(120), pages(tmp_path, allow=(origin,), settle_s=4.0) as found:
            await work(found)
        server.close()

    asyncio.run(with_data())


def test_a_page_gets_nowhere_but_to_the_allowed_addresses(tmp_path: Path) -> None:
    reached: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append((await reader.readline()).decode())
        writer.close()

    async def work(site: Pages) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        elsewhere = f"http://127.0.0.1:{port}/secret"
        site.write("popup.html", "<p>Popped up</p>")
        device = await site.shown(
            f'{SAID}<a href="{elsewhere}">Away</a> <a href="file:///etc/passwd">File</a> <a href="popup.html" target="_blank">Popup</a> '
            f'<a href="data:application/zip,x" download="x.zip">Download</a> <img src="{elsewhere}?image">'
            f"<script>fetch('{elsewhere}?fetch',{{mode:'no-cors'}}).catch(()=>{{said.textContent='blocked'}});"
            f"new WebSocket('ws://127.0.0.1:{port}/socket');navigator.sendBeacon('{elsewhere}?beacon')</script>"
        )
        assert (await texts(device))[0] == "blocked"
        for name in ("Away", "File", "Download"):
            await tap(device, name)
            assert (await texts(device))[0] == "blocked", name
        assert device.tab.counted["blocked"] >= 1
        await tap(device, "Popup")  # a phone shows one page at a time
        assert await texts(device) == ["Popped up"]
        assert device.tab.counted["popups"] == 1
        with pytest.raises(TaskError, match="may go to"):
            await device.start(WebSetup(url=elsewhere))
        with pytest.raises(TaskError, match="no address"):
            await device.start(WebSetup(url="file:///etc/passwd"))
        server.close()
        assert reached == []

    run(work, tmp_path)


def test_dialogs_are_answered_and_a_storm_of_them_is_a_fault(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        device = await site.shown(
            f"{SAID}<button onclick=\"alert(1);said.textContent=confirm('sure?')+' '+prompt('who?')\">Ask</button>"
            '<button onclick="for(;;)alert(1)">Storm</button>'
        )
        await tap(device, "Ask")
        assert (await texts(device))[0] == "true null"
        with pytest.raises(DeviceLost, match="dialogs"):
            await tap(device, "Storm")
        await device.restart()
        await device.start(WebSetup(url=site.write("calm.html", "<p>Calm</p>")))
        assert await texts(device) == ["Calm"]

    run(work, tmp_path)


def test_a_storm_of_empty_pop_ups_is_a_fault(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        device = await site.shown('<button onclick="setInterval(()=>window.open(), 10)">Storm</button>')

        async def go_on() -> None:
            for _ in range(20):
                await tap(device, "Storm")

        with pytest.raises(DeviceLost, match="pop-ups") as lost:
            await go_on()
        assert lost.value.cause is LossCause.CRASH
        await device.restart()
        await device.start(WebSetup(url=site.write("calm.html", "<p>Calm</p>")))
        assert await texts(device) == ["Calm"]

    run(work, tmp_path)


def test_a_crashed_tab_a_hung_page_and_one_that_never_loads_cost_a_phone_and_no_other(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def work(site: Pages) -> None:
        device = await site.shown('<button onclick="for(;;);">Hang</button>')
        well = site.phone()
        await well.start(
            WebSetup(url=site.write("well.html", "<button onclick=\"this.textContent='fine'\">Well</button>"))
        )
        with pytest.raises(DeviceLost) as hung:
            await tap(device, "Hang")
        assert hung.value.cause is LossCause.LATE
        await device.restart()
        await device.start(WebSetup(url=site.write("page.html", "<p>Back</p>")))
        assert await texts(device) == ["Back"]
        await asyncio.gather(device.tab._call("Page.crash"), return_exceptions=True)
        with pytest.raises(DeviceLost, match="crashed"):
            await device.perform(Wait())
        await device.restart()
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        never = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        lonely = make_devices(WebConfig(allow=(never,), load_s=1.0), Fleet(owner="t", count=1, seed=0))[0]
        with pytest.raises(DeviceLost, match="within 1 s"):
            await lonely.start(WebSetup(url=f"{never}/x"))  # type: ignore[attr-defined]
        await lonely.close()
        server.close()
        await tap(well, "Well")
        assert await texts(well) == ["fine"]

    run(work, tmp_path, call_s=5.0, settle_s=0.5)


def test_a_killed_browser_is_replaced_and_nothing_is_held_against_its_phones(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        device = await site.shown("<p>Here</p>")
        other, first = site.phone(), site.browser.pid
        await other.start(WebSetup(url=site.write("page.html", "<p>There</p>")))
        os.killpg(first, signal.SIGKILL)
        for each in (device, other):
            with pytest.raises(DeviceLost) as lost:
                await each.perform(Wait())
            assert lost.value.cause is LossCause.SERVER
        await asyncio.gather(device.restart(), other.restart())
        assert site.browser.pid not in (0, first)
        assert site.browser.started == 2
        await device.start(WebSetup(url=site.write("page.html", "<p>Again</p>")))
        assert await texts(device) == ["Again"]

    run(work, tmp_path)


def test_phones_share_a_browser_and_no_cookies(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        url = site.write(
            "page.html",
            f"{SAID}<script>said.textContent='had ' + (localStorage.n || document.cookie);localStorage.n=1;document.cookie='c=1'</script>",
        )
        one, two = site.phone(), site.phone()
        await asyncio.gather(one.start(WebSetup(url=url)), two.start(WebSetup(url=url)))
        assert await texts(one) == await texts(two) == ["had"]
        await one.start(WebSetup(url=url))  # nor does the next task find what the last one left
        assert await texts(one) == ["had"]
        assert site.browser.started == 1

    run(work, tmp_path)


OWNER = """
import asyncio, sys
from distrl.config.schema import WebConfig
from distrl.devices.web.browser import Browser
from distrl.devices.web.chromium import Chromium
async def main():
    browser = await Chromium.start(WebConfig(), name="b")
    print(browser.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_no_browser_and_no_profile_is_left_after_a_kill_of_its_owner(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=env) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert len(group_of(pid)) > 2
        assert list(tmp_path.iterdir())
        os.kill(pid, signal.SIGSTOP)  # a browser that hangs does not end by itself either
        owner.kill()
    deadline_s = time.monotonic() + 60
    while (group_of(pid) or is_running(pid) or list(tmp_path.iterdir())) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert group_of(pid) == []
    assert list(tmp_path.iterdir()) == []


def test_without_chromium_the_error_says_what_to_install() -> None:
    with pytest.raises(DeviceError, match="is no program") as error:
        make_devices(WebConfig(chromium="/nowhere/chromium"), Fleet(owner="t", count=1, seed=0))
    assert "apt-get install" in str(error.value)
    assert error.value.exit_code == 3


PHONE = """
<div id="screen" style="height:300px"><p id="said">home</p><button data-trigger="open" id="open">Settings</button>
<label>Name<input id="name"></label></div>
<script>
const first = {os: {dark: false}, apps: {settings: {name: ""}}};
let state = structuredClone(first), app = "launcher", log = [];
const draw = () => { said.textContent = app + " " + JSON.stringify(state.apps.settings.name); };
const at = (x, y) => document.elementFromPoint(x, y);
window.__SIM__ = {
  getState: () => structuredClone(state), setState: async (patch) => { state = {...state, ...patch}; draw(); },
  resetState: async () => { state = structuredClone(first); draw(); }, waitForData: async () => true,
};
window.__OS__ = {
  goHome: () => { app = "launcher"; draw(); }, handleBack: () => { app = "launcher"; draw(); },
  getAppRoute: () => ({app, path: "/"}), openApp: (name) => { app = name; draw(); },
};
window.__SIM_INPUT__ = {
  tap: (x, y) => { log.push("tap"); const hit = at(x, y); hit.focus(); if (hit.id === "open") __OS__.openApp("settings"); },
  longPress: async (x, y) => { log.push("long"); }, enter: () => { log.push("enter"); },
  swipe: async (from, to) => { log.push(`swipe ${Math.round(from.x)} ${Math.round(to.y)}`); },
  type: async (text) => { state.apps.settings.name = text; document.getElementById("name").value = text; draw(); },
};
draw();
</script>
"""


def test_a_page_that_is_a_phone_is_driven_by_its_own_functions(tmp_path: Path) -> None:
    async def work(site: Pages) -> None:
        url = site.write("phone.html", PHONE)
        device = site.phone()
        await device.start(WebSetup(url=url, page="phone"))
        assert (await device.capture(screenshot=False)).app == "launcher"
        assert (await tap(device, "Settings")).changed
        assert (await device.capture(screenshot=False)).app == "settings"
        await device.perform(TypeText('O"Brien </script>'))
        assert (await device.tab.evaluate("__SIM__.getState().apps.settings.name", str)) == 'O"Brien </script>'
        await device.perform(Swipe(0.5, 0.5, 0.5, 0.25))
        await device.perform(LongPress(0.5, 0.5))
        await device.perform(Press("enter"))
        assert await device.tab.evaluate("log", list) == ["tap", "swipe 180 180", "long", "enter"]
        await device.perform(Press("back"))
        assert (await device.capture(screenshot=False)).app == "launcher"
        await device.start(WebSetup(url=url, page="phone"))  # back to its first state, without loading it anew
        assert await device.tab.evaluate("__SIM__.getState().apps.settings.name + log.length", str) == "4"

        bare = site.write("bare.html", "<p>no phone</p>")
        site.settings = WebConfig(allow=site.settings.allow, load_s=3.0)
        with pytest.raises(DeviceLost, match="has no __SIM_INPUT__"):
            await site.phone().start(WebSetup(url=bare, page="phone"))

    run(work, tmp_path)
