"""The prompt of a decision: the system message, the screenshots, and what `prompt_text` says about the step."""

from __future__ import annotations

import msgspec

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.dialects.base import Dialect, Screen
from distrl.policies.vlm.caches import ImageCache
from distrl.policies.vlm.chat import Chat, ChatPrompt
from distrl.policies.vlm.image_processor import ImageProcessor
from distrl.policies.vlm.prompt_text import PromptWriter, system_message
from distrl.types import Observation

NO_IMAGE_SIZE = (1000, 2000)
"""Width and height that dialects with pixels count in where the model gets no screenshot."""


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as replay memory holds it: the text of this step alone, and the references of its images."""

    text: str
    images: tuple[str, ...] = ()


class Prompter:
    """Writes the prompts of one model."""

    def __init__(
        self, config: VlmConfig, dialect: Dialect, chat: Chat, processor: ImageProcessor | None, images: ImageCache
    ) -> None:
        self._config, self._dialect, self._chat = config, dialect, chat
        self._processor, self._image_cache = processor, images
        self._writer = PromptWriter(config, dialect, chat.strip_control_tokens)
        if processor is None and not config.elements:
            raise ConfigError(
                "policy.vlm.pictures and policy.vlm.elements are both false",
                expected="screenshots, UI elements or both",
                fix="--policy.vlm.elements true",
            )

    def screen(self, observation: Observation) -> Screen:
        """The screen as the model gets it: the size of the image, and the elements by their number in the prompt."""
        if self._processor is None:
            return self._writer.screen(observation, NO_IMAGE_SIZE)
        size = self._processor.processed_size(self._image_cache.size(_screenshot(observation)))
        return self._writer.screen(observation, size)

    def encode(self, observation: Observation) -> Encoded:
        """The prompt for a decision on this observation."""
        images, screen = self._images(observation), self.screen(observation)
        return Encoded(text=self._writer.text(observation, screen), images=images)

    def prompt(self, encoded: Encoded) -> str:
        """The whole prompt, up to where the answer begins."""
        system = system_message(self._dialect)
        return self._chat.render(ChatPrompt(system=system, text=encoded.text, num_images=len(encoded.images)))

    def _images(self, observation: Observation) -> tuple[str, ...]:
        """Oldest first, the present one last."""
        if self._processor is None:
            return ()
        wanted = self._config.history_pictures
        earlier = [past.screenshot for past in observation.recent[-wanted:] if past.screenshot] if wanted else []
        for reference in earlier:
            self._image_cache.size(reference)  # a missing one fails now, and not in the middle of an update
        return (*earlier, _screenshot(observation))


def _screenshot(observation: Observation) -> str:
    if not observation.screenshot:
        raise ConfigError(
            "policy.vlm.pictures is true, and the observation has no screenshot",
            expected="a screenshot with every observation",
            fix="--rollout.keep_screenshots true, or --policy.vlm.pictures false",
        )
    return observation.screenshot
