"""TiddlyWiki's own server: notes are set up in its page, which saves them, and its REST interface tells what was saved.

Table `notes`, by title: `text` and `tags`. Drafts, and notes of the system, are none.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from distrl.devices.web.apps.base import Record, Tables
from distrl.devices.web.apps.packages import NODE, package_folder
from distrl.devices.web.apps.server import POLL_S, Server, same_ports
from distrl.devices.web.tab import Tab, Thrown, origin_of
from distrl.errors import DeviceLost, LossCause

TABLE = "notes"
FIRST = "Welcome"
"""The note that is open at the start."""
BASE = {
    "$:/DefaultTiddlers": FIRST,
    "$:/SiteTitle": "Notebook",
    "$:/SiteSubtitle": "notes of one person",
    FIRST: "These are your notes.",
}
INFO = {
    "plugins": ["tiddlywiki/tiddlyweb", "tiddlywiki/filesystem"],
    "themes": ["tiddlywiki/vanilla", "tiddlywiki/snowwhite"],
}
LIST = "/recipes/default/tiddlers.json?exclude=revision"
SAVED_S = 30.0
SAVED = "!globalThis.$tw || !$tw.syncer || !$tw.syncer.isDirty()"
SET_UP = """
(async (notes, base) => {
  const all = () => $tw.wiki.filterTiddlers("[all[tiddlers]!has[plugin-type]]");
  const kept = globalThis.__distrl_wiki ||= new Map(all().map((title) => [title, $tw.wiki.getTiddler(title)]));
  for (const title of all()) if (!kept.has(title) || title === "$:/StoryList") $tw.wiki.deleteTiddler(title);
  for (const [title, tiddler] of kept) {
    const now = $tw.wiki.getTiddler(title);
    if (title !== "$:/StoryList" && (!now || !now.isEqual(tiddler, ["created", "modified", "bag", "revision"]))) $tw.wiki.addTiddler(tiddler);
  }
  for (const [title, fields] of Object.entries(notes)) $tw.wiki.addTiddler({title, modified: "20260105120000000", created: "20260105120000000", ...fields});
  $tw.wiki.addTiddler({title: "$:/StoryList", text: "", list: [base]});
  scrollTo(0, 0);
  await new Promise((done) => setTimeout(done, 50));  // what is to be saved is noted a moment later
  return true;
})
"""


class Wiki:
    """The wiki of one phone."""

    name, size = "wiki", (0, 0)

    def __init__(self, folder: Path, phone: str) -> None:
        self._program, self._phone = package_folder(folder, self.name) / "tiddlywiki.js", phone
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
        """Start it with the notes that it always has."""
        choose = same_ports(self._server)
        await self.close()
        self._server = await Server.start(f"wiki of {self._phone}", self._words, says="Serving on", choose=choose)

    def _words(self, folder: Path, ports: tuple[int, ...]) -> list[str]:
        notes = folder / "wiki" / "tiddlers"
        notes.mkdir(parents=True)
        (notes.parent / "tiddlywiki.info").write_text(json.dumps(INFO))
        for number, (title, text) in enumerate(BASE.items()):
            (notes / f"{number}.tid").write_text(f"title: {title}\n\n{text}")
        return [NODE, str(self._program), str(notes.parent), "--listen", "host=127.0.0.1", f"port={ports[0]}"]

    async def begin(self, tab: Tab, records: Tables) -> None:
        """Bring the open page's whole store back to what it was when it was loaded, with these notes, and have it saved."""
        server = self._running()
        if origin_of(tab.url) != server.origin:
            await tab.forget(server.origin)
            await tab.go(f"{server.origin}/")
        notes = json.dumps(records.get(TABLE, {}))
        try:
            await tab.evaluate(f"{SET_UP}({notes}, {json.dumps(FIRST)})", bool)
        except Thrown as error:
            raise DeviceLost(f"the page of {server.name} takes no notes: {error.seen}") from None

    async def home(self, tab: Tab) -> None:
        """Its first page."""
        await tab.go(f"{self.allowed}/")

    async def rebuild(self, tab: Tab) -> None:
        """Start it anew in an empty folder, and load its page."""
        await self.serve()
        await tab.forget(self.allowed)
        await tab.go(f"{self.allowed}/")

    async def read(self, tab: Tab) -> Tables:
        """What it has saved, once the page has nothing left to save."""
        server = self._running()
        await self._until_saved(tab)
        notes: dict[str, Record] = {}
        for each in await server.ask("GET", LIST):
            title, text = str(each["title"]), str(each.get("text", ""))
            if "draft.of" not in each and (title, text) != (FIRST, BASE[FIRST]):
                notes[title] = {"text": text, "tags": str(each.get("tags", ""))}
        return {TABLE: notes}

    async def _until_saved(self, tab: Tab) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SAVED_S
        while not await tab.evaluate(SAVED, bool):
            if loop.time() > until_s:
                raise DeviceLost(
                    f"the page of wiki of {self._phone} did not save within {SAVED_S:g} s", cause=LossCause.LATE
                )
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """End it."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _running(self) -> Server:
        if self._server is None or not self._server.alive:
            raise DeviceLost(f"wiki of {self._phone} does not run", cause=LossCause.SERVER)
        return self._server
