"""Continuous batching: prompts join the answers that are under way at the next token, and leave when they are over.

Every answer has a slot of a static cache of keys and values. A prompt goes through the model once, packed with others
that arrive with it; what all prompts begin with is computed once for each version of the weights and stays in every slot.
Each further token of all running answers is one replay of a captured CUDA graph, of which there is one for each of a few
batch sizes; the GPU never waits for Python. On a CPU the same steps run without graphs.

Each answer is drawn by numbers of its own, which the caller gives: who shares the batch changes nothing but rounding.
Suffixes: C slots (the last is scratch for batches that are filled up), B rows of a step, N tokens, V vocabulary, A answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.policies.vlm.fast_text import FastText, KeyValues, Stacked, lora_versions
from distrl.policies.vlm.loading import on_gpu
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.packed import Packed
from distrl.policies.vlm.slot_attention import Reach, attend_slots, has_kernel
from distrl.policies.vlm.step_graphs import Single, Step
from distrl.policies.vlm.tokens import Answer, Vocabulary, draw, entropy_of, token_logp

STEP_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Batch sizes with a graph of their own; others are filled up."""
ROOM = 1.25
"""Slots are made for prompts so much longer than the longest so far: prompts grow with the history, and a larger cache needs all graphs anew."""
PLACE_STEP = 128
"""Slots have a multiple of so many places."""
PROMPT_TOKENS = 32_768
"""Of prompts, at most, that go through the model at once."""
SHORTEST_PREFIX = 8
"""A shorter common beginning is not worth the slots' copies."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is over."""

    ticket: int
    answer: Answer
    """With the end token, where it came in time."""
    logps: tuple[float, ...]
    """Of each of its tokens."""
    entropy: float
    value_logit: float

    @property
    def logp(self) -> float:
        """Of the whole answer."""
        return sum(self.logps)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine is asked."""

    ids: Sequence[int]
    positions: Tensor
    """Of every token: [tokens], or [3, tokens]."""
    shares: Tensor
    """A number between 0 and 1 for each token of the answer, by which it is drawn."""
    temperature: float
    """0: the likeliest tokens."""
    features: tuple[Tensor, ...] = ()
    """Of its images, in order."""
    stacks: tuple[tuple[Tensor, ...], ...] = ()
    """What is added after the first layers, for each image."""


def prompts_of(packed: Packed, num_images: Sequence[int], shares_BA: Tensor, temperature: float) -> list[Prompt]:
    """Packed prompts without answers, apart; `num_images` says how many each of them has."""
    ids, flat, images = packed.ids_N.tolist(), packed.positions.squeeze(-2), iter(packed.images)
    found = []
    for row, (start, end) in enumerate(pairwise(packed.bounds)):
        its = [next(images) for _ in range(num_images[row])]
        found.append(
            Prompt(
                ids=ids[start:end],
                positions=flat[..., start:end],
                shares=shares_BA[row],
                temperature=temperature,
                features=tuple(image.features for image in its),
                stacks=tuple(image.deepstack for image in its),
            )
        )
    return found


class _State:
    """Of every slot, on the device: what a step reads and writes."""

    def __init__(self, slots: int, answer_tokens: int, device: torch.device) -> None:
        count = slots + 1
        self.token_C = torch.zeros(count, dtype=torch.long, device=device)
        self.position_C = torch.zeros(count, dtype=torch.long, device=device)
        self.used_C = torch.zeros(count, dtype=torch.int32, device=device)
        self.made_C = torch.zeros(count, dtype=torch.long, device=device)
        self.ended_C = torch.zeros(count, dtype=torch.bool, device=device)
        self.temperature_C = torch.ones(count, device=device)
        self.greedy_C = torch.zeros(count, dtype=torch.bool, device=device)
        self.value_C = torch.zeros(count, device=device)
        self.share_CA = torch.zeros(count, answer_tokens, dtype=torch.float64, device=device)
        self.token_CA = torch.zeros(count, answer_tokens, dtype=torch.long, device=device)
        self.logp_CA = torch.zeros(count, answer_tokens, device=device)
        self.entropy_CA = torch.zeros(count, answer_tokens, device=device)

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return list(vars(self).values())


class Engine:
    """Answers prompts with one model; `slots` answers at once, of up to `answer_tokens` tokens."""

    def __init__(
        self, network: VlmNetwork, text: FastText, vocabulary: Vocabulary, *, slots: int, answer_tokens: int
    ) -> None:
        self._network, self._base, self._text, self._vocabulary = network, network.base, text, vocabulary
        self._answer_tokens, self.slots = answer_tokens, slots
        self._device: torch.device = network.base.lm_head.weight.device
        self._never = vocabulary.never(self._device)
        self._ends = torch.tensor(vocabulary.ends, device=self._device)
        self._state = _State(slots, answer_tokens, self._device)
        self._cache: KeyValues | None = None
        self._graphs: dict[int, Step] = {}
        self._singles: dict[int, Single] = {}
        self._pool: Any = None
        self._versions: tuple[int, ...] = ()
        self._prefix: tuple[int, ...] = ()
        self._free = list(reversed(range(slots)))
        self._running: dict[int, _Running] = {}
        self._rows: tuple[int, ...] = ()
        self._flags: _Flags | None = None

    @property
    def num_running(self) -> int:
        """Answers under way."""
        return len(self._running)

    @property
    def cache(self) -> KeyValues | None:
        """Keys and values; None before the first prompt."""
        return self._cache

    @property
    def num_free(self) -> int:
        """Prompts that can join now."""
        return len(self._free)

    @torch.no_grad()
    def join(self, prompts: dict[int, Prompt], *, prefix: Sequence[int] = ()) -> None:
        """Let prompts join, each by a ticket of the caller's; all begin with `prefix`, or it is not used. At most `num_free`."""
        with on_gpu(self._device):
            self._prepare(prompts, tuple(prefix))
            slots = [self._free.pop() for _ in prompts]
            for slot, ticket in zip(slots, prompts, strict=True):
                self._running[slot] = _Running(ticket=ticket, left=self._answer_tokens - 1)
            for part in _portions(list(zip(slots, prompts.values(), strict=True))):
                self._read(part)

    def _prepare(self, prompts: dict[int, Prompt], prefix: tuple[int, ...]) -> None:
        """Make the cache large enough, and the adapters and the prefix those of the present weights."""
        longest = max(len(prompt.ids) for prompt in prompts.values())
        needed = longest + self._answer_tokens
        versions = lora_versions(self._network)
        if not self._running and (self._cache is None or self._cache.places < needed):
            self.clear()
            places = -(-(int(ROOM * longest) + self._answer_tokens) // PLACE_STEP) * PLACE_STEP
            self._cache = KeyValues(self._base, slots=self.slots + 1, places=places)
        assert self._cache is not None, "a cache for the first prompt"
        if self._cache.places < needed:
            raise RuntimeError("a prompt longer than the slots joined while answers were under way")
        if not all(tuple(prompt.ids[: len(prefix)]) == prefix for prompt in prompts.values()):
            prefix = ()
        if versions != self._versions:
            if self._running:
                raise RuntimeError("the weights changed while answers were under way")
            self._text.refresh()
        if (versions, prefix) != (self._versions, self._prefix) and not self._running:
            self._share(prefix, next(iter(prompts.values())).positions)
        self._versions = versions
        if prefix != self._prefix:
            # Running answers keep the shared beginning; those without it need a whole slot of their own.
            raise RuntimeError("a prompt with another beginning joined while answers were under way")

    def fits(self, prompt: Prompt, prefix: Sequence[int]) -> bool:
        """Whether a prompt can join the answers that are under way; otherwise it waits for their end."""
        if not self._running:
            return True
        assert self._cache is not None
        alike = tuple(prompt.ids[: len(prefix)]) == tuple(prefix) == self._prefix
        return alike and len(prompt.ids) + self._answer_tokens <= self._cache.places

    def _share(self, prefix: tuple[int, ...], positions: Tensor) -> None:
        """Compute what all prompts begin with, once, and put it into every slot."""
        self._prefix = ()
        if prefix:
            shared = Prompt(ids=prefix, positions=positions[..., : len(prefix)], shares=torch.empty(0), temperature=0.0)
            # Not in the scratch slot, where a graph of one prompt puts what it is filled up with.
            self._hidden([(0, shared)])
            assert self._cache is not None
            self._cache.share(len(prefix), 0)
        self._prefix = prefix

    def _hidden(self, asked: list[tuple[int, Prompt]]) -> Tensor:
        """The last hidden states of what follows the prefix in some prompts, one after the other; their keys and values are kept."""
        cache, skip, device = self._cache, len(self._prefix), self._device
        assert cache is not None
        new = [len(prompt.ids) - skip for _, prompt in asked]
        ids_N = torch.tensor([token for _, prompt in asked for token in prompt.ids[skip:]])
        positions = torch.cat([prompt.positions[..., skip:] for _, prompt in asked], dim=-1)
        place_N = torch.cat(
            [
                slot * cache.places + torch.arange(skip, skip + count)
                for (slot, _), count in zip(asked, new, strict=True)
            ]
        )
        embedded_ND, stacked = self._embed(_sent(ids_N, device), asked)
        if len(asked) == 1 and stacked is None and has_kernel(embedded_ND):  # the padded form cannot be captured
            slot, prompt = asked[0]
            size = (new[0] // PLACE_STEP + 1) * PLACE_STEP
            single = self._singles.get(size)
            if single is None:
                single = self._singles[size] = Single(self, cache, size)
            return single.run(embedded_ND, positions, place_N, slot, len(prompt.ids))
        starts = [slot * cache.places for slot, _ in (*asked, (0, None))]
        reach = Reach(
            bounds=_sent(torch.tensor([0, *new]).cumsum(0).int(), device),
            start=_sent(torch.tensor(starts).int(), device),
            used_S=_sent(torch.tensor([len(prompt.ids) for _, prompt in asked]).int(), device),
            most_new=max(new),
            places=cache.places,
        )
        return self.layers(embedded_ND, _sent(positions, device), cache, _sent(place_N, device), reach, stacked)

    def layers(
        self,
        embedded_ND: Tensor,
        positions: Tensor,
        cache: KeyValues,
        place_N: Tensor,
        reach: Reach,
        stacked: Stacked | None = None,
    ) -> Tensor:
        """The last hidden states of embedded tokens."""
        return self._text(embedded_ND, positions, cache, place_N, self._attend(reach), stacked)

    def _embed(self, ids_N: Tensor, asked: list[tuple[int, Prompt]]) -> tuple[Tensor, Stacked | None]:
        embedded_ND = self._text.embed(ids_N)
        features = [one for _, prompt in asked for one in prompt.features]
        if not features:
            return embedded_ND, None
        here_N = ids_N == self._base.config.image_token_id
        embedded_ND = embedded_ND.masked_scatter(here_N[:, None], torch.cat(features).to(embedded_ND.dtype))
        layers = list(zip(*(stack for _, prompt in asked for stack in prompt.stacks), strict=True))
        return embedded_ND, Stacked(here_N=here_N, layers=[torch.cat(layer) for layer in layers]) if layers else None

    def _attend(self, reach: Reach) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        scale = self._text.scale
        return lambda query, keys, values: attend_slots(query, keys, values, reach, scale)

    def _read(self, asked: list[tuple[int, Prompt]]) -> None:
        """Some prompts through the model, and the first token of their answers."""
        hidden_ND, device, state = self._hidden(asked), self._device, self._state
        numbers = [(slot, len(prompt.ids), int(prompt.positions.max()) + 1) for slot, prompt in asked]
        slot_B, length_B, after_B = _sent(torch.tensor(numbers).T.contiguous(), device)
        new = torch.tensor([len(prompt.ids) - len(self._prefix) for _, prompt in asked])
        last_BD = hidden_ND[_sent(new.cumsum(0) - 1, device)]
        temperature_B = _sent(torch.tensor([prompt.temperature for _, prompt in asked]), device)
        state.used_C[slot_B] = length_B.int()
        state.position_C[slot_B] = after_B
        state.made_C[slot_B] = 0
        state.ended_C[slot_B] = False
        state.greedy_C[slot_B] = temperature_B == 0
        state.temperature_C[slot_B] = temperature_B.where(temperature_B > 0, torch.ones_like(temperature_B))
        state.share_CA[slot_B] = _sent(torch.stack([prompt.shares for _, prompt in asked]), device)
        state.value_C[slot_B] = self._network.value(last_BD)
        self._choose(last_BD, slot_B)

    def _choose(self, hidden_BD: Tensor, slot_B: Tensor) -> None:
        """Draw the next token of each row, and record it with its log-probability and entropy."""
        state, head = self._state, self._base.lm_head
        logits_BV = torch.nn.functional.linear(hidden_BD, head.weight, head.bias)
        logp_BV = token_logp(logits_BV, self._never, state.temperature_C[slot_B, None])
        made_B = state.made_C[slot_B]
        drawn_B = draw(logp_BV, state.share_CA[slot_B, made_B])
        token_B = logp_BV.argmax(-1).where(state.greedy_C[slot_B], drawn_B)
        state.token_C[slot_B] = token_B
        state.token_CA[slot_B, made_B] = token_B
        state.logp_CA[slot_B, made_B] = logp_BV.gather(1, token_B[:, None])[:, 0]
        state.entropy_CA[slot_B, made_B] = entropy_of(logp_BV)
        state.ended_C[slot_B] = state.ended_C[slot_B] | torch.isin(token_B, self._ends)
        state.made_C[slot_B] = (made_B + 1).clamp(max=self._answer_tokens - 1)

    @torch.no_grad()
    def advance(self) -> list[Finished]:
        """One more token of every running answer; the answers that are over, which may have been so for a token."""
        if not self._running:
            return []
        with on_gpu(self._device):
            flags, self._flags = self._flags, None
            over = [slot for slot, running in self._running.items() if not running.left]
            if len(over) < len(self._running):
                self._step()
            over += [slot for slot in self._ended(flags) if self._running[slot].left and slot not in over]
            for slot in self._running:
                self._running[slot].left -= self._running[slot].left > 0
            return self._take(over)

    def _step(self) -> None:
        rows = tuple(slot for slot, running in self._running.items() if running.left)
        size = next((size for size in STEP_SIZES if size >= len(rows)), len(rows))
        step = self._graphs.get(size)
        if step is None:
            step = self._graphs[size] = Step(self, size)
        step.run(rows)
        self._note_ended(rows)

    def _note_ended(self, rows: tuple[int, ...]) -> None:
        """Copy the flags of what has ended to the CPU, to be read when the next token is under way."""
        tickets = {slot: self._running[slot].ticket for slot in rows}
        if self._device.type != "cuda":
            self._flags = _Flags(held=self._state.ended_C.clone(), event=None, tickets=tickets)
            return
        held = torch.empty(self.slots + 1, dtype=torch.bool, pin_memory=True)
        held.copy_(self._state.ended_C, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._flags = _Flags(held=held, event=event, tickets=tickets)

    def _ended(self, flags: _Flags | None) -> list[int]:
        """The running answers that had ended when the flags were copied; a slot may have another answer by now."""
        if flags is None:
            return []
        if flags.event is not None:
            flags.event.synchronize()
        return [
            slot
            for slot, ticket in flags.tickets.items()
            if flags.held[slot] and slot in self._running and self._running[slot].ticket == ticket
        ]

    def _take(self, over: list[int]) -> list[Finished]:
        """What became of the answers in some slots, which are free then."""
        if not over:
            return []
        state, slot_B = self._state, torch.tensor(over, device=self._device)
        token_BA, logp_BA, entropy_BA, value_B = (
            tensor[slot_B].cpu() for tensor in (state.token_CA, state.logp_CA, state.entropy_CA, state.value_C)
        )
        ended_BA = torch.isin(token_BA, self._ends.cpu())
        # An end token belongs to its answer; what comes after it does not.
        length_B = ((ended_BA.cumsum(1) - ended_BA.long()) == 0).sum(1).tolist()
        found = []
        for row, (slot, length) in enumerate(zip(over, length_B, strict=True)):
            self._free.append(slot)
            found.append(
                Finished(
                    ticket=self._running.pop(slot).ticket,
                    answer=tuple(token_BA[row, :length].tolist()),
                    logps=tuple(logp_BA[row, :length].tolist()),
                    entropy=float(entropy_BA[row, :length].sum()),
                    value_logit=float(value_B[row]),
                )
            )
        return found

    def clear(self) -> None:
        """Give up all answers under way, and free the cache and the graphs."""
        self._running.clear()
        self._free = list(reversed(range(self.slots)))
        self._graphs.clear()
        self._singles.clear()
        self._cache, self._flags, self._prefix, self._versions, self._pool = None, None, (), (), None

    def token(self, slot_B: Tensor, bounds: Tensor) -> None:
        """One more token of the answers in some slots: what a graph captures."""
        state, cache = self._state, self._cache
        assert cache is not None
        used_B = state.used_C[slot_B].clamp(max=cache.places - 1)
        start_B = slot_B * cache.places
        start = torch.cat([start_B, start_B[:1]]).int()
        reach = Reach(bounds=bounds, start=start, used_S=used_B + 1, most_new=1, places=cache.places)
        position_B = state.position_C[slot_B]
        axes = self._text.num_axes
        hidden_BD = self._text(
            self._text.embed(state.token_C[slot_B]),
            position_B.expand(axes, -1) if axes else position_B,
            cache,
            start_B + used_B,
            self._attend(reach),
        )
        state.used_C[slot_B] = used_B + 1
        state.position_C[slot_B] = position_B + 1
        self._choose(hidden_BD, slot_B)

    @property
    def width(self) -> int:
        """Of a hidden state."""
        return int(self._base.lm_head.in_features)

    @property
    def num_axes(self) -> int:
        """Of a token's position; 0: a plain number."""
        return self._text.num_axes

    @property
    def state(self) -> list[Tensor]:
        """Everything that a token changes, but for the cache."""
        return self._state.tensors()

    def graph_pool(self) -> Any:
        """Memory that all graphs share: they never run at the same time."""
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        return self._pool


class _Running(msgspec.Struct, kw_only=True):
    """An answer under way."""

    ticket: int
    left: int
    """Tokens that may still be made."""


class _Flags(msgspec.Struct, frozen=True, kw_only=True):
    """Which answers had ended after a token."""

    held: Tensor
    event: Any
    """When they have arrived on the CPU; None: they are there."""
    tickets: dict[int, int]
    """Of the answers that were in the slots then."""


def common_prefix(first: Sequence[int], second: Sequence[int], stop: set[int]) -> tuple[int, ...]:
    """What both begin with, before any of the tokens in `stop`; empty where that is too little to share."""
    length = next(
        (at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other or one in stop),
        min(len(first), len(second)),
    )
    return tuple(first[:length]) if length >= SHORTEST_PREFIX else ()


def _portions(asked: list[tuple[int, Prompt]]) -> list[list[tuple[int, Prompt]]]:
    """Prompts in groups of bounded length."""
    parts: list[list[tuple[int, Prompt]]] = [[]]
    tokens = 0
    for one in asked:
        tokens += len(one[1].ids)
        if tokens > PROMPT_TOKENS and parts[-1]:
            parts.append([])
            tokens = len(one[1].ids)
        parts[-1].append(one)
    return parts


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device, without a wait for what the device is doing."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
