"""The simulated phones' shell parses as a real one does, and refuses what it does not know."""

from __future__ import annotations

from random import Random

from distrl.devices.android.quoting import quote
from distrl.devices.serve_sim.shell import Done, run, tokens_of


def echo(line: str, files: dict[str, bytes] | None = None) -> Done:
    return run(line, {}, {} if files is None else files)


def test_lists_pipes_and_redirections_work_together() -> None:
    files: dict[str, bytes] = {}
    done = echo("echo one > /a && echo two >> /a; false || cat /a | grep two; nonsense 2>/dev/null", files)
    assert (done.out, done.err, done.code) == (b"two\n", b"", 127)
    assert files == {"/a": b"one\ntwo\n"}
    assert echo("nonsense 2>&1").out == b"/system/bin/sh: nonsense: inaccessible or not found\n"
    assert echo("echo 2 >/b; cat /b").out == b"2\n"


def test_expansions_are_refused_instead_of_guessed() -> None:
    for line in ("echo $HOME", 'echo "`id`"', "echo *", "(echo)", "echo a &"):
        assert echo(line).code == 2


def test_quoted_text_is_one_word_whatever_it_holds() -> None:
    random = Random(5)
    for _ in range(2000):
        text = "".join(random.choice("ab '\"\\$`;&|<>#*\n%") for _ in range(random.randrange(12)))
        assert tokens_of(f"x {quote(text)}") == ["x", text]
