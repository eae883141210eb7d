"""What the other processes of a data-parallel learner do: score their part of a batch, and go back through it.

They hold the weights and nothing else; `learner.data_parallel` says what is asked of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from threading import Lock
from types import GenericAlias
from typing import Any

import msgspec
import torch
from torch import Tensor, distributed

from distrl.errors import DistrlError, OutOfMemory, StoreError
from distrl.learner.data_parallel import (
    Answer,
    Backward,
    Failed,
    Message,
    Picture,
    Ready,
    Reduce,
    Score,
    Scored,
    Wanted,
    WentBack,
    broadcast,
    empty_gradient,
    encoded_type,
    from_wire,
    pack_scores,
    trained_weights,
    unpack_scores,
)
from distrl.policies.base import Policy
from distrl.policies.nonfinite import HasNonFiniteGuard

MESSAGES = msgspec.msgpack.Decoder(Message)


class Channel:
    """The pipe to the learner."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def send(self, answer: Answer) -> None:
        """Answer."""
        self._pipe.send_bytes(msgspec.msgpack.encode(answer))

    def receive(self) -> Message | None:
        """What is asked next; None once the learner is gone."""
        try:
            message: Message = MESSAGES.decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        return message


class AskedFrames:
    """`FrameReader` that asks the learner. For several threads, while the learner waits for scores."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._lock = channel, Lock()

    def get(self, reference: str) -> bytes:
        """A screenshot."""
        with self._lock:
            self._channel.send(Wanted(reference=reference))
            answer = self._channel.receive()
        if not isinstance(answer, Picture):
            raise StoreError(f"the learner did not send the screenshot {reference[:80]!r}")
        return answer.data


class Scorer:
    """One process's side: a policy, and the graphs of the calls whose gradient may still be asked for."""

    def __init__(self, policy: Policy[Any], channel: Channel) -> None:
        self._policy, self._channel = policy, channel
        self._weights = trained_weights(policy.network)
        self._device = next((one.device for one in self._weights), torch.device("cpu"))
        rows: Any = GenericAlias(list, (encoded_type(policy),))
        self._rows: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(rows, dec_hook=from_wire)
        self._graphs: dict[int, tuple[Tensor, ...]] = {}
        self._gradients: Sequence[Tensor | None] = ()

    def serve(self, meet: Callable[[], None] = lambda: None) -> None:
        """Say that it is ready, `meet` the others, and answer until the learner is gone."""
        self._channel.send(Ready())
        meet()
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Score):
                self._answer(message.id, partial(self._score, message))
            elif isinstance(message, Backward):
                self._answer(message.id, partial(self._go_back, message))
            elif isinstance(message, Reduce):
                self._reduce(message.used)

    def _answer(self, id: int, work: Callable[[], Answer]) -> None:
        try:
            self._channel.send(work())
        except (torch.OutOfMemoryError, OutOfMemory) as error:
            self._graphs.clear()
            self._channel.send(Failed(id=id, kind="oom", why=str(error).splitlines()[0]))
        except DistrlError as error:
            self._channel.send(Failed(id=id, kind=type(error).__name__, why=error.seen))

    def _score(self, asked: Score) -> Scored:
        broadcast(self._weights)  # first: whatever fails from here on, no other process waits for this one
        self._graphs = {id: graph for id, graph in self._graphs.items() if id in asked.alive}
        if asked.weights:
            self._policy.restore(asked.weights, source="the learner")
        rows, before = self._rows.decode(asked.rows), self._num_skipped()
        with torch.set_grad_enabled(asked.learning):
            scores = self._scores(rows, asked.choices)
        if asked.learning:
            self._graphs[asked.id] = scores
        return Scored(id=asked.id, scores=pack_scores(scores), skipped=self._num_skipped() - before)

    def _scores(self, rows: Sequence[Any], choices: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
        if not rows:  # fewer rows than processes
            return tuple(torch.zeros(0, device=self._device) for _ in range(3))
        scores = self._policy.score(rows, choices)
        return scores.logp_N, scores.entropy_N, scores.value_logit_N

    def _num_skipped(self) -> int:
        return self._policy.nonfinite.skipped if isinstance(self._policy, HasNonFiniteGuard) else 0

    def _go_back(self, asked: Backward) -> WentBack:
        scores = self._graphs.pop(asked.id)
        pairs = [
            (score, gradient.to(score.dtype))
            for score, gradient in zip(scores, unpack_scores(asked.gradients, self._device), strict=True)
            if score.requires_grad and len(gradient)
        ]
        outputs, given = [score for score, _ in pairs], [gradient for _, gradient in pairs]
        self._gradients = (
            torch.autograd.grad(outputs, self._weights, given, allow_unused=True)
            if outputs
            else [None] * len(self._weights)
        )
        return WentBack(id=asked.id, used=tuple(at for at, one in enumerate(self._gradients) if one is not None))

    def _reduce(self, used: Sequence[int]) -> None:
        found, self._gradients = self._gradients, ()
        for place in used:
            own = found[place]
            distributed.reduce(empty_gradient(self._weights[place]) if own is None else own.contiguous(), dst=0)
