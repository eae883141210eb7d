"""The action distribution of policies that point and copy: a kind of action, then the arguments of that kind.

Kinds come in one order everywhere: first those that point, one per pointing head, then the one that types a span of
the instruction, then those without arguments. All actions can be enumerated, so the entropy is exact.
Suffixes: B batch, K kinds, H pointing heads, E what can be pointed at, I words, S spans (first word by last word).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from distrl.types import Action, Finish, RunnerUp, TypeText

Choice = tuple[int, int, int]
"""Kind, then what is pointed at or the first word, then the last word."""
NUM_RUNNERS_UP = 3
LEAST_LOGP = -7.0
"""Of a runner-up: about one in a thousand."""
LONGEST_TEXT = 80
"""Letters of a runner-up's text that are kept: it is for people."""


class ActionDistribution:
    """Normalised log-probabilities at one temperature."""

    def __init__(self, kind_BK: Tensor, target_BHE: Tensor, span_BII: Tensor, *, temperature: float = 1.0) -> None:
        self._kind_BK = torch.log_softmax(kind_BK / temperature, dim=-1)
        self._target_BHE = torch.log_softmax(target_BHE / temperature, dim=-1)
        self._num_words = span_BII.shape[-1]
        self._span_BS = torch.log_softmax(span_BII.flatten(1) / temperature, dim=-1)
        self._type = target_BHE.shape[1]

    def sample(self, generator: torch.Generator, *, greedy: bool) -> list[Choice]:
        """A choice for each row; `greedy` takes the likeliest kind and the likeliest of what it needs."""

        def draw(logp: Tensor) -> Tensor:
            return logp.argmax(-1) if greedy else torch.multinomial(logp.exp(), 1, generator=generator).squeeze(-1)

        kinds, spans = draw(self._kind_BK).tolist(), draw(self._span_BS).tolist()
        targets = draw(self._target_BHE.flatten(0, 1)).view(-1, self._type).tolist()
        return [self._choice(kind, targets[i], spans[i]) for i, kind in enumerate(kinds)]

    def runners_up(self, choices: Sequence[Choice]) -> list[list[tuple[Choice, float]]]:
        """For each row the likeliest choices beside the given one, with their log-probabilities, the likeliest first.

        At most `NUM_RUNNERS_UP`, and none that is hardly ever chosen.
        """
        most = NUM_RUNNERS_UP + 1  # the given one may be among them
        target_BHM, targets = self._target_BHE.topk(min(most, self._target_BHE.shape[-1]), dim=-1)
        span_BM, spans = self._span_BS.topk(min(most, self._span_BS.shape[-1]), dim=-1)
        pointing = (target_BHM + self._kind_BK[:, : self._type, None]).flatten(1)
        typing = span_BM + self._kind_BK[:, self._type, None]
        joint = torch.cat([pointing, typing, self._kind_BK[:, self._type + 1 :]], dim=1)
        logp_BM, places = joint.topk(min(most, joint.shape[1]), dim=1)
        width, rows = target_BHM.shape[-1], zip(logp_BM.tolist(), places.tolist(), strict=True)
        listed = (targets.flatten(1).tolist(), spans.tolist())
        found = []
        for row, (logps, at) in enumerate(rows):
            likeliest = [(self._choice_at(place, width, listed[0][row], listed[1][row]), logp) for place, logp in zip(at, logps, strict=True)]  # fmt: skip
            others = [(choice, logp) for choice, logp in likeliest if choice != choices[row] and logp >= LEAST_LOGP]
            found.append(others[:NUM_RUNNERS_UP])
        return found

    def _choice_at(self, place: int, width: int, targets: list[int], spans: list[int]) -> Choice:
        """The choice at a place among pointing kinds with `width` targets each, then spans, then kinds without arguments."""
        if place < len(targets):
            return place // width, targets[place], 0
        place -= len(targets)
        if place < len(spans):
            return self._type, spans[place] // self._num_words, spans[place] % self._num_words
        return self._type + 1 + place - len(spans), 0, 0

    def _choice(self, kind: int, targets: list[int], span: int) -> Choice:
        if kind < self._type:
            return kind, targets[kind], 0
        return (kind, span // self._num_words, span % self._num_words) if kind == self._type else (kind, 0, 0)

    def logp(self, choices: Sequence[Choice]) -> Tensor:
        """The log-probability of each row's choice."""
        return self.logp_of(torch.tensor(choices).to(self._kind_BK.device, non_blocking=True))

    def logp_of(self, choice_BC: Tensor) -> Tensor:
        """The same for choices as integers on the device of the logits."""
        kind, first, last = choice_BC.unbind(-1)
        rows = torch.arange(len(choice_BC), device=choice_BC.device)
        logp_B = self._kind_BK[rows, kind]
        pointing = kind < self._type
        head = kind.clamp(max=self._type - 1)
        logp_B = logp_B + pointing * self._target_BHE[rows, head, first.where(pointing, torch.zeros_like(first))]
        typing = kind == self._type
        span = (first * self._num_words + last).where(typing, torch.zeros_like(first))
        return logp_B + torch.where(typing, self._span_BS[rows, span], torch.zeros_like(logp_B))

    def entropy(self) -> Tensor:
        """Of the kind, plus what each kind's own choice adds, weighted by how likely the kind is."""
        chance_BK = self._kind_BK.exp()
        own_BH, span_B = _entropy(self._target_BHE), _entropy(self._span_BS)
        return (
            _entropy(self._kind_BK) + (chance_BK[:, : self._type] * own_BH).sum(-1) + chance_BK[:, self._type] * span_B
        )


def as_runners_up(found: Sequence[tuple[Choice, float]], to_action: Callable[[Choice], Action]) -> tuple[RunnerUp, ...]:
    """Choices as a decision records them."""
    return tuple(RunnerUp(_shortened(to_action(choice)), round(logp, 4)) for choice, logp in found)


def _shortened(action: Action) -> Action:
    match action:
        case TypeText(text=text) if len(text) > LONGEST_TEXT:
            return TypeText(f"{text[: LONGEST_TEXT - 1]}…")
        case Finish(answer=answer) if len(answer) > LONGEST_TEXT:
            return Finish(status=action.status, answer=f"{answer[: LONGEST_TEXT - 1]}…")
        case _:
            return action


def _entropy(logp: Tensor) -> Tensor:
    return -(logp.exp() * logp).sum(-1)
