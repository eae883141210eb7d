"""The dialects as a page of Markdown, made from what they print and from their modules' own words.

`docs/dialects.md` is what `reference()` returns; a test holds the two together.
"""

from __future__ import annotations

import inspect
import sys

from distrl.policies.dialects import DIALECTS
from distrl.policies.dialects.base import LONGEST, LONGEST_TEXT, Dialect, Screen
from distrl.policies.dialects.parsing import scroll
from distrl.types import Action, Finish, LongPress, Press, Swipe, Tap, TypeText, Wait

PICTURE = Screen(width=1080, height=2400)
SAMPLES: dict[str, Action] = {
    "tap": Tap(0.42, 0.13),
    "long press": LongPress(0.42, 0.13),
    "swipe": Swipe(0.1, 0.2, 0.6, 0.7),
    "scroll down": scroll("down"),
    "short swipe": Swipe(0.5, 0.5, 0.5, 0.47),
    "type": TypeText('Say "hi"'),
    "back": Press("back"),
    "home": Press("home"),
    "enter": Press("enter"),
    "wait": Wait(),
    "done": Finish(),
    "done, with an answer": Finish(answer="7 km"),
    "impossible": Finish("impossible"),
    "impossible, with an answer": Finish("impossible", answer="closed"),
}
"""What a policy can do, each kind once."""

HEAD = f"""# Dialects

Made from `src/distrl/policies/dialects` by `make docs`; edit the text there.

A dialect prints our actions in a text format that existing models know and parses model output in it, so that such a
model starts with the format it was trained on.

```python
from distrl.policies.dialects import dialect
from distrl.policies.dialects.base import Screen
from distrl.types import Tap, Unparsed

picture = Screen(width={PICTURE.width}, height={PICTURE.height})  # as the model gets it, after any resizing
qwen = dialect("qwen3_vl")
said = qwen.print(Tap(0.42, 0.13), picture)
assert qwen.parse(said, picture) == Tap(0.42, 0.13)
assert qwen.parse("I am not sure.", picture) == Unparsed("I am not sure.")
```

`explain()` describes the action space for a prompt.

What holds for all of them:

- What is no action of the format is `Unparsed`: an invalid step, never an error. So is more than {LONGEST:,} characters at once,
  or {LONGEST_TEXT:,} to type or to answer.
- A point that is not on the screen is `Unparsed` too: it names nothing, and moving it to the edge would touch something
  that nobody meant. The far edge itself is the last pixel.
- The first action counts; what comes before it (a thought, a plan) and after it is ignored.
- `parse(print(action))` is the action again, up to the format's precision. `print` gives None for what the format cannot
  express, so that behaviour cloning skips the step.
- A direction to scroll is the side that is to show more. It becomes a swipe of a fixed length, and such a swipe is printed
  as that direction.
- Model output is data. Nothing evaluates it, and it reaches no shell and no page.

## What each can express
"""


def reference() -> str:
    """The page: what each can express, then a section for each module."""
    sections: dict[str, list[Dialect]] = {}
    for each in DIALECTS.values():
        sections.setdefault(type(each).__module__, []).append(each)
    parts = (_section(sys.modules[module].__doc__ or "", dialects) for module, dialects in sections.items())
    return "\n".join([HEAD, _table(), *parts])


def inexpressible(dialect: Dialect) -> list[str]:
    """The samples that the dialect cannot express."""
    return [label for label, action in SAMPLES.items() if dialect.print(action, PICTURE) is None]


def _table() -> str:
    lacks = {name: inexpressible(dialect) for name, dialect in DIALECTS.items()}
    head = "| action | " + " | ".join(f"`{name}`" for name in lacks) + " |"
    rows = [
        f"| {label} | " + " | ".join("no" if label in missing else "yes" for missing in lacks.values()) + " |"
        for label in SAMPLES
    ]
    return "\n".join([head, "|---" * (len(lacks) + 1) + "|", *rows, ""])


def _section(text: str, dialects: list[Dialect]) -> str:
    title = ", ".join(f"`{dialect.name}`" for dialect in dialects)
    first, *others = dialects
    shown = [
        _examples(first, _said(first)),
        *(_examples(other, _difference(other, first), " where it differs") for other in others),
    ]
    return "\n".join([f"## {title}", "", inspect.cleandoc(text), "", *shown])


def _examples(dialect: Dialect, said: dict[str, str], where: str = "") -> str:
    lines = [f"# {label}\n{words}" for label, words in said.items()]
    intro = f"`{dialect.name}`{where}, on a picture of {PICTURE.width} x {PICTURE.height} pixels:"
    missing = f"It cannot express: {'; '.join(inexpressible(dialect)) or 'nothing'}."
    return "\n".join([intro, "", "```text", *lines, "```", "", missing, ""])


def _said(dialect: Dialect) -> dict[str, str]:
    printed = {label: dialect.print(action, PICTURE) for label, action in SAMPLES.items()}
    return {label: words for label, words in printed.items() if words is not None}


def _difference(dialect: Dialect, first: Dialect) -> dict[str, str]:
    known = _said(first)
    return {label: words for label, words in _said(dialect).items() if known.get(label) != words}


if __name__ == "__main__":
    sys.stdout.write(reference())
