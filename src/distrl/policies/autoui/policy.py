"""Auto-UI as a policy: the agent with which DigiRL's and DistRL's own figures were made.

It reads the last action, the goal and one vector of the screenshot, and answers with a line in the dialect `aitw`. A choice is
the tokens of that line. All weights of the T5 are trained, and published whole; the vision tower is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from distrl.config.schema import AutoUIConfig
from distrl.policies import weights as weights_file
from distrl.policies.autoui.loading import load
from distrl.policies.base import PolicyContext, Scores
from distrl.policies.dialects import dialect
from distrl.policies.dialects.base import Screen
from distrl.policies.nonfinite import SKIPPED_DECISION, NonFiniteGuard
from distrl.policies.vlm.caches import ImageCache
from distrl.policies.vlm.generation import Generated, Sampling
from distrl.policies.vlm.tokens import Vocabulary
from distrl.types import Action, Decision, Finish, LongPress, Observation, Press, Swipe, Tap, TypeText

NOWHERE = "[-1.0, -1.0]"
KEYS = {"back": "PRESS_BACK", "home": "PRESS_HOME", "enter": "PRESS_ENTER"}
END = "</s>"
"""Auto-UI's prompts end with the text of the end token, which the tokenizer then adds once more."""


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy reads of an observation."""

    prompt: str
    screenshot: str


class AutoUIPolicy:
    """`policies.base.Policy` over Auto-UI's models in two folders."""

    def __init__(self, config: AutoUIConfig, context: PolicyContext) -> None:
        torch.manual_seed(context.seed)
        self.config, self.device = config, context.device
        model = load(config, self.device)
        self.network, self._vision, self._tokenizer = model.network, model.vision, model.tokenizer
        self._images, self._dialect = ImageCache(context.frames), dialect("aitw")
        end = int(self._tokenizer.eos_token_id)
        self._vocabulary = Vocabulary(ends=(end,), padding=end, forbidden=())
        self.nonfinite = NonFiniteGuard()

    @property
    def num_undecodable(self) -> int:
        """Screenshots that could not be decoded and were replaced by black ones."""
        return self._images.num_undecodable

    def encode(self, observation: Observation) -> Encoded:
        """The prompt as Auto-UI has it, and the reference of the screenshot."""
        last = observation.recent[-1].action if observation.recent else None
        said = f"{previous(last)} " if last is not None else ""
        return Encoded(
            prompt=f"Previous Actions: {said}Goal: {observation.instruction}{END}", screenshot=observation.screenshot
        )

    def augment(self, encoded: Encoded) -> Encoded:
        """The same: there is no data augmentation."""
        return encoded

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The tokens that print `action`; None where the dialect or the tokenizer cannot, or where they are too many."""
        screen = screen_of(observation)
        text = self._dialect.print(action, screen)
        if text is None:
            return None
        answer = tuple(self._tokenizer(text, add_special_tokens=True)["input_ids"])
        same = self._dialect.parse(self._text(answer), screen) == self._dialect.parse(text, screen)
        return answer if same and len(answer) <= self.config.answer_tokens else None

    @torch.no_grad()
    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """A decision for each observation, `decide_batch` of them at a time."""
        sampling = Sampling(
            temperature=temperature,
            answer_tokens=self.config.answer_tokens,
            vocabulary=self._vocabulary,
            generator=generator,
        )
        size, found = self.config.decide_batch, list[Decision]()
        for begin in range(0, len(observations), size):
            part = observations[begin : begin + size]
            answered = self.network.answer(*self._inputs([self.encode(one) for one in part]), sampling)
            self.nonfinite.check(answered.finite_B, "deciding")
            found += [self._decision(answered, row, observation) for row, observation in enumerate(part)]
        return found

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        """The given answers under the present weights, with gradient, `score_batch` of them at a time."""
        size, columns = self.config.score_batch, list[tuple[Tensor, Tensor, Tensor]]()
        for begin in range(0, len(encoded), size):
            inputs = self._inputs(encoded[begin : begin + size])
            columns.append(self.network.score(*inputs, choices[begin : begin + size]))
        logp_N, entropy_N, value_N = (torch.cat(column).float().cpu() for column in zip(*columns, strict=True))
        return Scores(logp_N=logp_N, entropy_N=entropy_N, value_logit_N=value_N)

    def weights(self) -> dict[str, Tensor]:
        """All weights of the T5, its fusion layers and the value head, each tensor once."""
        return {name: tensor.detach() for name, tensor in self.network.named_parameters()}

    def dump(self) -> bytes:
        """The weights as a safetensors file."""
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Load weights of the same sizes."""
        weights_file.restore(self.weights(), data, source=source, expected="weights of Auto-UI")

    def _inputs(self, encoded: Sequence[Encoded]) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, mask and image vectors."""
        read = self._tokenizer(
            [one.prompt for one in encoded],
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=self.config.prompt_tokens,
        )
        images = self._vision.vectors([one.screenshot for one in encoded], self._images)
        return read["input_ids"].to(self.device), read["attention_mask"].to(self.device), images

    def _decision(self, answered: Generated, row: int, observation: Observation) -> Decision:
        if not answered.finite_B[row]:
            return SKIPPED_DECISION
        answer = answered.answers[row]
        return Decision(
            action=self._dialect.parse(self._text(answer), screen_of(observation)),
            choice=answer,
            logp=float(answered.logp_B[row]),
            entropy=float(answered.entropy_B[row]),
            value=float(torch.sigmoid(answered.value_logit_B[row])),
        )

    def _text(self, answer: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(answer, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text.lstrip("\n")


def screen_of(observation: Observation) -> Screen:
    """The screen that points are on; where its size is not known, the unit square, which points are given in anyway."""
    return Screen(width=observation.width_px or 1, height=observation.height_px or 1)


def previous(action: Action) -> str:
    """The last action as Auto-UI's prompts have it; empty for one that it has no words for."""
    match action:
        case Tap(x=x, y=y) | LongPress(x=x, y=y):
            return _line("DUAL_POINT", _point(x, y), _point(x, y))
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            return _line("DUAL_POINT", _point(x, y), _point(to_x, to_y))
        case TypeText(text=text):
            return _line("TYPE", typed=text)
        case Press(key=key):
            return _line(KEYS[key])
        case Finish():
            return _line("STATUS_TASK_COMPLETE")
    return ""


def _line(kind: str, touch: str = NOWHERE, lift: str = NOWHERE, typed: str = "") -> str:
    return f'"action_type": "{kind}", "touch_point": "{touch}", "lift_point": "{lift}", "typed_text": "{typed}"'


def _point(x: float, y: float) -> str:
    return f"[{y:.4f}, {x:.4f}]"
