"""The table of claims in its file: a session begins without, and a damaged one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.errors import StoreError
from distrl.transport.files import FileClaims, forget_claims
from distrl.transport.memory import MemoryEpisodes


def claims(path: Path, owner: str) -> FileClaims:
    return FileClaims(path, owner, MemoryEpisodes(), lifetime_s=100.0)


def test_a_session_begins_without_the_claims_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "heartbeats" / "round.sqlite"
    before = claims(path, "worker-0")
    assert len(before.take(0, 3, 3)) == 3
    before.close()
    path.with_name("learner.json").write_text("a heartbeat")
    forget_claims(path)
    assert [file.name for file in path.parent.iterdir()] == ["learner.json"]
    assert len(claims(path, "worker-1").take(0, 3, 3)) == 3


def test_a_table_that_was_never_made_is_forgotten_too(tmp_path: Path) -> None:
    forget_claims(tmp_path / "round.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_no_database_is_a_store_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "round.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError) as caught:
        claims(tmp_path / "round.sqlite", "worker-0")
    assert str(tmp_path) in caught.value.seen
    assert caught.value.fix
