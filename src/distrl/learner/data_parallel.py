"""Data-parallel learning: every batch is scored by several processes, and the learner remains one.

The rows of a batch are split over the processes, of which the first is the learner's own. It works the loss out over the
scores of the whole batch, so every mean over a mask, every normalised advantage and every priority is what one process
would get, whatever the algorithm. Each process is then given the gradient of the loss with respect to its own scores, goes
back through its own part of the network, and what all of them find is summed where the optimizer is.

Weights and gradients go through `torch.distributed` (NCCL between GPUs, gloo between CPU processes), everything else as typed
records over a pipe between parent and child. The other processes hold no state but the weights, which they are sent for
each batch: a checkpoint knows nothing of them, and a run may go on with any number of them.
"""

from __future__ import annotations

import time
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from secrets import randbits
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
import numpy as np
import torch
from torch import Tensor, distributed, nn

from distrl.errors import ConfigError
from distrl.experience.frames import FrameReader
from distrl.policies.base import Policy, Scores
from distrl.policies.nonfinite import HasNonFiniteGuard
from distrl.policies.oom import LearnsInPortions, oom_errors
from distrl.types import Action, Decision, Observation

POLL_S = 0.2
ANSWER_S = 600.0
"""How long a process may take over its part of a batch; the learner is silent meanwhile, and found out long before."""
GONE_S = 2.0
"""How long a process whose connection has ended may take to be gone."""


class ProcessDied(RuntimeError):
    """A process of the learner is gone: this incarnation of the learner ends, and the next one begins with all of them."""


# --- what is said between the learner and its processes -----------------------------------------------------------------


class Score(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Score these rows under the weights that are broadcast next."""

    id: int
    rows: bytes
    choices: tuple[tuple[int, ...], ...]
    learning: bool
    weights: bytes = b""
    """All weights of the policy, where those that are not trained may have changed too."""
    alive: tuple[int, ...] = ()
    """Earlier calls whose gradient may still be asked for; all others are forgotten."""


class Backward(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The gradient of the loss with respect to what a call came to."""

    id: int
    gradients: tuple[bytes, ...]
    """Empty where the loss does not use that score."""


class Reduce(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Take part in summing the gradients of these weights, by their place among the trained ones."""

    used: tuple[int, ...]


class Picture(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A screenshot that was asked for."""

    data: bytes


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The process has its policy."""

    id: int = -1


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Log-probabilities, entropies and value logits of a call."""

    id: int
    scores: tuple[bytes, ...]
    skipped: int
    """Results that were not finite."""


class WentBack(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The gradient of a call is worked out."""

    id: int
    used: tuple[int, ...]
    """The trained weights that have one."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A screenshot is needed."""

    reference: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A call has failed."""

    id: int
    kind: str
    """oom, or the name of an error."""
    why: str


Message = Score | Backward | Reduce | Picture
Answer = Ready | Scored | WentBack | Wanted | Failed
A = TypeVar("A", Ready, Scored, WentBack)
ANSWERS = msgspec.msgpack.Decoder(Answer)


def encoded_type(policy: Policy[Any]) -> Any:
    """What `encode` of this policy says that it returns; `ConfigError` where it does not say."""
    found = typing.get_type_hints(type(policy).encode).get("return")
    if found is None or found is Any or isinstance(found, TypeVar):
        raise ConfigError(
            f"{type(policy).__name__}.encode does not say what it returns, so its rows cannot be sent to other processes",
            expected="a msgspec.Struct of arrays, tensors, numbers and strings, as the annotation of what encode returns",
            fix="annotate it, or --learner.gpus 1",
        )
    return found


def to_wire(value: object) -> object:
    """Arrays and tensors as kind, shape and bytes, for msgspec."""
    array = value.numpy() if isinstance(value, Tensor) else value
    if isinstance(array, np.ndarray):
        return array.dtype.str, array.shape, array.tobytes()
    raise TypeError(f"{type(value).__name__} cannot be sent to another process of the learner")


def from_wire(kind: Any, value: Any) -> Any:
    """The way back."""
    dtype, shape, data = value
    array = np.frombuffer(bytearray(data), dtype).reshape(shape)
    return torch.from_numpy(array) if kind is Tensor else array


def pack_scores(scores: Sequence[Tensor | None]) -> tuple[bytes, ...]:
    """Vectors as the bytes of 32-bit floats; empty for None."""
    return tuple(b"" if one is None else one.detach().float().cpu().numpy().tobytes() for one in scores)


def unpack_scores(scores: Sequence[bytes], device: torch.device) -> tuple[Tensor, ...]:
    """The way back."""
    return tuple(
        torch.frombuffer(bytearray(one), dtype=torch.float32).to(device) if one else _none(device) for one in scores
    )


def _none(device: torch.device) -> Tensor:
    return torch.zeros(0, device=device)


def trained_weights(network: nn.Module) -> list[nn.Parameter]:
    """The weights that learn, in the same order in every process."""
    return [weights for weights in network.parameters() if weights.requires_grad]


# --- one other process, as the learner sees it --------------------------------------------------------------------------


class Peer:
    """A process that scores a part of every batch."""

    def __init__(self, name: str, pipe: Connection, frames: FrameReader, ended: Callable[[], str]) -> None:
        """`ended` says how the process has ended; empty: it lives."""
        self.name, self._pipe, self._frames, self._ended = name, pipe, frames, ended

    def send(self, message: Message) -> None:
        """Have it do something."""
        try:
            self._pipe.send_bytes(msgspec.msgpack.encode(message))
        except OSError as error:
            raise self.died() from error

    def take(self, kind: type[A], id: int, *, on_wait: Callable[[], None] = lambda: None) -> A:
        """Its answer to a call; those to calls that were given up are dropped."""
        until_s = time.monotonic() + ANSWER_S
        while time.monotonic() < until_s:
            answer = self._receive()
            if answer is None:
                on_wait()
            elif isinstance(answer, Wanted):
                self.send(Picture(data=self._frames.get(answer.reference)))
            elif answer.id == id:
                if isinstance(answer, kind):
                    return answer
                raise self._failure(answer)
        raise ProcessDied(f"{self.name} did not answer within {ANSWER_S:g} s")

    def _receive(self) -> Answer | None:
        try:
            if self._pipe.poll(POLL_S):
                answer: Answer = ANSWERS.decode(self._pipe.recv_bytes())
                return answer
        except (EOFError, OSError) as error:
            raise self.died() from error
        if self._ended():
            raise self.died()
        return None

    def _failure(self, answer: Answer) -> Exception:
        if isinstance(answer, Failed) and answer.kind == "oom":
            return torch.OutOfMemoryError(f"{self.name}: {answer.why}")
        return ProcessDied(
            f"{self.name} failed: {answer.kind}: {answer.why}" if isinstance(answer, Failed) else self.name
        )

    def died(self) -> ProcessDied:
        """The error that names it."""
        return ProcessDied(f"{self.name} died: {self._ended() or 'it closed its pipe'}")

    def close(self) -> None:
        """Let it end."""
        self._pipe.close()

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return bool(self._ended())


# --- the policy that all of them score with -----------------------------------------------------------------------------


class DataParallelPolicy:
    """`policies.base.Policy` whose `score` is shared among processes; everything else is the learner's own policy."""

    def __init__(self, policy: Policy[Any], peers: Sequence[Peer], *, batch: int) -> None:
        """`batch` is `learner.batch_trajectories`, to be named where memory runs out."""
        self._policy, self._peers, self._batch = policy, list(peers), batch
        self._weights = trained_weights(policy.network)
        self._device = next((one.device for one in self._weights), torch.device("cpu"))
        self._calls: WeakValueDictionary[int, _Call] = WeakValueDictionary()
        self._next = randbits(40)  # others may have called the same processes before
        self._introduced = False
        """Whether the others have had all weights, once: those that are not trained stay as they are."""

    @property
    def network(self) -> nn.Module:
        """What the learner optimises."""
        return self._policy.network

    def encode(self, observation: Observation) -> Any:
        """As the policy does."""
        return self._policy.encode(observation)

    def augment(self, encoded: Any) -> Any:
        """As the policy does; drawn in one process, so that it is drawn as ever."""
        return self._policy.augment(encoded)

    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """As the policy does."""
        return self._policy.decide(observations, temperature=temperature, generator=generator)

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """As the policy does."""
        return self._policy.imitate(observation, action)

    def weights(self) -> dict[str, Tensor]:
        """Those of the policy."""
        return self._policy.weights()

    def dump(self) -> bytes:
        """Those of the policy."""
        return self._policy.dump()

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Give them to the policy, and to the others with the next batch."""
        self._policy.restore(data, source=source)
        self._introduced = False

    def learning_oom_errors(self) -> AbstractContextManager[None]:
        """`OutOfMemory` that names the policy's own setting, or the size of the batch."""
        own = self._policy
        return (
            own.learning_oom_errors()
            if isinstance(own, LearnsInPortions)
            else oom_errors("learner.batch_trajectories", self._batch)
        )

    def score(self, encoded: Sequence[Any], choices: Sequence[tuple[int, ...]]) -> Scores:
        """The given choices under the present weights, as one process would score them."""
        num, learning = 1 + len(self._peers), torch.is_grad_enabled()
        parts = [list(range(start, len(encoded), num)) for start in range(num)]
        call = self._begin(encoded, choices, parts, learning)
        started = _Started.apply(call, *self._weights) if learning else None  # type: ignore[no-untyped-call]
        own = self._policy.score([encoded[row] for row in parts[0]], [choices[row] for row in parts[0]])
        theirs = call.scores()
        if started is not None:
            theirs = _Received.apply(call, started, *theirs)  # type: ignore[no-untyped-call]
        places = torch.tensor([row for part in parts for row in part], device=self._device).argsort()
        mine = (own.logp_N, own.entropy_N, own.value_logit_N)
        logp_N, entropy_N, value_N = (
            torch.cat([column, *theirs[at::3]])[places] for at, column in enumerate(mine)
        )  # fmt: skip
        return Scores(logp_N=logp_N, entropy_N=entropy_N, value_logit_N=value_N)

    def _begin(
        self, encoded: Sequence[Any], choices: Sequence[tuple[int, ...]], parts: list[list[int]], learning: bool
    ) -> _Call:
        """Have the others begin with their parts."""
        call, self._next = _Call(self._next, self._peers, self._policy, self._weights, self._device), self._next + 1
        weights, alive = b"" if self._introduced else self._policy.dump(), tuple(self._calls)
        for peer, part in zip(self._peers, parts[1:], strict=True):
            rows = msgspec.msgpack.encode([encoded[row] for row in part], enc_hook=to_wire)
            chosen = tuple(choices[row] for row in part)
            peer.send(Score(id=call.id, rows=rows, choices=chosen, learning=learning, weights=weights, alive=alive))
        self._introduced = True
        if learning:
            self._calls[call.id] = call
        with named_collectives(self._peers):
            broadcast(self._weights)
        return call


class _Call:
    """One batch on its way through all processes."""

    def __init__(
        self, id: int, peers: list[Peer], policy: Policy[Any], weights: list[nn.Parameter], device: torch.device
    ) -> None:
        self.id, self._peers, self._policy, self._weights, self.device = id, peers, policy, weights, device

    def scores(self) -> tuple[Tensor, ...]:
        """What the others have found: log-probabilities, entropies and value logits, process after process."""
        found: list[Tensor] = []
        for peer in self._peers:
            answer = peer.take(Scored, self.id)
            found += unpack_scores(answer.scores, self.device)
            if answer.skipped and isinstance(self._policy, HasNonFiniteGuard):
                self._policy.nonfinite.skipped += answer.skipped
        return tuple(found)

    def send_back(self, gradients: Sequence[Tensor | None]) -> None:
        """Have the others go back through their parts."""
        for number, peer in enumerate(self._peers):
            peer.send(Backward(id=self.id, gradients=pack_scores(gradients[3 * number : 3 * number + 3])))

    def gradients(self) -> list[Tensor | None]:
        """The sum of what the others have found, for each trained weight; None where none of them has any."""
        answers = [peer.take(WentBack, self.id) for peer in self._peers]
        used = tuple(sorted({place for answer in answers for place in answer.used}))
        for peer in self._peers:
            peer.send(Reduce(used=used))
        found: list[Tensor | None] = [None] * len(self._weights)
        with named_collectives(self._peers):
            for place in used:
                found[place] = gathered = empty_gradient(self._weights[place])
                distributed.reduce(gathered, dst=0)
        return found


class _Started(torch.autograd.Function):
    """Made before the learner's own part is scored, so that its turn in the backward pass comes after that part's."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *_: Tensor) -> Tensor:
        ctx.call = call
        return torch.zeros((), device=call.device)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *ctx.call.gradients())


class _Received(torch.autograd.Function):
    """The scores of the others, whose turn in the backward pass comes first: all processes then go back at the same time."""

    @staticmethod
    def forward(ctx: Any, call: _Call, _: Tensor, *scores: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.set_materialize_grads(False)  # what the loss does not use has no gradient, and neither have its weights
        return tuple(one.clone() for one in scores)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.call.send_back(gradients)
        return (None, torch.zeros((), device=ctx.call.device), *[None] * len(gradients))


def empty_gradient(weights: Tensor) -> Tensor:
    """Zeros to sum gradients in, in the order of memory that all processes agree on."""
    return torch.zeros_like(weights, memory_format=torch.contiguous_format)


@torch.no_grad()
def broadcast(weights: Sequence[nn.Parameter]) -> None:
    """Give the learner's weights to all processes; each of them has to call this."""
    for one in weights:
        sent = one.data.contiguous()  # itself, but for convolutions that lie in memory otherwise
        distributed.broadcast(sent, src=0)
        if sent is not one.data:
            one.data.copy_(sent)


@contextmanager
def named_collectives(peers: Sequence[Peer]) -> Iterator[None]:
    """Name the process whose death has ended what all of them do together."""
    try:
        yield
    except RuntimeError as error:
        until_s = time.monotonic() + GONE_S
        while time.monotonic() < until_s:  # its connection ends a moment before it does
            for peer in peers:
                if peer.is_gone:
                    raise peer.died() from error
            time.sleep(GONE_S / 40)
        raise
