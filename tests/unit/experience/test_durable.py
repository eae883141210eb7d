"""What the system says of files, in words that name what is in the way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from distrl.errors import StoreError
from distrl.experience.durable import storage_errors

RUN = Path("runs/one")


@pytest.mark.parametrize(
    ("number", "file", "named"),
    [
        (errno.EACCES, RUN / "evaluations" / ".after.json.1-2", RUN / "evaluations"),
        (errno.EPERM, RUN / ".summary.json.1-2", RUN),
        (errno.EACCES, Path("/elsewhere/file"), RUN),
        (errno.EACCES, None, RUN),
        (errno.EISDIR, RUN / "budget.json", RUN / "budget.json"),
        (errno.ENOSPC, RUN / "metrics.jsonl", RUN),
    ],
)
def test_the_folder_that_cannot_be_written_to_is_named_and_no_draft(
    number: int, file: Path | None, named: Path
) -> None:
    with pytest.raises(StoreError) as caught, storage_errors(RUN):
        raise OSError(number, os.strerror(number), file and str(file))
    assert caught.value.seen == f"cannot use {named}: {os.strerror(number)}"
