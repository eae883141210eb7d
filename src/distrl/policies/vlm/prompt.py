"""What a model is told before a decision: the task, what it did lately, what is on the screen, and how to answer.

The prompt has a bound that no episode and no screen can move: so many past actions, so many elements, so many
characters of each. What stands on a screen is data; signs that steer the tokenizer are taken out of it.
"""

from __future__ import annotations

import re

import msgspec

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.dialects.base import Dialect, Screen
from distrl.policies.vlm.album import Album
from distrl.policies.vlm.chat import Chat, Question
from distrl.policies.vlm.eyes import Eye
from distrl.types import Action, Finish, Observation, Past, Tap, TypeText, UiElement, Unparsed

ROLE = "You operate a phone by its touchscreen. Do the task, one action at a time; say so when it is done."
MOST_ELEMENTS = 50
LONGEST_TASK = 1000
LONGEST_TEXT = 80
LONGEST_ACTION = 200
UNSEEN = (1000, 2000)
"""Width and height that formats with pixels count in where no picture is shown."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as memory keeps it: what is said in this one alone, and the references of its pictures."""

    text: str
    pictures: tuple[str, ...] = ()


class Prompter:
    """Writes the prompts of one model."""

    def __init__(self, config: VlmConfig, dialect: Dialect, chat: Chat, eye: Eye | None, album: Album) -> None:
        self._config, self._dialect, self._chat, self._eye, self._album = config, dialect, chat, eye, album
        if eye is None and not config.elements:
            raise ConfigError(
                "policy.vlm.pictures and policy.vlm.elements are both false",
                expected="something to look at",
                fix="--policy.vlm.elements true",
            )

    def screen(self, observation: Observation) -> Screen:
        """The screen as the model sees it: the size of the picture, and the elements by their number in the prompt."""
        if self._eye is None:
            width, height = UNSEEN
        else:
            width, height = self._eye.shown_size(self._album.size(_screenshot(observation)))
        listed = tuple(filter(_says_something, observation.elements))[:MOST_ELEMENTS] if self._config.elements else ()
        return Screen(width=width, height=height, elements=listed)

    def encode(self, observation: Observation) -> Encoded:
        """What a decision on this observation is asked with."""
        pictures, screen = self._pictures(observation), self.screen(observation)
        blocks = [
            f"Task: {self._short(observation.instruction, LONGEST_TASK)}",
            self._past(observation.recent, screen),
            self._elements(screen),
            "The next action:",
        ]
        return Encoded(text="\n\n".join(filter(None, blocks)), pictures=pictures)

    def prompt(self, encoded: Encoded) -> str:
        """The whole prompt, up to where the answer begins."""
        system = f"{ROLE}\n\n{self._dialect.explain()}"
        return self._chat.render(Question(system=system, text=encoded.text, num_pictures=len(encoded.pictures)))

    def _pictures(self, observation: Observation) -> tuple[str, ...]:
        """Oldest first, the present one last."""
        if self._eye is None:
            return ()
        wanted = self._config.history_pictures
        earlier = [past.screenshot for past in observation.recent[-wanted:] if past.screenshot] if wanted else []
        for reference in earlier:
            self._album.size(reference)  # one that is gone is missed now, and not in the middle of an update
        return (*earlier, _screenshot(observation))

    def _past(self, recent: tuple[Past, ...], screen: Screen) -> str:
        shown = recent[-self._config.history :] if self._config.history else ()
        lines = [f"{number}. {self._done(past, screen)}" for number, past in enumerate(shown, start=1)]
        return "\n".join(["Your last actions:", *lines]) if lines else ""

    def _done(self, past: Past, screen: Screen) -> str:
        words, target = self._words(past.action, screen), ""
        if past.target and not isinstance(past.action, TypeText):
            target = f' on "{self._short(past.target)}"'
        if target and self._dialect.by_number:  # the point alone means nothing to who was never told of points
            words = words.split()[0]
        outcome = " (not possible)" if not past.valid else "" if past.changed else " (nothing changed)"
        return words + target + outcome

    def _words(self, action: Action, screen: Screen) -> str:
        """The action in the dialect; what has no words there, in ours."""
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
        """One harmless line of bounded length."""
        return " ".join(self._chat.harmless(text[: 4 * longest]).split())[:longest]


def _screenshot(observation: Observation) -> str:
    if not observation.screenshot:
        raise ConfigError(
            "policy.vlm.pictures is true, and there is no screenshot to show",
            expected="a picture with every observation",
            fix="--rollout.keep_screenshots true, or --policy.vlm.pictures false",
        )
    return observation.screenshot


def _says_something(element: UiElement) -> bool:
    return bool(element.text or element.description or element.clickable or element.scrollable)
