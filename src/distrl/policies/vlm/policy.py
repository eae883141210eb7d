"""A Hugging Face model as a policy: it reads a prompt with or without pictures and writes its action in a dialect.

A choice is the answer's tokens. Its log-probability is that of the whole answer, at the temperature it was sampled
with. Under gradient, prompts go through the model a few at a time (`scoring`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from PIL import Image
from torch import Tensor

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError, OutOfMemory
from distrl.policies import weights as weights_file
from distrl.policies.base import Scores
from distrl.policies.dialects.catalogue import dialect
from distrl.policies.nonfinite import NO_DECISION, Soundness
from distrl.policies.vlm.adapters import add_adapters
from distrl.policies.vlm.album import Album, Fetch
from distrl.policies.vlm.chat import Chat
from distrl.policies.vlm.eyes import Reading, make_eye, tokenize
from distrl.policies.vlm.fast_generation import FastGenerate, speed_up, suits
from distrl.policies.vlm.generation import Answered, Generate, Sampling, generate
from distrl.policies.vlm.loading import compute_dtype, load_model, precision, weights_dtype
from distrl.policies.vlm.merging import Merging
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.prompt import Encoded, Prompter
from distrl.policies.vlm.room import memory_errors
from distrl.policies.vlm.scoring import Part, Scorer
from distrl.policies.vlm.texts import Texts
from distrl.policies.vlm.tokens import Answer, Inputs, close_up, on_device, pad, vocabulary_of
from distrl.types import Action, Decision, Observation

CPU = torch.device("cpu")
TRIAL_SIZE = (128, 128)
"""Of a picture to try a model with, in pixels."""


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
        self.soundness, self.notices = Soundness(), self.chat.notices
        self._scorer = Scorer(self.network, config, device=device, vocabulary=self.vocabulary, soundness=self.soundness)
        self._generate = generate or _way_to_answer(config, self.network, device)
        self._merging = Merging(self.network) if config.merge and config.lora_rank else None
        if isinstance(self._generate, FastGenerate):  # also for who only learns
            self._try_fast(self._generate)

    def _try_fast(self, fast: FastGenerate) -> None:
        """Take the fast forms and answer one prompt with them; everything as transformers has it where that fails here."""
        slow_down = speed_up(self.network.base)
        self.network.eval()
        sampling = Sampling(
            temperature=1.0, answer_tokens=2, vocabulary=self.vocabulary, generator=torch.Generator().manual_seed(0)
        )
        try:
            with torch.no_grad(), memory_errors("decide_batch", 1):
                self._answer(self._trial(), sampling)
        except ConfigError:
            raise
        except Exception as error:  # compilers and captures fail in more ways than can be named
            slow_down()
            self._generate = generate
            self.notices.append(
                f"the model works as transformers has it, several times slower, since the fast way fails here: "
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; policy.vlm.fast = false does not try it"
            )
        fast.forget()

    def _trial(self) -> Inputs:
        """A prompt, with a picture where the model is to see any."""
        if self._eye is None:
            return self._inputs([Encoded(text="")], [()])
        prompt = self.prompt(Encoded(text="", pictures=("",)))
        return pad(self._eye.read([prompt], [[Image.new("RGB", TRIAL_SIZE)]]), [()], self.vocabulary.padding)

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
        try:
            with memory_errors("decide_batch", len(encoded)):
                answered = self._answer(self._inputs(encoded, [()] * len(encoded)), sampling)
        except OutOfMemory:
            if isinstance(self._generate, FastGenerate):  # smaller batches must not find its caches in their way
                self._generate.forget()
            raise
        self.soundness.note(answered.finite_B, "deciding")
        for row, observation in enumerate(observations):
            yield self._decision(answered, row, observation)

    def _answer(self, inputs: Inputs, sampling: Sampling) -> Answered:
        with precision(self.config, self.device):
            here = on_device(inputs, self.device, compute_dtype(self.config, self.device))
            return self._generate(self.network, here, sampling)

    def _decision(self, answered: Answered, row: int, observation: Observation) -> Decision:
        if not answered.finite_B[row]:
            return NO_DECISION
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
        rows = (order[at : at + size] for at in range(0, len(order), size))
        parts = (self._part([encoded[row] for row in some], [choices[row] for row in some]) for some in rows)
        back = torch.tensor(order).argsort()
        logp_N, entropy_N, value_N = (column[back] for column in self._scorer.score(parts))
        return Scores(logp_N=logp_N, entropy_N=entropy_N, value_logit_N=value_N)

    def _part(self, asked: list[Encoded], answers: list[Answer]) -> Part:
        if self._eye is not None:
            return Part(inputs=self._inputs(asked, answers), answers=answers)
        inputs, first_B = close_up(self._texts.ids(asked), answers, self.vocabulary.padding)
        return Part(inputs=inputs, answers=answers, first_B=first_B)

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
