"""The routes of the dashboard: pages, and JSON about runs.

Every answer is made in a thread beside the event loop, under the lock of its run, so that a slow disk holds up nobody else.
What is asked for is looked up by name in what the dashboard has listed: no path of a request ever becomes a path on the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TypeVar, get_args

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from distrl import __version__
from distrl.config.load import dump_toml
from distrl.config.schema import Config
from distrl.dashboard import episode_page, figures, prometheus
from distrl.dashboard.catalogue import EpisodeFilter
from distrl.dashboard.fleet import Tile, changed
from distrl.dashboard.health import health_of, lines_of
from distrl.dashboard.run_list import OpenRun, RunList
from distrl.dashboard.security import Access, Guard
from distrl.dashboard.teleoperation import Attempts, offers_tasks_by_id
from distrl.dashboard.teleoperation_routes import Act, Begin, TeleoperationRoutes
from distrl.errors import DistrlError, StoreError, UsageError, closest
from distrl.evaluation.report import Report
from distrl.runtime.summary import Summary
from distrl.telemetry.heartbeat import Heartbeat
from distrl.telemetry.live import DeviceViews
from distrl.transport.base import BudgetUsed, IndexRow, StoreStats
from distrl.types import Trajectory

T = TypeVar("T")
Answer = Callable[[Request], Awaitable[Response]]

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LOOK_EVERY_S = 1.0
"""Between two looks for something new to send."""
SEARCH_S, LOOK_S = 0.35, 0.1
"""How long a request may read episode files: one that searches in them, and one that does not."""
SWEEP_S = 30.0
"""Between two looks for attempts by hand that nobody uses any more."""
DAMAGE = (DistrlError, OSError, ValueError, TypeError, LookupError, ArithmeticError)
"""What comes of files that are damaged, in a way that is known or in one that is not."""
DECODED = (
    Trajectory,
    DeviceViews,
    Summary,
    Report,
    Heartbeat,
    BudgetUsed,
    IndexRow,
    StoreStats,
    Config,
    EpisodeFilter,
    Begin,
    Act,
)
"""Read while answering. Each is worked out by msgspec at its first use, which ends the process where two threads do so at once (seen with 0.22)."""
MOST_ENTRIES = 200
MOST_LETTERS = 4000
"""Of a query."""


def make_app(place: Path, access: Access, attempts: Attempts | None = None) -> ASGIApp:
    """The dashboard of a folder of runs, or of one run, and of the attempts by hand that go on; None: there are none yet."""
    for kind in DECODED:
        msgspec.msgpack.Decoder(kind)
    listed = RunList(place)
    playing = attempts or Attempts(place.resolve().parent if listed.single else place)
    pages = _Pages(listed)
    routes = [
        *TeleoperationRoutes(listed, playing).routes(),
        Route("/api/runs", pages.runs),
        Route("/api/runs/{run}", pages.overview),
        Route("/api/runs/{run}/fleet", pages.fleet),
        Route("/api/runs/{run}/fleet/picture", pages.device_picture),
        Route("/api/runs/{run}/episodes", pages.episodes),
        Route("/api/runs/{run}/choices", pages.choices),
        Route("/api/runs/{run}/episodes/{id}", pages.episode),
        Route("/api/runs/{run}/frames/{reference}", pages.frame),
        Route("/api/runs/{run}/learning", pages.learning),
        Route("/api/runs/{run}/health", pages.health),
        Route("/api/runs/{run}/logs", pages.logs),
        Route("/api/runs/{run}/stream", pages.stream),
        Route("/api/{rest:path}", _nothing),
        Route("/metrics", pages.prometheus),
        Route("/static/{name:path}", _static),
        Route("/{rest:path}", _index),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(playing), name="attempts that nobody uses")
        yield
        sweeping.cancel()
        await _aside(playing.close)

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={DistrlError: _told, OSError: _told_disk, Exception: _told_mistake},
    )
    return Guard(app, access)


async def _sweep(attempts: Attempts) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        await _aside(attempts.leave_idle)


class _Pages:
    """Answers about the runs of a list."""

    def __init__(self, runs: RunList) -> None:
        self._listed = runs

    async def runs(self, request: Request) -> Response:
        """All of them, the newest first."""
        cards = await _aside(self._listed.cards)
        return _json({"runs": cards, "single": self._listed.single, "version": __version__})

    async def overview(self, request: Request) -> Response:
        """Settings, environment, status and summary of one."""
        return await self._answer(request, _overview)

    async def fleet(self, request: Request) -> Response:
        """Its devices."""
        return await self._answer(request, _fleet)

    async def device_picture(self, request: Request) -> Response:
        """The newest picture of one device."""
        opened = await self._open(request)
        return _picture(opened.fleet.picture(request.query_params.get("device", "")))

    async def episodes(self, request: Request) -> Response:
        """Those that fit a filter."""
        wanted = parse_filter(request.query_params)
        budget_s = SEARCH_S if wanted.needs_details else LOOK_S
        return await self._answer(request, lambda opened: opened.catalogue.find(wanted, budget_s=budget_s))

    async def choices(self, request: Request) -> Response:
        """What episodes can be filtered by."""
        return await self._answer(request, lambda opened: opened.catalogue.choices())

    async def episode(self, request: Request) -> Response:
        """One, step by step."""
        return await self._answer(request, partial(_episode, id=request.path_params["id"]))

    async def frame(self, request: Request) -> Response:
        """A stored screenshot."""
        opened = await self._open(request)
        picture = await _aside(opened.run.frame, request.path_params["reference"])
        answer = _picture(picture)
        answer.headers["Cache-Control"] = "private, max-age=86400, immutable"  # the name is the hash of the content
        return answer

    async def learning(self, request: Request) -> Response:
        """All charts."""
        group = request.query_params.get("by", "all")
        if group not in get_args(figures.Group):
            raise UsageError(f"by={group[:40]} is not known", expected=", ".join(get_args(figures.Group)))
        return await self._answer(request, lambda opened: {"charts": figures.charts_of(opened, group), "num_unread": opened.catalogue.read_details(LOOK_S)})  # type: ignore[arg-type]  # fmt: skip

    async def health(self, request: Request) -> Response:
        """Roles, queues, causes, notices."""
        return await self._answer(request, health_of)

    async def logs(self, request: Request) -> Response:
        """Lines of the logs that hold some words."""
        role, text = request.query_params.get("role", ""), request.query_params.get("text", "")[:MOST_LETTERS]
        return await self._answer(request, lambda opened: {"lines": lines_of(opened.run, role, text)})

    async def prometheus(self, request: Request) -> Response:
        """The newest figures of all live runs."""
        return PlainTextResponse(await _aside(prometheus.exposition, self._listed), media_type=prometheus.MEDIA_TYPE)

    async def stream(self, request: Request) -> Response:
        """What changes, as server-sent events."""
        opened = await self._open(request)
        wants_fleet = request.query_params.get("fleet") == "1"
        return StreamingResponse(_events(opened, wants_fleet), media_type="text/event-stream")

    async def _open(self, request: Request) -> OpenRun:
        return await _aside(self._listed.open, request.path_params["run"])

    async def _answer(self, request: Request, ask: Callable[[OpenRun], object]) -> Response:
        opened = await self._open(request)

        def work() -> object:
            with opened.lock:
                opened.refresh()
                return ask(opened)

        return _json(await _aside(work))


async def _aside(work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.to_thread(work, *arguments)


# --- what is answered -------------------------------------------------------------------------------------------------


def _overview(opened: OpenRun) -> object:
    run = opened.run
    return {
        "name": run.name,
        "live": opened.live,
        "status": opened.status(),
        "summary": _or_none(lambda: run.summary),
        "config": dump_toml(run.config),
        "environment": episode_page.environment_of(run),
        "episodes": len(opened.catalogue.entries),
        "first_s": opened.metrics.first_s,
    }


def _fleet(opened: OpenRun) -> object:
    heard_s, tiles = opened.fleet.tiles()
    try:
        by_hand = offers_tasks_by_id(opened.run.config)
    except DAMAGE:  # of the settings: the devices can be seen all the same
        by_hand = False
    return {"heard_s": heard_s, "devices": tiles, "by_hand": by_hand}


def _or_none(ask: Callable[[], T]) -> T | None:
    """What comes of it; None where its file is damaged, which the status of the run tells of."""
    try:
        return ask()
    except StoreError:
        return None


def _episode(opened: OpenRun, id: str) -> object:
    entry = opened.catalogue.entry(id)
    if entry is None:
        raise StoreError(f"there is no episode {id[:130]!r}", expected="an episode of the list")
    newest = opened.versions.at(entry.created_s)
    return episode_page.show(opened.run, entry, opened.catalogue.neighbours(entry), newest)


def parse_filter(query: Mapping[str, str]) -> EpisodeFilter:
    """The filter that a query names; `UsageError` where it is none."""
    given = {name: value[:MOST_LETTERS] for name, value in query.items() if value}
    unknown = [name for name in given if name not in EpisodeFilter.__struct_fields__]
    if unknown:
        raise UsageError(
            f"{unknown[0][:40]!r} is no filter", expected=closest(unknown[0][:40], EpisodeFilter.__struct_fields__)
        )
    if given.get("source") == "any":
        given["source"] = ""
    try:
        wanted = msgspec.convert(given, EpisodeFilter, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"this filter does not fit: {error}", expected="numbers where numbers belong") from None
    return msgspec.structs.replace(wanted, limit=min(MOST_ENTRIES, max(1, wanted.limit)))


# --- what changes -----------------------------------------------------------------------------------------------------


class _Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What every page wants to know of a run: whether it lives, and what is newer than what the page has."""

    live: bool
    phase: str
    episodes: int
    last_seq: int
    metrics_s: float
    version: int


async def _events(opened: OpenRun, wants_fleet: bool) -> AsyncIterator[bytes]:
    """Events until whoever listens goes; where nothing changes, a comment that keeps the connection."""
    pulse: _Pulse | None = None
    sent: dict[str, int] = {}
    told_s, quiet = 0.0, 0
    yield b"retry: 1000\n\n"
    while True:
        try:
            now, tiles, heard_s = await _aside(_look, opened, wants_fleet)
        except DAMAGE as error:  # a browser would only ask again at once, and for ever
            yield _event("trouble", {"text": _encodable(_why(error)).splitlines()[0]})
            pulse, sent, told_s = None, {}, 0.0
            await asyncio.sleep(5 * LOOK_EVERY_S)
            continue
        fresh, sent_now = changed(tiles, sent)
        others = list(sent_now) != list(sent)
        moved = bool(fresh) or others or heard_s != told_s
        said = now != pulse or moved
        if now != pulse:
            yield _event("pulse", now)
        if moved:
            yield _event("fleet", {"heard_s": heard_s, "devices": fresh, "names": list(sent_now) if others else None})
        pulse, sent, told_s = now, sent_now, heard_s
        quiet = 0 if said else quiet + 1
        if quiet >= 10:
            quiet = 0
            yield b": still here\n\n"
        await asyncio.sleep(LOOK_EVERY_S)


def _look(opened: OpenRun, wants_fleet: bool) -> tuple[_Pulse, list[Tile], float]:
    with opened.lock:
        opened.refresh()
        entries = opened.catalogue.entries
        learner = opened.metrics.last.get("learner", {})
        pulse = _Pulse(
            live=opened.live,
            phase=opened.state,
            episodes=opened.catalogue.num_played,
            last_seq=entries[-1].seq if entries else 0,
            metrics_s=opened.metrics.last_s,
            version=int(learner.get("learner/version", -1)),
        )
        heard_s, tiles = opened.fleet.tiles() if wants_fleet else (0.0, [])
        return pulse, tiles, heard_s


def _event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


# --- files and errors -------------------------------------------------------------------------------------------------


def _json(found: object) -> Response:
    return Response(msgspec.json.encode(found), media_type="application/json")


def _picture(picture: bytes) -> Response:
    """A picture as what its first bytes say that it is; anything else is no picture, and nothing a browser would open."""
    if not picture:
        return PlainTextResponse("no picture\n", status_code=404)
    if picture.startswith(b"\xff\xd8"):
        return Response(picture, media_type="image/jpeg")
    return Response(picture, media_type="image/png" if picture.startswith(b"\x89PNG") else "application/octet-stream")


STATIC = files("distrl.dashboard") / "static"


def _static_files() -> dict[str, bytes]:
    """All files of the pages by name: what is not among them does not exist."""
    found = {}
    for folder in ("", "pages/"):
        for file in (STATIC / folder).iterdir() if folder else STATIC.iterdir():
            if file.is_file() and Path(file.name).suffix in TYPES:
                found[f"{folder}{file.name}"] = file.read_bytes()
    return found


_FILES = _static_files()


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    content = _FILES.get(name)
    if content is None:
        return PlainTextResponse("no such file\n", status_code=404)
    return Response(content, media_type=TYPES[Path(name).suffix])


async def _index(_: Request) -> Response:
    return Response(_FILES["index.html"], media_type="text/html")


async def _nothing(_: Request) -> Response:
    return _refuse("there is nothing at this address", 404)


def _refuse(text: str, status: int) -> Response:
    return Response(msgspec.json.encode({"error": _encodable(text)}), status_code=status, media_type="application/json")


def _encodable(text: str) -> str:
    """Without what JSON cannot hold, such as bytes of a file name that are no letters."""
    return text.encode("utf-8", "replace").decode("utf-8") or "no reason was given"


def _why(error: Exception) -> str:
    if isinstance(error, DistrlError):
        return str(error)
    if isinstance(error, OSError):
        return f"a file of this run cannot be read: {error}"
    return f"the dashboard could not work this out: {type(error).__name__}: {error}\nThe traceback is where `distrl view` was started, or in logs/view.out of the run."


async def _told(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, StoreError) else 400
    return _refuse(_why(error), status)


async def _told_disk(_: Request, error: Exception) -> Response:
    return _refuse(_why(error), 404)


async def _told_mistake(_: Request, error: Exception) -> Response:
    return _refuse(_why(error), 500)
