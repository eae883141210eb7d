"""Prompts and answers about one screenshot as tokens, without the model: for processes that prepare training samples.

Every prompt of a policy with one screenshot is `head`, then the text of its step, then the end of the turn. The head (system
message and image) is the same for all. Tokens are those of `VlmPolicy` for the same prompt, since the image's token
separates the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.dialects import dialect
from distrl.policies.dialects.base import Screen
from distrl.policies.vlm.chat import Chat, ChatPrompt
from distrl.policies.vlm.prompt_text import PromptWriter, system_message
from distrl.types import Action, Observation

IMAGE_SIGN = "<image>"
"""Stands for images where the tokenizer knows it."""
_TEXT = "what is seen"


class PromptTokens:
    """The tokens of one policy's prompts, for screenshots that are `size` large for the model."""

    def __init__(self, config: VlmConfig, size: tuple[int, int]) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(Path(config.path), local_files_only=True)
        self._config, self._dialect, self._size = config, dialect(config.dialect), size
        self.image_token_id = image_token_id(self._tokenizer)
        self._image = str(self._tokenizer.convert_ids_to_tokens(self.image_token_id))
        chat = Chat(self._tokenizer, config.path, self._image)
        self._writer = PromptWriter(config, self._dialect, chat.strip_control_tokens)
        prompt = chat.render(ChatPrompt(system=system_message(self._dialect), text=_TEXT, num_images=1))
        self._head, _, self._tail = prompt.partition(_TEXT)

    def head(self, num_image_tokens: int) -> list[int]:
        """What all prompts begin with, to the end of an image of so many tokens."""
        return self._ids(self._head.replace(self._image, self._image * num_image_tokens))

    def prompt(self, observation: Observation) -> list[int]:
        """What follows the head in the prompt for a decision on this observation."""
        return self._ids(self._writer.text(observation, self._screen(observation)) + self._tail)

    def answer(self, action: Action, observation: Observation) -> list[int] | None:
        """The tokens that print `action`, with the end token; None where the dialect cannot, or in too many."""
        text = self._dialect.print(action, self._screen(observation))
        if text is None:
            return None
        ids = [*self._ids(text), self._tokenizer.eos_token_id]
        return ids if len(ids) <= self._config.answer_tokens and self.image_token_id not in ids else None

    def _screen(self, observation: Observation) -> Screen:
        return self._writer.screen(observation, self._size)

    def _ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return found


def image_token_id(tokenizer: Any) -> int:
    """The token that stands for images: `IMAGE_SIGN`, or the last special token that prompts do without."""
    known = tokenizer.get_added_vocab()
    ids: int | None = known.get(IMAGE_SIGN)
    used = set(tokenizer.convert_ids_to_tokens(tokenizer("<|im_start|>", add_special_tokens=False)["input_ids"]))
    used |= {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token}
    free = [number for name, number in sorted(known.items(), key=lambda pair: pair[1]) if name not in used]
    if ids is None and not free:
        raise ConfigError(
            "the tokenizer has no special token to spare, which could stand for images",
            expected=f"{IMAGE_SIGN}, or an added token that prompts do not use",
            fix="another language model, or add one to its tokenizer",
        )
    return ids if ids is not None else free[-1]
