"""The pages of the documentation: their fenced blocks and the commands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(EXAMPLES.rglob("README.md"))]
SHELL = ("bash", "sh", "shell", "console")
UNLABELLED = re.compile(r"(?:\S*/)?(?:distrl|make|pip|python|docker|git) ")
"""How a block without a language begins where it holds commands."""
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE
)
INDENTED = re.compile(r"(?<=\n\n)(?P<text>(?: {4}[^\n]*\n)+)")
"""A block without fences."""
SPAN = re.compile(r"(?<!`)`((?:\w+=\S+ )?distrl [^`]+)`(?!`)")


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block."""

    page: str
    line: int
    language: str
    """As written behind the fence; empty: neither that nor commands."""
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command of a page, as the shell would see its words."""

    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {shlex.join(self.words)}"


def blocks(*languages: str) -> list[Block]:
    """All blocks of all pages in one of these languages, in order; without one, all of them."""
    return [block for page in PAGES for block in _blocks(page) if not languages or block.language in languages]


def shell_commands() -> list[Command]:
    """Every command in a block for a shell."""
    return [command for block in blocks(*SHELL) for command in _commands(block)]


def inline_commands() -> list[Command]:
    """Every `distrl ...` within a sentence or table, except those with a placeholder other than RUN or without a flag's value."""
    found = []
    for page in PAGES:
        text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), page.read_text(encoding="utf-8"))
        for span in SPAN.finditer(text):
            if not re.search(r"\b(?!RUN\b|PYTHONPATH=)[A-Z]+\b|[…\[\]|<>]|--\S+$", span[1]):
                line = text.count("\n", 0, span.start()) + 1
                found.append(Command(place=f"{_name(page)}:{line}", words=tuple(shlex.split(span[1]))))
    return found


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [*_fenced(page, text), *_indented(page, text)]


def _fenced(page: Path, text: str) -> list[Block]:
    return [
        Block(
            page=_name(page),
            line=text.count("\n", 0, fence.start()) + 1,
            language=fence["language"] or ("bash" if UNLABELLED.match(fence["text"].lstrip()) else ""),
            text=re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE),
        )
        for fence in FENCE.finditer(text)
    ]


def _indented(page: Path, text: str) -> list[Block]:
    """Blocks of commands that are set off by four spaces."""
    outside = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    found = [(block, re.sub("^ {4}", "", block["text"], flags=re.MULTILINE)) for block in INDENTED.finditer(outside)]
    return [
        Block(page=_name(page), line=outside.count("\n", 0, block.start()) + 1, language="bash", text=plain)
        for block, plain in found
        if UNLABELLED.match(plain)
    ]


def _commands(block: Block) -> list[Command]:
    """The simple commands of a block, split at newlines and `&&`; of a console, what stands behind `$`."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    parts = [part for line in lines for part in _split(shlex.split(line, comments=True))]
    return [Command(place=block.place, words=tuple(part)) for part in parts if part]


def _split(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", "&", ";", "|"):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
