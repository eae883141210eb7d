"""A Hugging Face model as a policy: it reads a prompt with or without pictures and writes its action in a dialect.

A choice is the answer's tokens. Its log-probability is that of the whole answer, at the temperature it was sampled
with. Under gradient, prompts go through the model a few at a time and are computed again in the backward pass, so the
memory that an update needs does not grow with its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from distrl.config.schema import VlmConfig
from distrl.policies import weights_file
from distrl.policies.base import Scores
from distrl.policies.dialects.catalogue import dialect
from distrl.policies.vlm.adapters import add_adapters
from distrl.policies.vlm.album import Album, Fetch
from distrl.policies.vlm.chat import Chat
from distrl.policies.vlm.eyes import Reading, make_eye, tokenize
from distrl.policies.vlm.fast_generation import FastGenerate, suits
from distrl.policies.vlm.fast_layers import fuse_layers
from distrl.policies.vlm.faults import Soundness, memory_errors
from distrl.policies.vlm.generation import Answered, Generate, Sampling, generate
from distrl.policies.vlm.loading import compute_dtype, load_model, weights_dtype
from distrl.policies.vlm.merging import Merging
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.prompt import Encoded, Prompter
from distrl.policies.vlm.texts import Texts
from distrl.policies.vlm.tokens import Answer, Inputs, close_up, entropy_of, log_chances, pad, vocabulary_of
from distrl.types import Action, Decision, Observation, Unparsed

CPU = torch.device("cpu")
Parts = tuple[Tensor, Tensor, Tensor]
"""Log-probability, entropy and value logit of a few answers."""


class VlmPolicy:
    """`policies.base.Policy` over a model in a folder."""

    def __init__(
        self,
        config: VlmConfig,
        *,
        seed: int,
        fetch: Fetch,
        device: torch.device = CPU,
        generate: Generate | None = None,
    ) -> None:
        torch.manual_seed(seed)
        self.config, self.device = config, device
        model = load_model(config, self.device)
        self.tokenizer, self.dialect, self.native_dtype = model.tokenizer, dialect(config.dialect), model.config.dtype
        self.vocabulary = vocabulary_of(model)
        self._eye, self._album = make_eye(model, config), Album(fetch)
        self.chat = Chat(model, config.path, self._eye.placeholder if self._eye else "")
        self._prompter = Prompter(config, self.dialect, self.chat, self._eye, self._album)
        self._texts = Texts(lambda encoded: tokenize(self.tokenizer, [self.prompt(item) for item in encoded]))
        self.network = VlmNetwork(add_adapters(model.network, config), value_width=config.value_width)
        if config.gradient_checkpointing:
            self.network.base.gradient_checkpointing_enable({"use_reentrant": False})
        self.soundness, self.notices = Soundness(), self.chat.notices
        self._generate = generate or _way_to_answer(config, self.network, device)
        self._merging = Merging(self.network) if config.merge and config.lora_rank else None
        if isinstance(self._generate, FastGenerate):
            fuse_layers(self.network.base)  # also for who only learns

    # reading

    def encode(self, observation: Observation) -> Encoded:
        return self._prompter.encode(observation)

    def prompt(self, encoded: Encoded) -> str:
        """The prompt as the model gets it, with a placeholder for each picture."""
        return self._prompter.prompt(encoded)

    def augment(self, encoded: Encoded) -> Encoded:
        return encoded

    def imitate(self, observation: Observation, action: Action) -> Answer | None:
        words = self.dialect.print(action, self._prompter.screen(observation))
        if words is None:
            return None
        answer = (*tokenize(self.tokenizer, [words])[0], self.vocabulary.ends[0])
        sayable = len(answer) <= self.config.answer_tokens and not set(answer) & set(self.vocabulary.forbidden)
        return answer if sayable else None

    def _inputs(self, encoded: Sequence[Encoded], answers: Sequence[Answer]) -> Inputs:
        if self._eye is None:
            reading = Reading(ids=self._texts.ids(encoded))
        else:
            pictures = [[self._album.picture(ref) for ref in item.pictures] for item in encoded]
            reading = self._eye.read([self.prompt(item) for item in encoded], pictures)
        return pad(reading, answers, self.vocabulary.padding)

    def _on_device(self, inputs: Inputs) -> Inputs:
        floats = compute_dtype(self.config, self.device)
        return {
            name: value.to(self.device, floats if value.is_floating_point() else None) for name, value in inputs.items()
        }

    # deciding

    @torch.no_grad()
    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        sampling = Sampling(
            temperature=temperature,
            answer_tokens=self.config.answer_tokens,
            vocabulary=self.vocabulary,
            generator=generator,
        )
        self.network.eval()
        if self._merging is not None:
            self._merging.join()
        size = self.config.decide_batch
        parts = (observations[at : at + size] for at in range(0, len(observations), size))
        return [decision for part in parts for decision in self._decide(part, sampling)]

    def _decide(self, observations: Sequence[Observation], sampling: Sampling) -> Iterator[Decision]:
        encoded = [self.encode(observation) for observation in observations]
        with memory_errors("decide_batch", self.config.decide_batch), self._precision():
            inputs = self._on_device(self._inputs(encoded, [()] * len(encoded)))
            answered = self._generate(self.network, inputs, sampling)
        self.soundness.note(answered.finite_B, "deciding")
        for row, observation in enumerate(observations):
            yield self._decision(answered, row, observation)

    def _decision(self, answered: Answered, row: int, observation: Observation) -> Decision:
        if not answered.finite_B[row]:
            # An empty choice teaches nothing, and the step is invalid.
            return Decision(action=Unparsed(""), choice=(), logp=0.0, entropy=0.0, value=0.5)
        answer = answered.answers[row]
        return Decision(
            action=self.dialect.parse(self._say(answer), self._prompter.screen(observation)),
            choice=answer,
            logp=float(answered.logp_B[row]),
            entropy=float(answered.entropy_B[row]),
            value=float(torch.sigmoid(answered.value_logit_B[row])),
        )

    def _say(self, answer: Answer) -> str:
        """The words of an answer, with whatever special tokens its format uses."""
        said = answer[:-1] if answer and answer[-1] in self.vocabulary.ends else answer
        words: str = self.tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return words

    # scoring

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        order = sorted(range(len(encoded)), key=lambda row: (len(encoded[row].pictures), len(encoded[row].text)))
        size = self.config.score_batch
        if self._merging is not None:
            self._merging.part()
        self.network.train(self.config.gradient_checkpointing and torch.is_grad_enabled())
        parts = [self._score_part(encoded, choices, order[at : at + size]) for at in range(0, len(order), size)]
        back = torch.tensor(order).argsort()
        logp_N, entropy_N, value_N = (torch.cat(column)[back] for column in zip(*parts, strict=True))
        return Scores(logp_N=logp_N, entropy_N=entropy_N, value_logit_N=value_N)

    def _score_part(self, encoded: Sequence[Encoded], choices: Sequence[Answer], rows: list[int]) -> Parts:
        asked, answers, first_B = [encoded[row] for row in rows], [choices[row] for row in rows], None
        if self._eye is None:
            inputs, first_B = close_up(self._texts.ids(asked), answers, self.vocabulary.padding)
        else:
            inputs = self._inputs(asked, answers)
        if torch.is_grad_enabled() and len(encoded) > self.config.score_batch:
            # All parts wait for one backward pass: keep none of their activations until then.
            parts: Parts = checkpoint(
                self._score, inputs, answers, first_B, use_reentrant=False, preserve_rng_state=False
            )
        else:
            parts = self._score(inputs, answers, first_B)
        return self._sound(parts)

    def _score(self, inputs: Inputs, answers: list[Answer], first_B: Tensor | None) -> Parts:
        """`first_B`: where each prompt ends, for rows that are closed up; otherwise all prompts end in one column."""
        longest, first_B = max(map(len, answers)), None if first_B is None else first_B.to(self.device)
        with memory_errors("score_batch", self.config.score_batch), self._precision():
            logits_BKV, hidden_BKD = self.network(self._on_device(inputs), keep=longest + 1, first_B=first_B)
            logp_BAV = log_chances(logits_BKV[:, :-1], self.vocabulary.never(logits_BKV.device))
            value_B = self.network.value(hidden_BKD[:, 0])
            said = torch.nn.utils.rnn.pad_sequence([torch.tensor(a, dtype=torch.long) for a in answers], True)
            said_BA = said.to(self.device)
            mask_BA = torch.tensor([[at < len(a) for at in range(longest)] for a in answers], device=self.device)
            logp_BA = logp_BAV.gather(-1, said_BA[..., None]).squeeze(-1)
            summed = ((x_BA * mask_BA).sum(-1).float().cpu() for x_BA in (logp_BA, entropy_of(logp_BAV)))
            logp_B, entropy_B = summed
        return logp_B, entropy_B, value_B.float().cpu()

    def _sound(self, parts: Parts) -> Parts:
        """The same, cut off from the model where something is no number: it would spoil the whole update."""
        finite_N = torch.stack([part.detach().isfinite() for part in parts]).all(0)
        self.soundness.note(finite_N, "scoring")
        if bool(finite_N.all()):
            return parts
        # Still something to send a gradient into, so that an update of nothing else does not fail.
        learning = torch.is_grad_enabled()
        cut = (part.detach().nan_to_num(0.0, 0.0, 0.0).requires_grad_(learning) for part in parts)
        logp_N, entropy_N, value_N = cut
        return logp_N, entropy_N, value_N

    def _precision(self) -> AbstractContextManager[object]:
        """Weights that are all trained stay in float32, whatever the model computes with."""
        computes = compute_dtype(self.config, self.device)
        if self.config.lora_rank or computes == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, computes)

    # weights

    def weights(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.network.named_parameters() if tensor.requires_grad}

    def dump(self) -> bytes:
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        expected = f"what is trained of {self.config.path} with policy.vlm.lora_rank = {self.config.lora_rank}"
        weights_file.restore(self.weights(), data, source=source, expected=expected)


def _way_to_answer(config: VlmConfig, network: VlmNetwork, device: torch.device) -> Generate:
    """The fast way on a GPU, for a model that it suits and whose weights are in the numbers that it computes with."""
    in_kind = weights_dtype(config, device) == compute_dtype(config, device)
    if config.fast and device.type == "cuda" and in_kind and suits(network.base):
        return FastGenerate()
    return generate
