"""A Hugging Face model as a policy: a prompt with or without screenshots in, an action in a dialect out.

A choice is the answer's tokens. Its log-probability is that of the whole answer, at the temperature it was sampled
with. Under gradient, prompts go through the model in micro-batches (`scoring`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property

import torch
from PIL import Image
from torch import Tensor

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError, OutOfMemory
from distrl.policies import weights as weights_file
from distrl.policies.base import PolicyContext, Scores
from distrl.policies.dialects import dialect
from distrl.policies.nonfinite import SKIPPED_DECISION, NonFiniteGuard
from distrl.policies.oom import vlm_oom_errors
from distrl.policies.vlm.adapters import AdapterMerger, add_adapters
from distrl.policies.vlm.caches import ImageCache, PixelCache, TextCache
from distrl.policies.vlm.chat import Chat
from distrl.policies.vlm.engine import Prompt, common_prefix, prompts_of
from distrl.policies.vlm.fast_generation import FastGenerate, generated, speed_up, supports
from distrl.policies.vlm.fast_vision import FastVision, computes_vision
from distrl.policies.vlm.generation import Generate, Generated, Sampling, generate
from distrl.policies.vlm.image_processor import PatchProcessor, UnpaddedInputs, make_image_processor, tokenize
from distrl.policies.vlm.loading import compute_dtype, load_model, precision, weights_dtype
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.packed import Image as ImageOnDevice
from distrl.policies.vlm.packed import ImageFeatures, Packed, feature_bytes, image_features, pack
from distrl.policies.vlm.prompt import Encoded, Prompter
from distrl.policies.vlm.rows import has_fp8
from distrl.policies.vlm.scoring import MicroBatch, Scorer
from distrl.policies.vlm.tokens import Answer, Inputs, on_device, pack_rows, pad, vocabulary_of
from distrl.types import Action, Decision, Observation

PACKED_TOKENS = 16_384
"""Of a micro-batch without padding: with fewer, a GPU waits for Python; more are no faster."""
TRIAL_SIZE = (128, 128)
"""Of the image that the fast path is tried with, in pixels."""


class VlmPolicy:
    """`policies.base.Policy` over a model in a folder."""

    def __init__(
        self, config: VlmConfig, context: PolicyContext, *, generate: Generate | FastGenerate | None = None
    ) -> None:
        torch.manual_seed(context.seed)
        self.config, self.device = config, context.device
        model = load_model(config, self.device)
        self.tokenizer, self.dialect, self.native_dtype = model.tokenizer, dialect(config.dialect), model.config.dtype
        self.vocabulary = vocabulary_of(model)
        self._processor, self._image_cache = make_image_processor(model, config), ImageCache(context.frames)
        self.chat = Chat(self.tokenizer, config.path, self._processor.placeholder if self._processor else "")
        self._prompter = Prompter(config, self.dialect, self.chat, self._processor, self._image_cache)
        self._text_cache, self._pixels = TextCache[Encoded](self._tokenize), PixelCache()
        self._beforehand = ThreadPoolExecutor(1, thread_name_prefix="prompts")
        """Reads the prompts of the next micro-batches."""
        self.network = VlmNetwork(add_adapters(model.network, config), value_width=config.value_width)
        self.nonfinite, self.notices = NonFiniteGuard(), self.chat.notices
        self.scorer = Scorer(
            self.network, config, device=self.device, vocabulary=self.vocabulary, nonfinite=self.nonfinite
        )
        # Those of a tower that is trained would be wrong after the next update.
        self._features = ImageFeatures(feature_bytes(self.device) if config.lora_rank else 0.0)
        self._generate = generate or _choose_generate(config, self.network, self.device)
        if config.fp8 != "none" and not (isinstance(self._generate, FastGenerate) and _can_fp8(config, self.device)):
            self.notices.append(
                f'policy.vlm.fp8 = "{config.fp8}" has no effect here: it needs the fast path, frozen bfloat16 weights (lora_rank above 0) and a GPU with float8 (Ada, Hopper or newer)'
            )
        self._vision: FastVision | None = None
        self._asked: dict[int, Observation] = {}
        self._merger = AdapterMerger(self.network) if config.merge and config.lora_rank else None
        if isinstance(self._generate, FastGenerate):  # also in the learner, whose forward passes are sped up too
            self._try_fast(self._generate)

    @property
    def num_undecodable(self) -> int:
        """Screenshots that could not be decoded and were replaced by black ones."""
        return self._image_cache.num_undecodable

    def learning_oom_errors(self) -> AbstractContextManager[None]:
        """CUDA OOM while learning, as an error that names the portions in which prompts are scored."""
        return vlm_oom_errors("score_batch", self.config.score_batch)

    def _try_fast(self, fast: FastGenerate) -> None:
        """Switch to the fast forward passes and answer one prompt with them; back to stock transformers where that fails."""
        slow_down = speed_up(self.network.base)
        self.network.eval()
        if computes_vision(self.network.base):
            self._vision = FastVision(
                self.network.base.model.visual, fp8=self.config.fp8 != "none" and _can_fp8(self.config, self.device)
            )
        try:
            with torch.no_grad(), vlm_oom_errors("decide_batch", 1), precision(self.config, self.device):
                fast.open(self.network, self.vocabulary, slots=1, answer_tokens=2)
                fast.ask({0: self._trial()})
                while not fast.advance():
                    pass
        except ConfigError:
            raise
        except Exception as error:  # compilers and graph captures raise anything; stock transformers still works
            slow_down()
            self._generate, self._vision = generate, None
            self.notices.append(
                f"the model runs on stock transformers, several times slower, since the fast path fails here: "
                f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; policy.vlm.fast = false skips it"
            )
        fast.close()

    def _trial(self) -> Prompt:
        """A prompt, with an image where the model takes screenshots."""
        images: list[ImageOnDevice] = []
        unpadded = UnpaddedInputs(ids=[])
        if isinstance(self._processor, PatchProcessor):
            images = self._image_features(self._processor, self._processor.pixels([Image.new("RGB", TRIAL_SIZE)]))
            unpadded = self._processor.fill([self.prompt(Encoded(text="", images=("",)))], images[0].grid[None])
        else:
            unpadded = UnpaddedInputs(ids=tokenize(self.tokenizer, [self.prompt(Encoded(text=""))]))
        packed = pack(unpadded, [()], self.network.base, images)
        return prompts_of(packed, [len(images)], torch.rand(1, 2, dtype=torch.float64), 1.0)[0]

    def encode(self, observation: Observation) -> Encoded:
        """The text of the prompt and the references of its screenshots."""
        return self._prompter.encode(observation)

    def prompt(self, encoded: Encoded) -> str:
        """The prompt as the model gets it, with a placeholder for each image."""
        return self._prompter.prompt(encoded)

    def augment(self, encoded: Encoded) -> Encoded:
        """The same: there is no data augmentation for prompts."""
        return encoded

    def imitate(self, observation: Observation, action: Action) -> Answer | None:
        """The tokens that print `action` in the dialect; None where it cannot, or where they are too many."""
        text = self.dialect.print(action, self._prompter.screen(observation))
        if text is None:
            return None
        answer = (*tokenize(self.tokenizer, [text])[0], self.vocabulary.ends[0])
        expressible = len(answer) <= self.config.answer_tokens and not set(answer) & set(self.vocabulary.forbidden)
        return answer if expressible else None

    def _inputs(self, encoded: Sequence[Encoded], answers: Sequence[Answer]) -> Inputs:
        if self._processor is None:
            unpadded = UnpaddedInputs(ids=self._text_cache.ids(encoded))
        else:
            images = [[self._image_cache.image(ref) for ref in item.images] for item in encoded]
            unpadded = self._processor.process([self.prompt(item) for item in encoded], images)
        return pad(unpadded, answers, self.vocabulary.padding)

    @torch.no_grad()
    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """A decision for each observation, `decide_batch` of them at a time."""
        if self.is_continuous:
            self.ask(dict(enumerate(observations)), temperature=temperature, generator=generator)
            found: dict[int, Decision] = {}
            while len(found) < len(observations):
                found.update(self.advance())
            return [found[number] for number in range(len(observations))]
        sampling = Sampling(
            temperature=temperature,
            answer_tokens=self.config.answer_tokens,
            vocabulary=self.vocabulary,
            generator=generator,
        )
        self.network.eval()
        if self._merger is not None:
            self._merger.merge()
        size = self.config.decide_batch
        parts = (observations[at : at + size] for at in range(0, len(observations), size))
        return [decision for part in parts for decision in self._decide(part, sampling)]

    def _decide(self, observations: Sequence[Observation], sampling: Sampling) -> Iterator[Decision]:
        encoded = [self.encode(observation) for observation in observations]
        with vlm_oom_errors("decide_batch", len(encoded)):
            answered = self._answer(self._inputs(encoded, [()] * len(encoded)), sampling)
        yield from self._decisions(answered, observations)

    @property
    def is_continuous(self) -> bool:
        """Whether observations may be asked about while others are answered: `ask` and `advance`."""
        return isinstance(self._generate, FastGenerate)

    @torch.no_grad()
    def ask(self, observations: Mapping[int, Observation], *, temperature: float, generator: torch.Generator) -> None:
        """Ask about observations, each by a ticket of the caller's; they join the answers under way as soon as there is room.

        The weights must not change before all have been answered.
        """
        fast = self._opened()
        if self._merger is not None:
            self._merger.merge()
        if self.network.training:  # walking through all modules takes a while
            self.network.eval()
        asked = [self.encode(observation) for observation in observations.values()]
        shares_BA = torch.rand(len(asked), self.config.answer_tokens, dtype=torch.float64, generator=generator)
        try:
            with vlm_oom_errors("decide_batch", len(asked)), precision(self.config, self.device):
                packed = self._packed(asked, [()] * len(asked))
        except OutOfMemory:
            self._give_up(fast)
            raise
        prompts = prompts_of(packed, [len(one.images) for one in asked], shares_BA, temperature)
        self._asked.update(observations)
        fast.ask(dict(zip(observations, prompts, strict=True)), prefix=self._prefix)

    @torch.no_grad()
    def advance(self) -> list[tuple[int, Decision]]:
        """One more token of every answer under way; the tickets and decisions of those that are over."""
        fast = self._opened()
        try:
            with (
                vlm_oom_errors("decide_batch", min(len(self._asked), self.config.decide_batch)),
                precision(self.config, self.device),
            ):
                found = fast.advance()
        except OutOfMemory:
            self._give_up(fast)
            raise
        if not found:
            return []
        decided = self._decisions(generated(found), [self._asked.pop(one.ticket) for one in found])
        return [(one.ticket, decision) for one, decision in zip(found, decided, strict=True)]

    def _give_up(self, fast: FastGenerate) -> None:
        """Forget what is under way; its cache must not stand in the way of smaller batches."""
        fast.clear()
        self._asked.clear()

    def _opened(self) -> FastGenerate:
        fast = self._generate
        assert isinstance(fast, FastGenerate), "only where is_continuous"
        if not fast.is_open:
            config = self.config
            fast.open(self.network, self.vocabulary, slots=config.decide_batch, answer_tokens=config.answer_tokens)
        return fast

    @cached_property
    def _prefix(self) -> tuple[int, ...]:
        """The tokens that all prompts begin with: the system message."""
        images = () if self._processor is None else ("",)
        both = [self.prompt(Encoded(text=text, images=images)) for text in ("One", "Another")]
        first, second = tokenize(self.tokenizer, both)
        return common_prefix(first, second, set(self.vocabulary.forbidden))

    def _decisions(self, answered: Generated, observations: Sequence[Observation]) -> list[Decision]:
        self.nonfinite.check(answered.finite_B, "deciding")
        return [self._decision(answered, row, observation) for row, observation in enumerate(observations)]

    def _answer(self, inputs: Inputs, sampling: Sampling) -> Generated:
        with precision(self.config, self.device):
            here = on_device(inputs, self.device, compute_dtype(self.config, self.device))
            generate = self._generate
            assert not isinstance(generate, FastGenerate), "which is asked, not called"
            return generate(self.network, here, sampling)

    def _decision(self, answered: Generated, row: int, observation: Observation) -> Decision:
        if not answered.finite_B[row]:
            return SKIPPED_DECISION
        answer = answered.answers[row]
        return Decision(
            action=self.dialect.parse(self._text(answer), self._prompter.screen(observation)),
            choice=answer,
            logp=float(answered.logp_B[row]),
            entropy=float(answered.entropy_B[row]),
            value=float(torch.sigmoid(answered.value_logit_B[row])),
        )

    def _text(self, answer: Answer) -> str:
        """The text of an answer, with whatever special tokens its dialect uses."""
        said = answer[:-1] if answer and answer[-1] in self.vocabulary.ends else answer
        words: str = self.tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return words

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        """Log-probability, entropy and value of given answers, with gradient, `score_batch` of them at a time."""
        order = sorted(range(len(encoded)), key=lambda row: (len(encoded[row].images), len(encoded[row].text)))
        size = self.config.score_batch
        if self._merger is not None:
            self._merger.unmerge()
        if self._packs():
            size = max(size, self._rows_at_once([encoded[row] for row in order]))
        rows = [order[at : at + size] for at in range(0, len(order), size)]
        parts = (self._micro_batch([encoded[row] for row in some], [choices[row] for row in some]) for some in rows)
        back = torch.tensor(order).argsort()
        with self._reading_ahead([[encoded[row] for row in some] for some in rows[1:]]):
            logp_N, entropy_N, value_N = (column[back] for column in self.scorer.score(parts))
        return Scores(logp_N=logp_N, entropy_N=entropy_N, value_logit_N=value_N)

    @contextmanager
    def _reading_ahead(self, parts: Sequence[list[Encoded]]) -> Iterator[None]:
        """Read the prompts of the next micro-batches while the one before is computed, and nothing after the block."""
        reading = [self._beforehand.submit(self._prepare, part) for part in parts] if self._packs() else []
        try:
            yield
        finally:  # a process of a learner with several gets its screenshots from that learner, which listens no longer
            wait(reading)

    def _micro_batch(self, asked: list[Encoded], answers: list[Answer]) -> MicroBatch | Packed:
        if self._packs():
            return self._packed(asked, answers)
        if self._processor is not None:
            return MicroBatch(inputs=self._inputs(asked, answers), answers=answers)
        inputs, first_B = pack_rows(self._text_cache.ids(asked), answers, self.vocabulary.padding)
        return MicroBatch(inputs=inputs, answers=answers, first_B=first_B)

    def _rows_at_once(self, encoded: Sequence[Encoded]) -> int:
        """Prompts that fill the chip, if the memory that is free lets it keep all activations of so many tokens."""
        if self.device.type != "cuda":
            return 1
        longest = encoded[-1]  # of those with most images
        tokens = len(self._packed([longest], [()]).ids_N) + self.config.answer_tokens
        return int(min(PACKED_TOKENS, self.scorer.tokens_at_once()) // tokens)

    def _packs(self) -> bool:
        """Whether answers are scored without padding: on the fast path, with a frozen language head and vision tower."""
        fits = self._processor is None or isinstance(self._processor, PatchProcessor)
        return isinstance(self._generate, FastGenerate) and self.config.lora_rank > 0 and fits

    def _packed(self, asked: list[Encoded], answers: list[Answer]) -> Packed:
        ids = self._text_cache.ids(asked)
        if not isinstance(self._processor, PatchProcessor):
            return pack(UnpaddedInputs(ids=ids), answers, self.network.base)
        images = self._images(self._processor, [reference for item in asked for reference in item.images])
        return pack(self._processor.filled(ids), answers, self.network.base, images)

    def _tokenize(self, asked: Sequence[Encoded]) -> list[list[int]]:
        """The tokens of some prompts, with as many placeholders as their screenshots have tokens."""
        prompts, processor = [self.prompt(item) for item in asked], self._processor
        if not isinstance(processor, PatchProcessor):
            return tokenize(self.tokenizer, prompts)
        grids = [processor.grid(self._image_cache.size(reference)) for item in asked for reference in item.images]
        return [list(row) for row in processor.fill(prompts, torch.tensor(grids)).ids]

    def prepare(self, observations: Sequence[Observation]) -> None:
        """Write and tokenize the prompts of some observations, and decode and scale their screenshots: what `ask` begins with."""
        self._prepare([self.encode(observation) for observation in observations])

    def _prepare(self, asked: Sequence[Encoded]) -> None:
        processor = self._processor
        if not self._packs():
            return
        self._text_cache.ids(asked)
        if isinstance(processor, PatchProcessor):
            new = [
                reference
                for reference in dict.fromkeys(reference for item in asked for reference in item.images)
                if reference not in self._pixels and reference not in self._features
            ]
            shown = processor.pixels(self._image_cache.images(new))
            for reference, pixels in zip(new, shown, strict=True):
                self._pixels.put(reference, pixels)

    @torch.no_grad()
    def _images(self, processor: PatchProcessor, references: Sequence[str]) -> list[ImageOnDevice]:
        """What the vision tower makes of some screenshots: kept ones, and new ones all at once."""
        known = {reference: self._features.get(reference) for reference in references}
        found = {reference: image for reference, image in known.items() if image is not None}
        new = [reference for reference in known if reference not in found]
        if new:
            with vlm_oom_errors("score_batch", len(new)), precision(self.config, self.device):
                made = self._image_features(processor, self._taken_pixels(processor, new))
            for reference, image in zip(new, made, strict=True):
                found[reference] = image
                self._features.put(reference, image)
        return [found[reference] for reference in references]

    def _taken_pixels(self, processor: PatchProcessor, references: Sequence[str]) -> list[Tensor]:
        """Screenshots as the model gets them: those that were prepared, and the others now."""
        found = {reference: self._pixels.take(reference) for reference in references}
        new = [reference for reference, pixels in found.items() if pixels is None]
        made = dict(zip(new, processor.pixels(self._image_cache.images(new)), strict=True))
        return [made[reference] if pixels is None else pixels for reference, pixels in found.items()]

    def _image_features(self, processor: PatchProcessor, shown: Sequence[Tensor]) -> list[ImageOnDevice]:
        inputs = processor.patches_of(shown, self.device)
        here = on_device(inputs, self.device, compute_dtype(self.config, self.device))
        pixels, grids = here["pixel_values"], inputs["image_grid_thw"]
        if self._vision is None:
            return image_features(self.network.base, pixels, here["image_grid_thw"])
        made = zip(self._vision(pixels, grids), grids, strict=True)
        return [ImageOnDevice(features=features, grid=grid) for features, grid in made]

    def weights(self) -> dict[str, Tensor]:
        """What is trained: adapters and value head, or everything with `lora_rank` 0."""
        return {name: tensor for name, tensor in self.network.named_parameters() if tensor.requires_grad}

    def dump(self) -> bytes:
        """The trained weights as a safetensors file."""
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Load trained weights of the same model and rank."""
        expected = f"what is trained of {self.config.path} with policy.vlm.lora_rank = {self.config.lora_rank}"
        weights_file.restore(self.weights(), data, source=source, expected=expected)


def _can_fp8(config: VlmConfig, device: torch.device) -> bool:
    """Whether frozen weights can be in float8: trained ones would change under their copies."""
    return has_fp8(device) and config.lora_rank > 0 and compute_dtype(config, device) == torch.bfloat16


def _choose_generate(config: VlmConfig, network: VlmNetwork, device: torch.device) -> Generate | FastGenerate:
    """The fast path on a GPU, for a supported model whose weights have the dtype that it computes with."""
    same_dtype = weights_dtype(config, device) == compute_dtype(config, device)
    if config.fast and device.type == "cuda" and same_dtype and supports(network.base):
        return FastGenerate(fp8=config.fp8 == "all" and _can_fp8(config, device))
    return generate
