"""The prompt of a decision: the task, recent actions, the elements of the screen, and how to answer.

The prompt is bounded whatever the episode and the screen: so many past actions, so many elements, so many characters
of each. Text on a screen is untrusted data: special tokens are taken out of it.
"""

from __future__ import annotations

import re

import msgspec

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.dialects.base import Dialect, Screen
from distrl.policies.vlm.caches import ImageCache
from distrl.policies.vlm.chat import Chat, ChatPrompt
from distrl.policies.vlm.image_processor import ImageProcessor
from distrl.types import Action, Finish, Observation, Past, Tap, TypeText, UiElement, Unparsed

ROLE = "You operate a phone by its touchscreen. Do the task, one action at a time; say so when it is done."
MAX_ELEMENTS = 50
LONGEST_TASK = 1000
LONGEST_TEXT = 80
LONGEST_ACTION = 200
NO_IMAGE_SIZE = (1000, 2000)
"""Width and height that dialects with pixels count in where the model gets no screenshot."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as replay memory holds it: the text of this step alone, and the references of its images."""

    text: str
    images: tuple[str, ...] = ()


class Prompter:
    """Writes the prompts of one model."""

    def __init__(
        self, config: VlmConfig, dialect: Dialect, chat: Chat, processor: ImageProcessor | None, images: ImageCache
    ) -> None:
        self._config, self._dialect, self._chat, self._processor, self._image_cache = (
            config,
            dialect,
            chat,
            processor,
            images,
        )
        if processor is None and not config.elements:
            raise ConfigError(
                "policy.vlm.pictures and policy.vlm.elements are both false",
                expected="screenshots, UI elements or both",
                fix="--policy.vlm.elements true",
            )

    def screen(self, observation: Observation) -> Screen:
        """The screen as the model gets it: the size of the image, and the elements by their number in the prompt."""
        if self._processor is None:
            width, height = NO_IMAGE_SIZE
        else:
            width, height = self._processor.processed_size(self._image_cache.size(_screenshot(observation)))
        listed = tuple(filter(_has_content, observation.elements))[:MAX_ELEMENTS] if self._config.elements else ()
        return Screen(width=width, height=height, elements=listed)

    def encode(self, observation: Observation) -> Encoded:
        """The prompt for a decision on this observation."""
        images, screen = self._images(observation), self.screen(observation)
        blocks = [
            f"Task: {self._short(observation.instruction, LONGEST_TASK)}",
            self._past(observation.recent, screen),
            self._elements(screen),
            "The next action:",
        ]
        return Encoded(text="\n\n".join(filter(None, blocks)), images=images)

    def prompt(self, encoded: Encoded) -> str:
        """The whole prompt, up to where the answer begins."""
        system = f"{ROLE}\n\n{self._dialect.explain()}"
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

    def _past(self, recent: tuple[Past, ...], screen: Screen) -> str:
        shown = recent[-self._config.history :] if self._config.history else ()
        lines = [f"{number}. {self._done(past, screen)}" for number, past in enumerate(shown, start=1)]
        return "\n".join(["Your last actions:", *lines]) if lines else ""

    def _done(self, past: Past, screen: Screen) -> str:
        words, target = self._words(past.action, screen), ""
        if past.target and not isinstance(past.action, TypeText):
            target = f' on "{self._short(past.target)}"'
        if target and self._dialect.by_number:  # prompts in this dialect have no points
            words = words.split()[0]
        outcome = " (not possible)" if not past.valid else "" if past.changed else " (nothing changed)"
        return words + target + outcome

    def _words(self, action: Action, screen: Screen) -> str:
        """The action in the dialect; as JSON where the dialect cannot express it."""
        match action:
            case TypeText(text=text):
                action = TypeText(self._short(text))
            case Finish(answer=answer):
                action = msgspec.structs.replace(action, answer=self._short(answer))
            case Unparsed(raw=raw):
                return f'"{self._short(raw)}"'
        # The numbers of elements on the present screen are not those of the past one.
        bare = msgspec.structs.replace(screen, elements=())
        words = self._dialect.print(action, bare) or msgspec.json.encode(action).decode()
        return " ".join(words.split())[:LONGEST_ACTION]

    def _elements(self, screen: Screen) -> str:
        lines = [self._line(number, element, screen) for number, element in enumerate(screen.elements)]
        return "\n".join(["On the screen:", *lines]) if lines else ""

    def _line(self, number: int, element: UiElement, screen: Screen) -> str:
        named = [f'"{self._short(text)}"' for text in (element.text, element.description) if text]
        where = self._numbers(element, screen)
        flags = {
            "can be scrolled": element.scrollable,
            "on": element.checked is True,
            "off": element.checked is False,
            "has the focus": element.focused,
            "disabled": not element.enabled,
        }
        notes = [*([f"at {where}"] if where else []), *(note for note, holds in flags.items() if holds)]
        return f"[{number}] {' '.join([self._short(element.class_name), *named])} {', '.join(notes)}".rstrip()

    def _numbers(self, element: UiElement, screen: Screen) -> str:
        """Where an element is, in the numbers with which the dialect would touch it; empty: by its place in the list."""
        if self._dialect.by_number:
            return ""
        said = self._dialect.print(Tap(*element.bounds.centre), screen) or ""
        return ",".join(_NUMBER.findall(said)[:2])

    def _short(self, text: str, longest: int = LONGEST_TEXT) -> str:
        """One line of bounded length, without special tokens."""
        return " ".join(self._chat.strip_control_tokens(text[: 4 * longest]).split())[:longest]


def _screenshot(observation: Observation) -> str:
    if not observation.screenshot:
        raise ConfigError(
            "policy.vlm.pictures is true, and the observation has no screenshot",
            expected="a screenshot with every observation",
            fix="--rollout.keep_screenshots true, or --policy.vlm.pictures false",
        )
    return observation.screenshot


def _has_content(element: UiElement) -> bool:
    return bool(element.text or element.description or element.clickable or element.scrollable)
