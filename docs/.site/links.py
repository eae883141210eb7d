"""Hooks of the documentation site: two pages from outside docs/, links that lead out of docs/, and what only unbuilt pages say.

The pages are written for whoever reads the repository, where `../CHANGELOG.md` is a file. The site has that file as a page of
its own; a link to any other file outside docs/ becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {"CHANGELOG.md": "changes.md", "examples/own_package/README.md": "own-package.md"}
"""Files of the repository that the site shows, and under which name."""
UNBUILT = re.compile(r"^In the repository this page is empty:.*\n+", re.MULTILINE)
"""What a page of the reference says until it is built."""
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for source, name in PAGES.items():
        text = (_root(config) / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_with_links(text, source, name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_rest: object) -> str:
    """Turn the links of a page that lead out of docs/; a page that is built needs no word on how to build it."""
    name, markdown = page.file.src_uri, UNBUILT.sub("", markdown)
    return markdown if name in PAGES.values() else _with_links(markdown, f"docs/{name}", name)


def _with_links(text: str, source: str, name: str) -> str:
    """`text`, written as the file `source` of the repository, as the page `name` of the site."""
    return LINK.sub(_turn(posixpath.dirname(source), posixpath.dirname(name)), text)


def _turn(written_in: str, shown_in: str) -> Callable[[re.Match[str]], str]:
    def turn(link: re.Match[str]) -> str:
        if ":" in link["target"]:
            return link[0]
        meant = posixpath.normpath(posixpath.join(written_in, link["target"]))
        page = PAGES.get(meant) or (meant.removeprefix("docs/") if meant.startswith("docs/") else "")
        if not page:
            return link["text"]
        target = posixpath.relpath(page, shown_in or ".")
        return f"{link['image']}[{link['text']}]({target}{link['anchor'] or ''})"

    return turn


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent
