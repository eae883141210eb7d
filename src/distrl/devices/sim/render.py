"""Draws what a simulated phone shows, so that a person takes it for a phone, and codes pictures.

The picture is a function of the state alone: same state, same size, same pixels. Everything is drawn from widgets, their
boxes and the style of their view, so a new app needs nothing here. Only what the accessibility tree reports is drawn as
content; pictures decorate it.
"""

from __future__ import annotations

from io import BytesIO

from msgspec.structs import replace
from PIL import Image

from distrl.devices.sim import phone
from distrl.devices.sim.layout import HEIGHT, STATUS_BAR, TITLE_BAR, WIDTH, Placed, Screen, height_of
from distrl.devices.sim.page_art import backdrop_of, beside, draw_behind, lay_page
from distrl.devices.sim.paint import BLACK, WHITE, Box, Canvas, Colour, Pen, Written, mix
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.system_art import KEYS_TOP, draw_app_icon, draw_status_bar, keyboard_picture, time_of, wallpaper
from distrl.devices.sim.themes import Theme, is_dark, theme_of
from distrl.devices.sim.widget_art import Setting, draw_widget
from distrl.errors import CorruptFrame

QUALITY = 85
DIMMED = 0.48
"""What is left of every level of red, green and blue below a dialog."""
OWN_BACKDROP = ("group", "alarms", "paper", "call")
"""Styles whose colour reaches up behind a plain title bar."""
LOW_SHEET = 200.0
"""A menu that leaves less room than this below it is drawn as a bottom sheet."""
UNCLIPPED = 0.89
"""A widget that keeps at least this share of its height was not cut off by scrolling: dense layouts keep 0.9."""


def draw(state: PhoneState, scale: float = 1.0, written: list[Written] | None = None) -> Image.Image:
    """The phone's screen at `scale` times 360 × 720 pixels; `written` takes the lines of text that can be seen."""
    # Every screen begins with an image of its own, so this one is never seen.
    canvas = Canvas(Image.new("RGB", (1, 1)), scale, written)
    _draw_screen(canvas, phone.show(state), state)
    return canvas.image


def encode_jpeg(image: Image.Image) -> bytes:
    """The picture as a JPEG."""
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def decode(data: bytes) -> Image.Image:
    """The picture in `data` (JPEG or PNG); `CorruptFrame` where it breaks off or is no picture."""
    try:
        return Image.open(BytesIO(data), formats=("JPEG", "PNG")).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _corrupt(data) from error


def _corrupt(data: bytes) -> CorruptFrame:
    return CorruptFrame(
        f"a screenshot of {len(data)} bytes is damaged", expected="a whole JPEG or PNG", fix="take another screenshot"
    )


def _draw_screen(canvas: Canvas, screen: Screen, state: PhoneState) -> None:
    theme = theme_of(state)
    match screen.view.shape:
        case "grid":
            _draw_home(canvas, screen, state)
        case "dialog":
            _draw_dialog(canvas, screen, state, theme)
        case "page":
            _draw_page(canvas, screen, state, theme)
    if screen.keyboard:
        canvas.cover((0, canvas.px(KEYS_TOP), canvas.px(WIDTH), canvas.px(HEIGHT)))
        canvas.image.paste(keyboard_picture(canvas.scale, theme.dark), (0, canvas.px(KEYS_TOP)))
    else:
        bar = theme.text if screen.view.shape == "page" or _is_sheet(screen) else WHITE
        canvas.rounded((WIDTH / 2 - 54, HEIGHT - 8, WIDTH / 2 + 54, HEIGHT - 4), 2, mix(theme.background, bar, 0.8))


def _size_px(canvas: Canvas) -> tuple[int, int]:
    return canvas.px(WIDTH), canvas.px(HEIGHT)


# --- pages ----------------------------------------------------------------------------------------------------------


def _draw_page(canvas: Canvas, screen: Screen, state: PhoneState, theme: Theme) -> None:
    top, bottom = STATUS_BAR + TITLE_BAR, screen.body.bottom * HEIGHT
    theme = replace(theme, background=backdrop_of(screen.view.style, theme))
    canvas.clear(_size_px(canvas), theme.background)
    inside = [placed for placed in screen.placed if screen.body.top <= placed.bounds.top < screen.body.bottom]
    page = lay_page(screen, tuple((placed.widget, _whole_box(placed, screen)) for placed in inside), state)
    draw_behind(canvas, page, theme)
    setting = Setting(theme, state.focus, style=screen.view.style)
    ending = replace(setting, last=True)
    for widget, box in page.boxes:
        draw_widget(canvas, widget, beside(box, page.aside), ending if widget.id in page.last else setting)
    if screen.loading:
        canvas.spinner(WIDTH / 2, (top + bottom) / 2, 24, theme.accent, state.tick * 0.29 % 1)
        canvas.text(WIDTH / 2, (top + bottom) / 2 + 44, "Loading…", Pen(14, theme.muted), width=200, anchor=0.5)
    _draw_scroll_bar(canvas, screen, state, theme)
    _draw_top(canvas, screen, state, theme)
    _draw_bottom(canvas, screen, setting)


def _draw_top(canvas: Canvas, screen: Screen, state: PhoneState, theme: Theme) -> None:
    """Status bar and title bar, over whatever has scrolled beneath them."""
    top, plain = STATUS_BAR + TITLE_BAR, theme.on_bar == theme.text
    bar = theme.background if plain and screen.view.style in OWN_BACKDROP else theme.bar
    canvas.fill((0, 0, WIDTH, top), bar)
    draw_status_bar(canvas, state, theme.on_bar)
    left, size = 18.0, 21.0
    if phone.has_way_back(state):
        canvas.pictogram("back", 26, STATUS_BAR + TITLE_BAR / 2, 22, theme.on_bar)
        left, size = 50.0, 19.0
    room = WIDTH - 52 * len(screen.view.top) - left - 10
    canvas.text(left, STATUS_BAR + TITLE_BAR / 2, screen.view.title, Pen(size, theme.on_bar, bold=True), width=room)
    if screen.overflow and state.place.scroll > 0:
        canvas.fill((0, top - 1, WIDTH, top), theme.line)
    setting = Setting(replace(theme, text=theme.on_bar))
    for placed in screen.placed:
        if placed.bounds.top < screen.body.top:
            draw_widget(canvas, placed.widget, _box(placed), setting)


def _draw_bottom(canvas: Canvas, screen: Screen, setting: Setting) -> None:
    bar = [placed for placed in screen.placed if placed.bounds.top >= screen.body.bottom]
    if not bar:
        return
    theme, top = setting.theme, screen.body.bottom * HEIGHT
    canvas.fill((0, top, WIDTH, HEIGHT), theme.surface)
    canvas.fill((0, top, WIDTH, top + 1), theme.line)
    for placed in bar:
        draw_widget(canvas, placed.widget, _box(placed), replace(setting, bar=True))


def _draw_scroll_bar(canvas: Canvas, screen: Screen, state: PhoneState, theme: Theme) -> None:
    if not screen.overflow:
        return
    top, height = screen.body.top * HEIGHT, (screen.body.bottom - screen.body.top) * HEIGHT
    share = height / (height + screen.overflow)
    offset = min(state.place.scroll, screen.overflow) / screen.overflow * (1 - share)
    thumb = top + 3 + offset * (height - 6)
    canvas.rounded(
        (WIDTH - 5, thumb, WIDTH - 2, thumb + share * (height - 6)), 1.5, mix(theme.background, theme.text, 0.35)
    )


def _whole_box(placed: Placed, screen: Screen) -> Box:
    """The box of a widget as if nothing had cut it off: bars are drawn over what juts out."""
    left, top, right, bottom = _box(placed)
    full = height_of(placed.widget, screen.view.style)
    if bottom - top >= UNCLIPPED * full:
        return left, top, right, bottom
    cut_above = placed.bounds.top <= screen.body.top
    return (left, bottom - full, right, bottom) if cut_above else (left, top, right, top + full)


def _box(placed: Placed) -> Box:
    bounds = placed.bounds
    return bounds.left * WIDTH, bounds.top * HEIGHT, bounds.right * WIDTH, bounds.bottom * HEIGHT


# --- dialogs --------------------------------------------------------------------------------------------------------


def _draw_dialog(canvas: Canvas, screen: Screen, state: PhoneState, theme: Theme) -> None:
    _draw_below(canvas, state)
    body = screen.body
    left, top, right, bottom = body.left * WIDTH, body.top * HEIGHT, body.right * WIDTH, body.bottom * HEIGHT
    if _is_sheet(screen):
        _draw_sheet(canvas, top, theme)
    else:
        canvas.rounded((left, top, right, bottom), 24, theme.surface)
    pen = Pen(19, theme.text, bold=True)
    canvas.text(left + 20, top + 31, screen.view.title, pen, width=right - left - 40)
    if screen.loading:
        canvas.spinner((left + right) / 2, (top + bottom) / 2 + 14, 16, theme.accent, state.tick * 0.29 % 1)
    setting = Setting(replace(theme, background=theme.surface), state.focus, dialog=True, style=screen.view.style)
    for placed in screen.placed:
        draw_widget(canvas, placed.widget, _box(placed), setting)


def _is_sheet(screen: Screen) -> bool:
    return screen.view.style == "menu" and HEIGHT * (1 - screen.body.bottom) < LOW_SHEET


def _draw_sheet(canvas: Canvas, top: float, theme: Theme) -> None:
    """A long menu: a sheet from the bottom of the screen with a handle."""
    canvas.rounded((0, top - 14, WIDTH, HEIGHT + 30), 26, theme.surface)
    canvas.rounded((WIDTH / 2 - 18, top - 5, WIDTH / 2 + 18, top - 1), 2, theme.line)


def _draw_below(canvas: Canvas, state: PhoneState) -> None:
    """The screen that the dialog lies over, dimmed."""
    if len(state.stack) > 1:
        below = replace(state, stack=state.stack[:-1], focus="", loading=0)
        _draw_screen(canvas, phone.show(below), below)
    else:
        canvas.clear(_size_px(canvas), BLACK)
    canvas.dim(DIMMED)


# --- the home screen ------------------------------------------------------------------------------------------------


def _draw_home(canvas: Canvas, screen: Screen, state: PhoneState) -> None:
    canvas.clear(_size_px(canvas), BLACK)
    canvas.image.paste(wallpaper(canvas.scale, state.seed % 6, is_dark(state)))
    draw_status_bar(canvas, state, WHITE)
    dock_top = screen.body.bottom * HEIGHT
    lowest = max(
        (placed.bounds.bottom * HEIGHT for placed in screen.placed if placed.bounds.top < screen.body.bottom),
        default=84,
    )
    if dock_top - lowest > 190:
        _draw_clock(canvas, state, (lowest + dock_top) / 2 - 14)
    for placed in screen.placed:
        draw_app_icon(canvas, placed.widget, _box(placed))
    _draw_dots(canvas, len(screen.view.pages), int(state.place.args.get("page", "0")), dock_top - 14)


def _draw_clock(canvas: Canvas, state: PhoneState, middle: float) -> None:
    canvas.text(WIDTH / 2, middle, time_of(state), Pen(64, WHITE), width=300, anchor=0.5)
    day = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[state.seed % 7]
    canvas.text(WIDTH / 2, middle + 46, f"{day}, {1 + state.seed % 28} May", Pen(17, WHITE), width=300, anchor=0.5)


def _draw_dots(canvas: Canvas, pages: int, here: int, middle: float) -> None:
    if pages < 2:
        return
    for page in range(pages):
        x = WIDTH / 2 + (page - (pages - 1) / 2) * 16
        ink: Colour = WHITE if page == here else (168, 176, 196)
        canvas.disc(x, middle, 4 if page == here else 3, ink)
