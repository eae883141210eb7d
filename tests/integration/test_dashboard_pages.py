"""The pages in a real Chromium, over a stored run of 10,000 episodes: what they show, keys, filters, live changes, and hostile text."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import distrl
from distrl.bench.system.stored_run import write_stored_run
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder, take
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import Heartbeat
from distrl.telemetry.live import DeviceView, DeviceViews, FileScreens
from distrl.transport.files import FileHeartbeats
from distrl.types import Bounds, Ending, Observation, Tap, UiElement
from support.browser import Browser, Page, browser
from support.dashboards import Dashboard, dashboard, odd_numbers, write_hostile_run
from support.trajectories import make_trajectory

STORED = 10_000
PAGES = (
    "",
    "/fleet",
    "/episodes",
    "/episodes/episode-000777/2",
    "/learning",
    "/learning?by=template",
    "/health",
    "/settings",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def run(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_stored_run(tmp_path_factory.mktemp("runs"), STORED)


@pytest.fixture(scope="module")
def shown(run: RunFolder) -> Iterator[Dashboard]:
    write_stored_run(run.path.parent, 60, seed=1)
    with dashboard(run.path.parent) as found:
        yield found


@pytest.fixture
def page(chromium: Browser) -> Page:
    return chromium.page()


def open_page(page: Page, shown: Dashboard, run: RunFolder, rest: str) -> None:
    """Go to a page of the run, and wait until it is painted."""
    page.open(f"{shown.url}/runs/{run.name}{rest}")
    page.until("!!document.querySelector('main h1') && !document.querySelector('main .error')")


@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_every_page_shows_its_run_without_an_error_and_without_scrolling_sideways(
    chromium: Browser, shown: Dashboard, run: RunFolder, width: int, tmp_path: Path
) -> None:
    page = chromium.page(width=width, dark=width == 1280)
    for rest in PAGES:
        open_page(page, shown, run, rest)
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), f"{rest} is wider than {width} px"
        assert page.run("[...document.querySelectorAll('button, input, select, a')].every(e => e.innerText?.trim() || e.ariaLabel || e.title || e.closest('label') || e.querySelector('[aria-label]'))"), rest  # fmt: skip
    page.picture(tmp_path / f"{width}.png")
    assert page.errors == []


def test_the_runs_are_listed_and_two_can_be_compared(page: Page, shown: Dashboard, run: RunFolder) -> None:
    page.open(shown.url)
    page.until("document.querySelectorAll('.runcard').length === 2")
    assert page.text("main").count("success in training") == 2
    for number in (1, 2):
        page.click(f".runcard:nth-child({number}) input[type=checkbox]")
    page.click(".head button")
    page.until("location.pathname === '/compare' && document.querySelectorAll('.chart svg').length > 3")
    assert run.name in page.text()
    assert page.errors == []


def test_a_run_that_is_over_is_not_evaluated_any_more(page: Page, tmp_path: Path) -> None:
    distrl.record([make_trajectory("e1")], run__root=str(tmp_path))
    with dashboard(tmp_path) as shown:
        page.open(shown.url)
        page.until("!!document.querySelector('.runcard')")
        assert "not evaluated" in page.text(".runcard")
        assert "yet" not in page.text(".runcard")


def test_filters_find_episodes_and_stand_in_the_address(page: Page, shown: Dashboard, run: RunFolder) -> None:
    open_page(page, shown, run, "/episodes")
    page.until("document.querySelectorAll('a.row').length === 50")
    page.key("/")
    page.type("wrong person tanaka")
    fitting = "[...document.querySelectorAll('a.row')].every(row => /Tanaka/.test(row.innerText) && /wrong person/.test(row.innerText))"
    page.until(
        f"location.search.includes('wrong') && {fitting} && !/still reading/.test(document.querySelector('.head').innerText)"
    )
    assert page.run("document.querySelectorAll('a.row').length") > 3
    found = page.text(".head")
    open_page(page, shown, run, str(page.run("location.pathname + location.search")).partition(run.name)[2])
    page.until(f"document.querySelector('.head').innerText === {json.dumps(found)}")
    page.run(
        "(() => { const s = [...document.querySelectorAll('select')].find(e => [...e.options].some(o => o.value === 'success')); s.value = 'success'; s.dispatchEvent(new Event('change')); })()"
    )
    page.until("/No episode fits/.test(document.querySelector('main').innerText)")
    assert page.errors == []


def test_the_list_says_in_words_how_an_episode_ended(page: Page, shown: Dashboard, run: RunFolder) -> None:
    open_page(page, shown, run, "/episodes?ending=device_lost")
    page.until("document.querySelectorAll('a.row').length > 3")
    page.until(
        "[...document.querySelectorAll('a.row .why')].every(why => why.innerText.startsWith('the device was lost'))"
    )


def test_episodes_that_the_end_of_the_run_cut_off_are_no_failures(chromium: Browser, tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 40)
    with ExperienceStore(run.experience) as store:
        failed = next(one for row in store.after(0, 40) if (one := store.read(row.id)).verdict.outcome == "failure")
        cut = msgspec.structs.replace(failed, id="cut", ending=Ending.TIME_LIMIT, wall_s=2.0)
        store.add(cut)
    page = chromium.page()
    with dashboard(tmp_path) as shown:
        open_page(page, shown, run, "/episodes?outcome=failure")
        page.until("document.querySelectorAll('a.row').length > 3")
        page.until("!/still reading/.test(document.querySelector('.head').innerText)")
        chips = "[...document.querySelectorAll('a.row .chip')].map(chip => chip.innerText)"
        assert set(page.run(chips)) == {"failure"}
        page.run(
            "(() => { const s = [...document.querySelectorAll('select')].find(e => [...e.options].some(o => o.text === 'cut off')); s.value = 'cut_off'; s.dispatchEvent(new Event('change')); })()"
        )
        page.until(f"{chips}.join() === 'cut off'")
        page.click("a.row")
        page.until("/cut off.*by the end of the run/s.test(document.querySelector('.verdict')?.innerText)")
        assert page.errors == []


def test_an_episode_is_read_with_the_keyboard_and_each_step_has_its_address(
    page: Page, shown: Dashboard, run: RunFolder
) -> None:
    open_page(page, shown, run, "/episodes/episode-000777/1")
    steps = int(page.run("document.querySelectorAll('.steps a').length"))
    for number, key in ((2, "ArrowRight"), (1, "ArrowLeft"), (1, "Home")):
        page.key(key)
        page.until(
            f"location.pathname.endsWith('/episode-000777/{number}') && document.querySelector('.steps a[aria-current]').innerText.startsWith('{number}')"
        )
    page.key("End")
    page.until(f"/^({steps}|{steps + 1})$/.test(location.pathname.split('/').pop())")
    page.key("Home")
    page.key(" ")
    page.until("document.querySelector('.player').innerText.includes('Pause')")
    page.until("Number(location.pathname.split('/').pop()) > 1")
    page.key(" ")
    page.until("document.querySelector('.player').innerText.includes('Play')")
    page.key("j")
    page.until("document.querySelector('dl .mono')?.innerText === 'episode-000776'")
    page.key("k")
    page.until("document.querySelector('dl .mono')?.innerText === 'episode-000777'")
    assert page.errors == []


DRAWN = """
import('/static/screen.js').then(({ draw, light }) => {
  const said = [], write = CanvasRenderingContext2D.prototype.fillText, canvas = document.createElement('canvas');
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { said.push([text, x / this.canvas.width]); return write.call(this, text, x, y); };
  canvas.style.width = '400px';
  document.body.append(canvas);
  draw(canvas, { width_px: 160, height_px: 210, elements: ELEMENTS.map(light) }, { action: { type: 'tap', x: 0.85, y: 0.8 } });
  const inside = canvas.getContext('2d').getImageData(canvas.width * (0.85 + 12 / 360), canvas.height * 0.8, 1, 1).data;
  return JSON.stringify([said, [...inside].slice(0, 3)]);
})
"""


def test_of_a_tick_box_the_label_is_written_once_beside_it_and_a_ring_hides_nothing(
    page: Page, shown: Dashboard
) -> None:
    elements = (
        UiElement(bounds=Bounds(0.05, 0.1, 0.35, 0.15), text="kM", class_name="Label", clickable=True),
        UiElement(
            bounds=Bounds(0.08, 0.08, 0.18, 0.16), text="kM", class_name="CheckBox", clickable=True, checked=False
        ),
        UiElement(bounds=Bounds(0.05, 0.3, 0.55, 0.4), text="alone", class_name="CheckBox", checked=True),
        UiElement(bounds=Bounds(0.0, 0.7, 1.0, 0.9), text="Submit", clickable=True),
    )
    page.open(f"{shown.url}/nonsense")
    said, inside = json.loads(page.run(DRAWN.replace("ELEMENTS", msgspec.json.encode(elements).decode())))
    written = dict(said)
    assert [text for text, _ in said if text == "kM"] == ["kM"]
    assert 0.18 < written["kM"] < 0.35
    assert "alone" in written
    assert inside == [255, 255, 255]


def test_a_step_has_its_gesture_drawn_at_its_place(page: Page, shown: Dashboard, run: RunFolder) -> None:
    with ExperienceStore(run.experience, read_only=True) as store:
        episode = store.read("episode-000777")
    number, action = next(
        (n, s.decision.action) for n, s in enumerate(episode.steps, 1) if isinstance(s.decision.action, Tap)
    )
    open_page(page, shown, run, f"/episodes/episode-000777/{number}")
    inked = (
        f"(() => {{ const c = document.querySelector('.phone canvas'), x = Math.round(c.width * {action.x}), y = Math.round(c.height * {action.y});"
        "return [...c.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3).join(); })()"
    )
    page.until(f"{inked} === '213,94,0'")
    page.theme(dark=True)
    page.until(f"{inked} === '255,148,66'")


def test_the_phone_grows_and_shrinks_with_the_window(page: Page, shown: Dashboard, run: RunFolder) -> None:
    height = "document.querySelector('.phone canvas').clientHeight"
    page.resize(390, 600)
    open_page(page, shown, run, "/episodes/episode-000777/1")
    page.until(f"{height} > 200")
    small = page.run(height)
    page.resize(1280, 1200)
    page.until(f"{height} > 1.5 * {small}")
    page.resize(390, 600)
    page.until(f"{height} === {small}")
    page.resize(1280, 900)


def test_a_step_is_shown_among_its_runners_up(page: Page, shown: Dashboard, run: RunFolder) -> None:
    with ExperienceStore(run.experience, read_only=True) as store:
        decision = store.read("episode-000777").steps[0].decision
    open_page(page, shown, run, "/episodes/episode-000777/1")
    page.until(f"document.querySelectorAll('.choices li').length === {1 + len(decision.runners_up)}")
    rows = page.run("[...document.querySelectorAll('.choices li')].map(row => row.innerText)")
    assert isinstance(rows, list)
    assert "chosen" in rows[0]
    assert f"{math.exp(decision.logp):.0%}".replace("%", " %") in rows[0]
    assert "20 %" in rows[1]
    assert "10 %" in rows[2]
    page.key("End")
    page.until(
        "document.querySelectorAll('.choices li').length !== 0 || /after the last step/.test(document.querySelector('.caption').innerText)"
    )
    assert page.errors == []


def test_charts_are_read_with_the_arrow_keys(page: Page, shown: Dashboard, run: RunFolder) -> None:
    open_page(page, shown, run, "/learning")
    page.until("document.querySelectorAll('.chart svg').length > 8")
    page.run("document.querySelector('.chart svg').focus()")
    page.key("End")
    page.until("/%/.test(document.querySelector('.reading').innerText)")
    last = page.text(".reading")
    page.key("ArrowLeft")
    page.until(f"document.querySelector('.reading').innerText !== {json.dumps(last)}")
    assert page.errors == []


def test_success_of_each_template_has_its_band(page: Page, shown: Dashboard, run: RunFolder) -> None:
    open_page(page, shown, run, "/learning?by=template")
    page.until("document.querySelectorAll('.small').length > 3")
    assert page.run("[...document.querySelectorAll('.small')].every(one => one.querySelectorAll('path').length === 2 && one.querySelector('path.band'))")  # fmt: skip
    assert page.run("[...document.querySelectorAll('.small .value')].every(one => /^[0-9]+ % .[0-9]+, [0-9]+. · /.test(one.innerText))")  # fmt: skip
    assert page.errors == []


def test_logs_are_searched(page: Page, shown: Dashboard, run: RunFolder) -> None:
    open_page(page, shown, run, "/health")
    page.key("/")
    page.type("SIGKILL")
    page.until(
        "document.querySelectorAll('.log div').length === 1 && /killed by SIGKILL/.test(document.querySelector('.log').innerText)"
    )
    assert page.errors == []


# --- a run that goes on -----------------------------------------------------------------------------------------------


def _view(number: int, step: int, says: str = "") -> DeviceView:
    element = UiElement(bounds=Bounds(0.1, 0.2, 0.9, 0.3), text="Send", clickable=True)
    seen = Observation(instruction="Send it", elements=(element,), width_px=360, height_px=720, app="mail")
    return DeviceView(
        device=f"worker-0/phone-{number}", role="worker-0", state="playing", task="sim-start/train/1", template="mail", instruction=says or f"Send it {step}",
        max_steps=12, step=step, version=3, action=Tap(0.5, 0.25), seen=seen,
    )  # fmt: skip


def test_pages_follow_a_run_and_find_back_after_the_server_was_gone(chromium: Browser, tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 30)
    screens = FileScreens(run.heartbeats, "worker-0")
    screens.show(DeviceViews(time_s=time.time(), devices=tuple(_view(number, 1) for number in range(300))))
    lock = take(run.lock("supervisor"), wait_s=1, what="it")
    first, fleet = Dashboard(tmp_path), chromium.page()
    list_page = chromium.page()
    try:
        open_page(fleet, first, run, "/fleet")
        fleet.until("document.querySelectorAll('.tile').length === 300")
        open_page(list_page, first, run, "/episodes")
        list_page.until(
            "document.querySelectorAll('a.row').length === 30 && /live/.test(document.querySelector('#state').innerText)"
        )
        screens.show(DeviceViews(time_s=time.time(), devices=tuple(_view(number, 2) for number in range(12))))
        fleet.until(
            "document.querySelectorAll('.tile').length === 12 && /Send it 2/.test(document.querySelector('.tile').innerText)"
        )
        fleet.click(".tile")
        fleet.until("document.querySelector('dialog[open]')?.innerText.includes('Send it 2')")
        fleet.run("window.pressed = document.querySelector('dialog .buttons button'); pressed.focus()")
        screens.show(
            DeviceViews(time_s=time.time(), devices=tuple(_view(number, 3, "Send it 2") for number in range(12)))
        )
        fleet.until("/3 of at most 12/.test(document.querySelector('dialog[open]').innerText)")
        assert fleet.run("document.activeElement === pressed && pressed.isConnected")
        fleet.run("document.querySelector('.did li button').click()")
        fleet.until("/that of step 2/.test(document.querySelector('dialog').innerText)")
        fleet.run("document.querySelector('.did li button').click()")
        fleet.until("/Press a step/.test(document.querySelector('dialog').innerText)")
        fleet.run("document.querySelector('dialog').close()")
        assert fleet.errors == []

        first.stop()
        list_page.until("/connecting/.test(document.querySelector('#state').innerText)")
        with ExperienceStore(run.experience) as store:
            store.add(msgspec.structs.replace(store.read("episode-000003"), id="later"))
        with dashboard(tmp_path, port=first.port):
            list_page.until(
                "/31 episodes/.test(document.querySelector('#state').innerText) && document.querySelectorAll('a.row').length === 31"
            )
            screens.show(DeviceViews(time_s=time.time(), devices=(_view(5, 7),)))
            fleet.until(
                "document.querySelectorAll('.tile').length === 1 && /Send it 7/.test(document.querySelector('.tile').innerText)"
            )
    finally:
        first.stop()
        lock.release()


def test_a_page_that_was_asked_for_while_the_server_was_gone_comes_by_itself(chromium: Browser, tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    first, page = Dashboard(tmp_path), chromium.page()
    try:
        open_page(page, first, run, "/learning")
        page.until("performance.getEntriesByType('resource').some(one => one.name.endsWith('/settings.js'))")
        first.stop()
        page.run("document.querySelector('nav a[href$=settings]').click()")
        page.until("/does not answer/.test(document.querySelector('main').innerText)")
    finally:
        first.stop()
    with dashboard(tmp_path, port=first.port):
        page.until(
            "!document.querySelector('main .error') && /devices busy/.test(document.querySelector('main').innerText)"
        )


def test_every_page_of_a_live_run_follows_it_and_says_when_it_has_ended(chromium: Browser, tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 30)
    beats = FileHeartbeats(run.heartbeats)
    beats.beat(Heartbeat(role="evaluator", pid=0, phase="doing", what="evaluating", since_s=0.0, beat_s=0.0))
    lock = take(run.lock("supervisor"), wait_s=1, what="it")
    rests = ("/fleet", "/learning", "/health", "/settings", "/episodes/episode-000029/1")
    pages = {rest: chromium.page() for rest in rests}
    try:
        with dashboard(tmp_path) as shown:
            for rest, page in pages.items():
                open_page(page, shown, run, rest)
            runs = chromium.page()
            runs.open(shown.url)
            runs.until("/live/.test(document.querySelector('.runcard')?.innerText)")
            with ExperienceStore(run.experience) as store:
                store.add(msgspec.structs.replace(store.read("episode-000003"), id="later"))
            log = EventLog(run.log("worker-0"))
            log.write("notice", text="the phones are warm")
            pages["/settings"].until("/31\\s+episodes/.test(document.querySelector('.figures').innerText)")
            pages["/health"].until("/the phones are warm/.test(document.querySelector('.cols').innerText)")
            pages["/health"].until("/the phones are warm/.test(document.querySelector('.log').innerText)")
            pages["/episodes/episode-000029/1"].until("!!document.querySelector('.tools a[href$=later]')")
            runs.until("/31 ep/.test(document.querySelector('.runcard').innerText)")
            lock.release()
            pages["/health"].until("/the run is over/.test(document.querySelector('.head').innerText)")
            pages["/health"].until(
                "/evaluator\\s+was doing\\s+evaluating/.test(document.querySelector('table').innerText)"
            )
            pages["/fleet"].until("/the run is over/.test(document.querySelector('.head').innerText)")
            pages["/settings"].until("/stopped/.test(document.querySelector('.head').innerText)")
            runs.until("/stopped/.test(document.querySelector('.runcard').innerText)")
            assert [page.errors for page in (*pages.values(), runs)] == [[]] * 6
    finally:
        with suppress(ValueError):  # it is over already
            lock.release()


# --- bad input --------------------------------------------------------------------------------------------------------


def test_text_of_devices_and_models_stays_text(chromium: Browser, tmp_path: Path) -> None:
    run = write_hostile_run(tmp_path)
    page = chromium.page()
    with dashboard(tmp_path) as shown:
        page.open(shown.url)
        page.until("!!document.querySelector('.runcard a')")
        address = str(page.run("document.querySelector('.runcard a').getAttribute('href')")).removesuffix("/settings")
        for rest in (
            "/fleet",
            "/episodes",
            "/episodes/hostile/1",
            "/learning",
            "/learning?by=template",
            "/health",
            "/settings",
        ):
            page.open(f"{shown.url}{address}{rest}")
            page.until("!!document.querySelector('main h1') && !document.querySelector('main .error')")
            assert page.run("document.querySelectorAll('main script, main img, main iframe').length") == 0, rest
            assert page.run("window.hacked") is None, rest
        page.open(f"{shown.url}{address}/episodes/hostile/1")
        page.until("document.querySelector('main')?.innerText.includes('<script>window.hacked=1</script>')")
        assert page.errors == []
    assert run.path.exists()


def test_what_is_not_there_is_said_on_the_page(chromium: Browser, shown: Dashboard, run: RunFolder) -> None:
    page = chromium.page()
    for rest, said in (
        ("/runs/no-such-run/episodes", "there is no run"),
        (f"/runs/{run.name}/episodes/nothing", "there is no episode"),
        ("/nonsense", "no such page"),
        ("/runs/%ff/episodes", "no such page"),
    ):
        page.open(f"{shown.url}{rest}")
        page.until(f"/{said}/i.test(document.querySelector('main').innerText)")


def test_a_damaged_episode_is_named_and_costs_no_other(chromium: Browser, tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    next(run.experience.glob("episodes/*/episode-000004.ep")).write_bytes(b"damaged")
    page = chromium.page()
    with dashboard(run.path) as shown:
        open_page(page, shown, run, "/episodes")
        page.until("document.querySelectorAll('a.row').length === 8")
        page.open(f"{shown.url}/runs/{run.name}/episodes/episode-000004")
        page.until("/cannot be used/.test(document.querySelector('.error')?.innerText)")
        open_page(page, shown, run, "/episodes/episode-000005")


def test_an_episode_whose_numbers_are_nan_is_shown(chromium: Browser, tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 8)
    odd_numbers(run)
    page = chromium.page()
    with dashboard(tmp_path) as shown:
        open_page(page, shown, run, "/episodes/odd/1")
        page.until("/tap at no place/.test(document.querySelector('.caption').innerText)")
        page.key("End")
        page.until("!document.querySelector('.steps a').hasAttribute('aria-current')")
        for rest in ("/episodes", "/learning"):
            open_page(page, shown, run, rest)
        assert page.errors == []
        next(run.experience.glob("index.sqlite")).write_bytes(b"damaged" * 1000)
        page.until("/cannot be read/.test(document.querySelector('#state').innerText)")


# --- manners ----------------------------------------------------------------------------------------------------------


HIDE = "(() => {{ Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {hidden} }}); document.dispatchEvent(new Event('visibilitychange')); }})()"


def test_a_page_that_nobody_sees_asks_for_nothing_and_catches_up_when_it_is_seen(
    chromium: Browser, tmp_path: Path
) -> None:
    run = write_stored_run(tmp_path, 30)
    hidden, seen = chromium.page(), chromium.page()
    with dashboard(tmp_path) as shown:
        for page in (hidden, seen):
            open_page(page, shown, run, "/episodes")
            page.until("/30 episodes/.test(document.querySelector('#state').innerText)")
        hidden.run(HIDE.format(hidden="true"))
        with ExperienceStore(run.experience) as store:
            store.add(msgspec.structs.replace(store.read("episode-000003"), id="later"))
        seen.until("/31 episodes/.test(document.querySelector('#state').innerText)")
        seen.until("document.querySelectorAll('a.row').length === 31")
        assert hidden.run("document.querySelectorAll('a.row').length") == 30
        assert "30 episodes" in hidden.text("#state")
        hidden.run(HIDE.format(hidden="false"))
        hidden.until("document.querySelectorAll('a.row').length === 31")
        assert hidden.errors == []


def go_by_keys(page: Page, keys: str, rest: str) -> bool:
    """Press keys; whether the page has gone to where they lead."""
    for key in keys:
        page.key(key)
    return bool(page.run(f"location.pathname.endsWith('{rest}')"))


def test_the_keyboard_goes_on_where_a_link_has_led(chromium: Browser, tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 30)
    page = chromium.page()
    with dashboard(tmp_path) as shown:
        open_page(page, shown, run, "/episodes")
        page.run("document.querySelector('.skip').focus()")
        page.run("document.querySelector('a.row').dataset.mark = 'kept'")
        page.key("Enter")
        page.until("location.hash === '#main' && document.activeElement.id === 'main'")
        assert page.run("document.querySelector('a.row').dataset.mark") == "kept"
        page.run("document.querySelector('nav a[href$=learning]').focus()")
        page.key("Enter")
        page.until("location.pathname.endsWith('/learning') && document.activeElement.id === 'main'")
        page.run("history.back()")
        page.until("location.pathname.endsWith('/episodes') && !!document.querySelector('a.row')")
        page.until_python(
            lambda: go_by_keys(page, "gs", "/settings")
        )  # on a slow machine, two keys are not always one after the other
        assert page.errors == []


def test_the_devices_of_many_workers_are_compared_by_their_mean(chromium: Browser, tmp_path: Path) -> None:
    runs = [write_stored_run(tmp_path, 20, seed=seed) for seed in (0, 1)]
    for run in runs:
        with run.metrics.open("ab") as file:
            for at in range(30):
                line = {"time_s": 2e9 + at, "event": "worker", "role": f"worker-{at % 5}", "worker/invalid/share": 0.2}
                file.write(msgspec.json.encode(line) + b"\n")
    page = chromium.page()
    with dashboard(tmp_path) as shown:
        page.open(f"{shown.url}/compare?a={runs[0].name}&b={runs[1].name}")
        panel = "[...document.querySelectorAll('.chart')].find(one => one.ariaLabel === 'Refused steps')"
        page.until(f"{panel}?.querySelectorAll('path.line').length === 2")
        assert "A mean 20.0 %" in page.run(f"{panel}.innerText")
        page.open(f"{shown.url}/compare?a={runs[0].name}")
        page.until("/Tick two/.test(document.querySelector('.error')?.innerText)")
        assert page.errors == []
