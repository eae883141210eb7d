"""Screenshots that a process of a learner with several asks that learner for."""

from __future__ import annotations

from multiprocessing import Pipe
from threading import Thread

import msgspec
import pytest
import torch

from distrl.errors import OutOfMemory
from distrl.learner.data_parallel import ANSWERS, Failed, Picture, Wanted
from distrl.learner.scoring import AskedFrames, Channel, Scorer
from distrl.runtime.factory import make_policy
from support.learners import small_config

ASKED = [f"picture {number}" for number in range(400)]
HANGS_S = 20.0


def test_threads_that_ask_at_once_get_each_their_own_screenshot() -> None:
    ours, theirs = Pipe()
    parts = [ASKED[start::8] for start in range(8)]

    def serve() -> None:
        for _ in ASKED:
            wanted = ANSWERS.decode(ours.recv_bytes())
            assert isinstance(wanted, Wanted)
            ours.send_bytes(msgspec.msgpack.encode(Picture(data=wanted.reference.encode())))

    frames, found = AskedFrames(Channel(theirs)), dict[str, bytes]()
    asking = [
        Thread(target=lambda mine=mine: found.update({one: frames.get(one) for one in mine}), daemon=True)
        for mine in parts
    ]
    for thread in (Thread(target=serve, daemon=True), *asking):
        thread.start()
    for thread in asking:
        thread.join(HANGS_S)
    assert found == {one: one.encode() for one in ASKED}


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemory("the GPU ran out of memory", expected="memory", fix="a larger GPU"),
        torch.OutOfMemoryError("of 80 GB"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_too_little_memory_is_told_as_that_and_not_as_a_failure(error: Exception) -> None:
    ours, theirs = Pipe()

    def greedy() -> Picture:
        raise error

    Scorer(make_policy(small_config()), Channel(theirs))._answer(3, greedy)  # type: ignore[arg-type]
    told = ANSWERS.decode(ours.recv_bytes())
    assert isinstance(told, Failed)
    assert (told.id, told.kind) == (3, "oom")
