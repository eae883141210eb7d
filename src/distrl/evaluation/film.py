"""An episode as pictures: a GIF with every gesture drawn on its screen, and a strip of all screens for a page.

Colours are safe for colour-blind readers (Okabe and Ito); nothing depends on colour alone. Where a device has no pictures, its
elements are drawn as boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from math import atan2, ceil, cos, sin
from textwrap import wrap
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from distrl.errors import UsageError
from distrl.rollout.observing import target_of
from distrl.types import (
    Action,
    Finish,
    LongPress,
    Observation,
    Press,
    Step,
    Swipe,
    Tap,
    TypeText,
    UiElement,
    Unparsed,
    Verdict,
    Wait,
)

if TYPE_CHECKING:  # which loads torch, and pictures need none
    from distrl.evaluation.stored_playback import Playback

INK, PAPER, QUIET, LINE = "#1B1F24", "#FFFFFF", "#6B7280", "#D0D5DB"
GOOD, BAD, DONE, NEUTRAL = "#00795A", "#B3400A", "#005B96", "#555B63"
SCREEN_PX = 360
"""Width of a screen in the GIF."""
CELL_PX = 300
"""Width of a screen in the strip."""
PER_ROW = 6
"""Screens side by side in the strip."""
MARGIN_PX, GAP_PX, CAPTION_PX = 20, 22, 82
SMOOTH = 3
"""Gestures are drawn so many times larger and scaled down, so that their edges are smooth."""
WORDS = {"success": "success", "failure": "no success", "unknown": "outcome unknown"}
LOOK_MS, ACT_MS, END_MS = 700, 1100, 3000
"""How long the GIF shows a screen, the gesture on it, and the end."""


# --- words ------------------------------------------------------------------------------------------------------------


def in_words(action: Action, elements: tuple[UiElement, ...] = ()) -> str:
    """An action in a few words, with the name of what it touches."""
    match action:
        case Tap(x=x, y=y) | LongPress(x=x, y=y):
            word, name = "tap" if isinstance(action, Tap) else "hold", target_of(action, elements)
            return f"{word} {_quoted(name)}" if name else f"{word} at {x:.2f}, {y:.2f}"
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            across = abs(to_x - x) > abs(to_y - y)
            return f"swipe {('right' if to_x > x else 'left') if across else ('down' if to_y > y else 'up')}"
        case TypeText(text=text):
            return f"type {_quoted(text)}"
        case Press(key=key):
            return f"press {key}"
        case Wait():
            return "wait"
        case Finish(status=status, answer=answer):
            claim = "done" if status == "complete" else "impossible"
            return f"{claim}: {_quoted(answer)}" if answer else claim
        case Unparsed(raw=raw):
            return f"not understood: {_quoted(raw)}"


def outcome(verdict: Verdict) -> str:
    """A verdict in a few words."""
    word = WORDS[verdict.outcome]
    return f"{word}: {verdict.reason}" if verdict.reason else word


def _quoted(text: str, most: int = 34) -> str:
    plain = " ".join(text.split())
    return f"“{plain if len(plain) <= most else plain[: most - 1] + '…'}”"


# --- the GIF ----------------------------------------------------------------------------------------------------------


def make_gif(playback: Playback) -> bytes:
    """The episode as an animated GIF: each screen, then the gesture on it, then the verdict."""
    return _encode(*frames_of(playback))


def _check(playback: object) -> None:
    """`UsageError` where this is nothing that was played."""
    from distrl.evaluation.stored_playback import Playback

    if not isinstance(playback, Playback):
        raise UsageError(
            f"{playback!r:.100} is no playback",
            expected="what a policy has played",
            fix="distrl.make_gif(policy.play())",
        )


def frames_of(playback: Playback) -> tuple[list[Image.Image], list[int]]:
    """The pictures of a film of the episode, and for how many milliseconds each is shown."""
    _check(playback)
    steps, verdict = playback.trajectory.steps, playback.trajectory.verdict
    instruction, screens = playback.trajectory.task.instruction, _screens(playback, SCREEN_PX)
    pictures, times_ms = list[Image.Image](), list[int]()
    for number, step in enumerate(steps, 1):
        words, place = in_words(step.decision.action, step.observation.elements), f"{number}/{len(steps)}"
        plain = _Caption(instruction, place, "…", step.decision.value)
        told = _Caption(instruction, place, words + _effect(step), step.decision.value)
        pictures += [
            _frame(screens[number - 1], plain),
            _frame(gesture(screens[number - 1], step.decision.action), told),
        ]
        times_ms += [LOOK_MS, ACT_MS]
    end = _Caption(instruction, "", outcome(verdict), None, colour=_colour(verdict))
    pictures.append(_frame(_labelled(screens[-1], WORDS[verdict.outcome], _colour(verdict)), end))
    return pictures, [*times_ms, END_MS]


class _Caption:
    """What stands around a screen in the GIF."""

    def __init__(self, instruction: str, place: str, words: str, value: float | None, *, colour: str = INK) -> None:
        self.instruction, self.place, self.words, self.value, self.colour = instruction, place, words, value, colour


def _frame(screen: Image.Image, caption: _Caption) -> Image.Image:
    width, top_px, bottom_px = screen.width + 2 * MARGIN_PX, 66, 62
    picture = Image.new("RGB", (width, top_px + screen.height + bottom_px), PAPER)
    draw = ImageDraw.Draw(picture)
    lines = _fitted(caption.instruction, width - 2 * MARGIN_PX, font(17), most=2)
    draw.multiline_text((MARGIN_PX, top_px / 2), "\n".join(lines), INK, font(17), anchor="lm", spacing=4)
    picture.paste(_framed(screen), (MARGIN_PX, top_px))
    below = top_px + screen.height + 10
    if caption.value is not None:
        _bar(draw, (MARGIN_PX, below, width - MARGIN_PX, below + 5), caption.value)
    row = below + 31
    draw.text((MARGIN_PX, row), caption.place, QUIET, font(15), anchor="lm")
    left = MARGIN_PX + (draw.textlength(caption.place, font(15)) + 12 if caption.place else 0)
    value = "" if caption.value is None else f"value {caption.value:.2f}"
    right = width - MARGIN_PX - (draw.textlength(value, font(15)) + 12 if value else 0)
    words = _fitted(caption.words, right - left, font(16), most=1)
    draw.text((left, row), words[0], caption.colour, font(16), anchor="lm")
    draw.text((width - MARGIN_PX, row), value, QUIET, font(15), anchor="rm")
    return picture


def _bar(draw: ImageDraw.ImageDraw, box: tuple[float, float, float, float], share: float) -> None:
    """The value as a bar: what the policy thinks its chances are."""
    left, top, right, bottom = box
    draw.rounded_rectangle(box, 2, LINE)
    filled = left + (right - left) * min(1.0, max(0.0, share))
    if filled > left + 4:
        draw.rounded_rectangle((left, top, filled, bottom), 2, "#0072B2")


def _encode(pictures: Sequence[Image.Image], times_ms: Sequence[int]) -> bytes:
    # Without dithering, flat areas stay flat and the file small.
    frames = [picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE) for picture in pictures]
    out = BytesIO()
    frames[0].save(
        out, "GIF", save_all=True, append_images=frames[1:], duration=list(times_ms), loop=0, optimize=False, disposal=1
    )
    return out.getvalue()


# --- the strip --------------------------------------------------------------------------------------------------------


class _Cell:
    """One screen of the strip: steps in a row that did the same without effect share one."""

    def __init__(self, screen: Image.Image, step: Step | None, number: int) -> None:
        self.screen, self.step, self.number, self.times = screen, step, number, 1

    @property
    def words(self) -> str:
        """What was done here."""
        if self.step is None:
            return ""
        again = f", {self.times} times" if self.times > 1 else ""
        words = in_words(self.step.decision.action, self.step.observation.elements)
        return f"{self.number}. {words}{_effect(self.step)}{again}"

    def picture(self) -> Image.Image:
        """The screen with its gesture."""
        return _framed(gesture(self.screen, self.step.decision.action) if self.step else self.screen)

    def repeated_by(self, step: Step) -> bool:
        """Whether a step does the same once more, and neither had an effect."""
        mine = self.step
        return (
            mine is not None
            and bool(_effect(mine))
            and bool(_effect(step))
            and mine.decision.action == step.decision.action
        )


def _cells(playback: Playback) -> list[_Cell]:
    screens, cells = _screens(playback, CELL_PX), list[_Cell]()
    for number, step in enumerate(playback.trajectory.steps, 1):
        if cells and cells[-1].repeated_by(step):
            cells[-1].times += 1
        else:
            cells.append(_Cell(screens[number - 1], step, number))
    last = playback.trajectory.steps[-1]
    if last.changed and not isinstance(last.decision.action, Finish):  # else the last screen is there already
        cells.append(_Cell(screens[-1], None, 0))
    return cells


def make_strip(playback: Playback) -> bytes:
    """All screens of the episode side by side as one PNG, with gestures, captions and the verdict."""
    _check(playback)
    cells, trajectory = _cells(playback), playback.trajectory
    columns = min(PER_ROW, len(cells))
    across, down = CELL_PX + GAP_PX, max(cell.screen.height for cell in cells) + CAPTION_PX
    total = max(2 * CELL_PX, columns * across - GAP_PX) + 2 * MARGIN_PX
    title = _fitted(trajectory.task.instruction, total - 2 * MARGIN_PX, font(26), most=3)
    head_px = 24 + 34 * len(title)
    picture = Image.new("RGB", (total, head_px + ceil(len(cells) / columns) * down + MARGIN_PX), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.multiline_text((MARGIN_PX, 16), "\n".join(title), INK, font(26), spacing=8)
    for index, cell in enumerate(cells):
        left, top = MARGIN_PX + index % columns * across, head_px + index // columns * down
        picture.paste(cell.picture(), (left, top))
        verdict = trajectory.verdict if cell is cells[-1] else None
        _caption(draw, (left, top + cell.screen.height + 8), cell.words, verdict)
    out = BytesIO()
    picture.save(out, "PNG", optimize=True)
    return out.getvalue()


def _caption(draw: ImageDraw.ImageDraw, at: tuple[int, int], words: str, verdict: Verdict | None) -> None:
    """What was done on a screen, and under the last one what came of it all."""
    lines = _fitted(words, CELL_PX, font(18), most=1 if verdict else 2) if words else []
    draw.multiline_text(at, "\n".join(lines), INK, font(18), spacing=3)
    if verdict:
        told = _fitted(outcome(verdict), CELL_PX, font(18), most=3 - len(lines))
        draw.multiline_text((at[0], at[1] + 25 * len(lines)), "\n".join(told), _colour(verdict), font(18), spacing=3)


def _effect(step: Step) -> str:
    if isinstance(step.decision.action, Finish | Wait):
        return ""
    return " (invalid)" if not step.valid else " (no effect)" if not step.changed else ""


# --- screens and gestures ---------------------------------------------------------------------------------------------


def gesture(screen: Image.Image, action: Action) -> Image.Image:
    """The screen with what the finger does on it, or with a label for what is no touch."""
    layer = _layer(screen)
    draw, unit = ImageDraw.Draw(layer), layer.width / 360
    match action:
        case Tap(x=x, y=y):
            _touch(draw, x * layer.width, y * layer.height, unit, rings=1)
        case LongPress(x=x, y=y):
            _touch(draw, x * layer.width, y * layer.height, unit, rings=2)
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            start, end = (x * layer.width, y * layer.height), (to_x * layer.width, to_y * layer.height)
            _arrow(draw, start, end, unit)
        case Finish(status=status):
            return _labelled(screen, in_words(action), DONE if status == "complete" else NEUTRAL)
        case _:
            return _labelled(screen, in_words(action), NEUTRAL)
    return _over(screen, layer)


def _labelled(screen: Image.Image, words: str, colour: str) -> Image.Image:
    layer = _layer(screen)
    _label(ImageDraw.Draw(layer), layer, words, colour, layer.width / 360)
    return _over(screen, layer)


def _layer(screen: Image.Image) -> Image.Image:
    return Image.new("RGBA", (screen.width * SMOOTH, screen.height * SMOOTH), (0, 0, 0, 0))


def _over(screen: Image.Image, layer: Image.Image) -> Image.Image:
    small = layer.resize(screen.size, Image.Resampling.LANCZOS)
    return Image.alpha_composite(screen.convert("RGBA"), small).convert("RGB")


def _touch(draw: ImageDraw.ImageDraw, x: float, y: float, unit: float, *, rings: int) -> None:
    # Hardly more than rings, so that what is touched stays legible.
    _circle(draw, x, y, 26 * unit, fill=(213, 94, 0, 50))
    for ring in range(1, rings + 1):
        radius = (17 + 11 * ring) * unit
        _circle(draw, x, y, radius, outline=(255, 255, 255, 235), width=int(7 * unit))
        _circle(draw, x, y, radius - 1.5 * unit, outline=(213, 94, 0, 255), width=int(4 * unit))


def _circle(
    draw: ImageDraw.ImageDraw,
    x: float,
    y: float,
    radius: float,
    *,
    fill: tuple[int, int, int, int] | None = None,
    outline: tuple[int, int, int, int] | None = None,
    width: int = 1,
) -> None:
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill, outline=outline, width=width)


def _arrow(draw: ImageDraw.ImageDraw, start: tuple[float, float], end: tuple[float, float], unit: float) -> None:
    angle = atan2(end[1] - start[1], end[0] - start[0])
    tips = [(end[0] + 20 * unit * cos(angle + turn), end[1] + 20 * unit * sin(angle + turn)) for turn in (0, 2.4, -2.4)]
    for colour, more in (((255, 255, 255, 235), 3 * unit), ((213, 94, 0, 255), 0.0)):
        draw.line((start, end), colour, int(6 * unit + 2 * more))
        _circle(draw, *start, 9 * unit + more, fill=colour)
        if more:
            draw.line([*tips, tips[0], tips[1]], colour, int(3 * more), joint="curve")
        draw.polygon(tips, colour)


def _label(draw: ImageDraw.ImageDraw, layer: Image.Image, words: str, colour: str, unit: float) -> None:
    face = font(int(19 * unit))
    (text,) = _fitted(words, layer.width - 70 * unit, face, most=1)
    half, middle = draw.textlength(text, face) / 2 + 18 * unit, (layer.width / 2, layer.height * 0.88)
    box = (middle[0] - half, middle[1] - 21 * unit, middle[0] + half, middle[1] + 21 * unit)
    draw.rounded_rectangle(box, 21 * unit, colour, "#FFFFFF", int(3 * unit))
    draw.text(middle, text, "#FFFFFF", face, anchor="mm")


def _screens(playback: Playback, width: int) -> list[Image.Image]:
    """Every screen, the last one included, as wide as asked for."""
    if playback.screens:
        found = [Image.open(BytesIO(picture)).convert("RGB") for picture in playback.screens]
    else:
        seen = [step.observation for step in playback.trajectory.steps]
        found = [wireframe(one) for one in (*seen, playback.trajectory.last or seen[-1])]
    return [
        picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
        for picture in found
    ]


def wireframe(seen: Observation) -> Image.Image:
    """What a policy saw of a device without pictures: a box for each element."""
    ratio = seen.height_px / seen.width_px if seen.width_px and seen.height_px else 2.0
    picture = Image.new("RGB", (SCREEN_PX, round(SCREEN_PX * ratio)), "#F4F6F8")
    draw = ImageDraw.Draw(picture)
    for element in seen.elements:
        bounds = element.bounds
        box = (bounds.left * picture.width, bounds.top * picture.height, bounds.right * picture.width - 1, bounds.bottom * picture.height - 1)  # fmt: skip
        if box[2] <= box[0] or box[3] <= box[1]:
            continue
        if element.clickable:
            draw.rounded_rectangle(box, 6, PAPER, LINE, 2)
        text = _fitted(element.text or element.description, box[2] - box[0] - 8, font(15), most=1)[0]
        draw.text(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), text, INK, font(15), anchor="mm")
    return picture


def _framed(screen: Image.Image) -> Image.Image:
    """The screen with round corners and a thin edge, on white."""
    large = Image.new("L", (screen.width * SMOOTH, screen.height * SMOOTH), 0)
    radius = screen.width * SMOOTH // 18
    ImageDraw.Draw(large).rounded_rectangle((0, 0, large.width - 1, large.height - 1), radius, 255)
    framed = Image.composite(
        screen, Image.new("RGB", screen.size, PAPER), large.resize(screen.size, Image.Resampling.LANCZOS)
    )
    ImageDraw.Draw(framed).rounded_rectangle(
        (0, 0, screen.width - 1, screen.height - 1), screen.width // 18, None, "#9AA1AB", 2
    )
    return framed


@cache
def font(size_px: int) -> ImageFont.FreeTypeFont:
    """Pillow's own typeface, so that pictures look alike on every machine."""
    face = ImageFont.load_default(max(4, size_px))
    assert isinstance(face, ImageFont.FreeTypeFont)  # the bitmap fallback is for Pillow without FreeType
    return face


def _fitted(text: str, width: float, face: ImageFont.FreeTypeFont, *, most: int) -> list[str]:
    """The text in at most `most` lines of this width; what does not fit ends in an ellipsis."""
    letters = max(4, int(width / max(1.0, face.getlength("i") * 1.6)))
    while True:
        lines = wrap(" ".join(text.split()), letters, max_lines=most, placeholder="…") or [""]
        if letters <= 4 or all(face.getlength(line) <= width for line in lines):
            return lines
        letters -= 1


def _colour(verdict: Verdict) -> str:
    return {"success": GOOD, "failure": BAD, "unknown": NEUTRAL}[verdict.outcome]
