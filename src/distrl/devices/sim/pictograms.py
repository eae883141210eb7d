"""Pictograms from simple shapes on a 24 × 24 grid, as masks of any size.

A drawing is a row of strokes: `disc x y r`, `ring x y r width`, `box l t r b radius`, `frame l t r b radius width`,
`line width x y x y …`, `poly x y x y …`, `arc x y r from to width`. A leading `-` rubs out instead.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

from PIL import Image, ImageDraw

GRID = 24
SMOOTH = 4

Numbers = list[float]

DRAWINGS: dict[str, str] = {
    "add": "line 2.4 12 4 12 20; line 2.4 4 12 20 12",
    "alarm": "ring 12 13 8 2; line 2 12 9 12 13 15 15; line 2 3 6 7 3; line 2 21 6 17 3",
    "archive": "box 3 4 21 9 1; frame 4 8 20 20 2 2; line 2 9 13 15 13",
    "arrow": "line 2.4 4 12 19 12; line 2.4 13 6 19 12 13 18",
    "bag": "frame 4 8 20 21 2 2; arc 12 8 4 180 360 2",
    "back": "line 2.4 20 12 5 12; line 2.4 11 6 5 12 11 18",
    "bank": "poly 12 3 22 9 2 9; box 4 11 7 18 0; box 10.5 11 13.5 18 0; box 17 11 20 18 0; box 3 19 21 21.5 0",
    "battery": "frame 7 5 17 21 2 2; box 10 2.5 14 5 0; box 9 11 15 19 0.5",
    "bed": "line 2.4 2.5 5 2.5 20; line 2.4 2.5 16.5 21.5 16.5; line 2.4 21.5 20 21.5 12; disc 7 11 2.4; box 10.5 9 21.5 14.5 2",
    "bell": "poly 5 17 7 14 7 10 9 6 12 5 15 6 17 10 17 14 19 17; disc 12 19.5 2; disc 12 4.5 1.5",
    "bin": "box 4 5 20 7 0.5; box 9 3 15 5 0.5; frame 6 8 18 21 2 2; line 1.6 10 11 10 18; line 1.6 14 11 14 18",
    "bluetooth": "line 2 7 8 17 16 12 21 12 3 17 8 7 16",
    "book": "frame 4 3 20 21 2 2; box 4 3 8 21 1; line 1.6 11 8 17 8; line 1.6 11 12 17 12",
    "brush": "line 4 20 4 11 13; disc 8 17 4; poly 3 21 8 21 5 16",
    "bus": "box 4 3 20 18 3; -box 6 6 18 11 1; -disc 8 15 1.3; -disc 16 15 1.3; box 5 18 8 21 1; box 16 18 19 21 1",
    "cake": "box 3 12 21 20 2; -line 1.6 4 16 8 14.5 12 16 16 14.5 20 16; line 2 12 7 12 12; disc 12 4.6 1.8",
    "calculator": "box 5 2 19 22 2; -box 7 5 17 9 0.5; -disc 8.5 13 1.3; -disc 12 13 1.3; -disc 15.5 13 1.3; -disc 8.5 18 1.3; -disc 12 18 1.3; -disc 15.5 18 1.3",
    "calendar": "frame 3 5 21 21 2 2; box 3 5 21 10 1; line 2 8 2.5 8 6; line 2 16 2.5 16 6; box 7 13 10 16 0; box 14 13 17 16 0",
    "camera": "box 2 7 22 20 3; poly 8 7 10 4 14 4 16 7; -disc 12 13.5 4.6; disc 12 13.5 2.8",
    "car": "poly 5 11 7 5.5 17 5.5 19 11; box 3 10.5 21 17.5 2; -poly 7.4 10.4 8.6 7.2 15.4 7.2 16.6 10.4; -disc 6.8 14 1.4; -disc 17.2 14 1.4; box 4 16 7.4 20 1; box 16.6 16 20 20 1",
    "card": "frame 2 5 22 19 2.5 2; box 2 8 22 12 0; line 2 5 16 10 16",
    "cart": "line 2 2 4 5 4 8 15 18 15 21 7 6 7; disc 9 19.5 1.9; disc 17 19.5 1.9",
    "chevron": "line 2.6 9 5 16 12 9 19",
    "chart": "box 4 12 8 20 0.5; box 10 5 14 20 0.5; box 16 9 20 20 0.5",
    "check": "line 2.8 4 12.5 9.5 18 20 6.5",
    "clock": "ring 12 12 9.5 2; line 2 12 6.5 12 12 16 14.5",
    "close": "line 2.4 5 5 19 19; line 2.4 19 5 5 19",
    "cloud": "disc 8 14 5; disc 14 11 6; disc 18.5 15 4; box 8 14 18.5 19 2",
    "copy": "frame 8 7 20 21 2 2; line 2 4 17 4 3 16 3",
    "cross": "box 9 3 15 21 1; box 3 9 21 15 1",
    "disc": "disc 12 12 10; -ring 12 12 7.4 0.9; -disc 12 12 3; disc 12 12 1.2",
    "document": "frame 5 2 19 22 2 2; line 1.6 8 8 16 8; line 1.6 8 12 16 12; line 1.6 8 16 13 16",
    "dot": "disc 12 12 5",
    "download": "line 2.4 12 3 12 15; line 2.4 6 10 12 16 18 10; line 2.4 4 20 20 20",
    "edit": "poly 4 20 4 16 15 5 19 9 8 20; poly 16 4 18 2 22 6 20 8",
    "erase": "poly 8 5 22 5 22 19 8 19 2 12; -line 1.8 11 9 17 15; -line 1.8 17 9 11 15",
    "euro": "arc 14 12 8.5 50 310 2.6; line 1.8 3 9.8 14 9.8; line 1.8 3 14 13 14",
    "eye": "poly 2 12 7 7 12 5.5 17 7 22 12 17 17 12 18.5 7 17; -disc 12 12 4.4; disc 12 12 2.6",
    "filter": "poly 3 4 21 4 14 13 14 20 10 18 10 13",
    "flag": "line 2.2 6 3 6 21; poly 6 4 19 4 16 8.5 19 13 6 13",
    "flame": "poly 12 2 17 9 18.5 14 16 20 12 22 8 20 5.5 14 8 9 10 11; -poly 12 13 14.5 17 12 20 9.5 17",
    "folder": "box 2 7 22 20 2; box 2 4 11 9 2",
    "gear": "disc 12 12 7; line 3.6 12 2 12 22; line 3.6 2 12 22 12; line 3.6 5 5 19 19; line 3.6 19 5 5 19; -disc 12 12 3.2",
    "gift": "box 3 8 21 12 1; box 5 13 19 21 1; ring 9 5.5 2.6 1.6; ring 15 5.5 2.6 1.6; -line 1.6 12 8 12 21",
    "globe": "ring 12 12 9.5 1.8; line 1.6 3 12 21 12; line 1.6 12 3 12 21; arc 5 12 11 -52 52 1.6; arc 19 12 11 128 232 1.6",
    "heart": "disc 7.5 8.5 5; disc 16.5 8.5 5; poly 3 11 21 11 12 21.5; box 6 8 18 12 0",
    "heart-outline": "disc 7.5 8.5 5; disc 16.5 8.5 5; poly 3 11 21 11 12 21.5; box 6 8 18 12 0; -disc 7.6 8.7 3; -disc 16.4 8.7 3; -poly 5.2 10.4 18.8 10.4 12 18.6; -poly 8 7 12 10 16 7 16 12 8 12",
    "home": "poly 12 2.5 22.5 12 1.5 12; box 5 11 19 21 0.5; -box 10 14 14 21 0",
    "image": "frame 3 4 21 20 2 2; disc 8 9 2; poly 5 18 10 11.5 13 15 16 12 19 18",
    "info": "disc 12 12 10; -disc 12 7.5 1.5; -box 10.9 10.5 13.1 17.5 0",
    "key": "ring 7.5 12 4.5 2.4; line 2.4 12 12 22 12 22 16; line 2.4 17.5 12 17.5 15.5",
    "leaf": "poly 20 3 20 12 16 18 10 19 6 16 6 10 11 5; line 2 3 21 13 11",
    "list": "disc 4.5 6 1.7; disc 4.5 12 1.7; disc 4.5 18 1.7; line 2.2 9 6 21 6; line 2.2 9 12 21 12; line 2.2 9 18 21 18",
    "lock": "box 5 10 19 21 2; arc 12 9.5 4.5 180 360 2.2; -disc 12 15.5 1.8",
    "mail": "box 2 5 22 19 2; -line 1.8 3 7 12 13.5 21 7",
    "map": "poly 2 5 8.5 3 8.5 19 2 21; poly 9.5 3 14.5 5 14.5 21 9.5 19; poly 15.5 5 22 3 22 19 15.5 21",
    "menu": "line 2.2 3 6 21 6; line 2.2 3 12 21 12; line 2.2 3 18 21 18",
    "message": "box 2 3 22 17 3; poly 6 16 12 16 6 22; -disc 7.5 10 1.4; -disc 12 10 1.4; -disc 16.5 10 1.4",
    "microphone": "box 9 2 15 14 3; arc 12 11 6.5 0 180 2; line 2 12 17 12 21; line 2 8 21 16 21",
    "minus": "line 2.4 4 12 20 12",
    "money": "disc 12 12 10; -line 1.8 15.5 8.5 12 7 9 8.5 9.5 11 14.5 13 15 15.5 12 17 8.5 15.5; -line 1.8 12 5 12 19",
    "moon": "disc 12 12 9; -disc 16 9 7.5",
    "more": "disc 12 5 2; disc 12 12 2; disc 12 19 2",
    "music": "disc 7 18 3.2; disc 17 16 3.2; line 2 9.3 18 9.3 5 19.3 3 19.3 16; poly 9 4 20 2 20 6 9 8",
    "next": "poly 5 5 15 12 5 19; box 16 5 19 19 0.5",
    "note": "box 4 3 20 21 2; -line 1.6 8 8 16 8; -line 1.6 8 12 16 12; -line 1.6 8 16 13 16",
    "pause": "box 6 4 10 20 0.5; box 14 4 18 20 0.5",
    "person": "disc 12 7.5 4.6; box 3.5 14 20.5 27 8; -box 0 21 24 24 0",
    "people": "disc 8.5 8 3.8; box 2 13.5 15 26 6; disc 16.5 8.5 3; box 16 13.5 22.5 24 5; -box 0 20.5 24 24 0",
    "phone": "line 4.4 6 5 6.8 10 9.5 14.5 14 17.2 19 18; disc 6 5.5 2.9; disc 18.5 18 2.9",
    "phone-app": "frame 6 2 18 22 2.5 2; line 1.6 10.5 19 13.5 19; box 9 6 15 12 1.5",
    "pin": "disc 12 9 7; poly 5.6 12 18.4 12 12 22.5; -disc 12 9 2.7",
    "plane": "poly 12 2 13.5 4 13.5 9.5 22 15 22 17 13.5 14.5 13.5 19 16 21 16 22 12 21 8 22 8 21 10.5 19 10.5 14.5 2 17 2 15 10.5 9.5 10.5 4",
    "play": "poly 6 3.5 20.5 12 6 20.5",
    "previous": "poly 19 5 9 12 19 19; box 5 5 8 19 0.5",
    "refresh": "arc 12 12 8 -30 250 2.4; poly 15 8 22.5 8 20 1.5",
    "reply": "line 2.4 10 6 4 12 10 18; line 2.4 5 12 15 12 20 16 20 20",
    "run": "disc 15 4 2.2; line 2.6 13 8 11 14 15 17 14 22; line 2.6 11 14 8 18 3 18; line 2 7 11 10 8 14 8 17 12 21 12",
    "search": "ring 10 10 7 2.4; line 2.8 15 15 21 21",
    "send": "poly 2 3 23 12 2 21 2 14 14 12 2 10",
    "share": "disc 6 12 3; disc 18 5 3; disc 18 19 3; line 2 6 12 18 5; line 2 6 12 18 19",
    "shield": "poly 12 2 21 5 21 12 18 18 12 22 6 18 3 12 3 5; -line 2.2 8 12 11 15 16 9",
    "shift": "poly 12 3 21 13 16 13 16 20 8 20 8 13 3 13",
    "shop": "poly 4 3 20 3 22 10 2 10; frame 4 10 20 21 1 2; box 12 13 17 20 0",
    "sound": "poly 3 9 7 9 13 4 13 20 7 15 3 15; arc 13 12 4.5 -60 60 2; arc 13 12 8.5 -60 60 2",
    "star": "poly 12 2 15 9 22.5 9.5 16.8 14.3 18.7 21.7 12 17.6 5.3 21.7 7.2 14.3 1.5 9.5 9 9",
    "star-outline": "poly 12 2 15 9 22.5 9.5 16.8 14.3 18.7 21.7 12 17.6 5.3 21.7 7.2 14.3 1.5 9.5 9 9; -poly 12 6.6 13.8 10.8 18.2 11.1 14.8 13.9 16 18.3 12 15.8 8 18.3 9.2 13.9 5.8 11.1 10.2 10.8",
    "sun": "disc 12 12 5; line 2 12 1.5 12 4.5; line 2 12 19.5 12 22.5; line 2 1.5 12 4.5 12; line 2 19.5 12 22.5 12; line 2 4.6 4.6 6.7 6.7; line 2 17.3 17.3 19.4 19.4; line 2 4.6 19.4 6.7 17.3; line 2 17.3 6.7 19.4 4.6",
    "tag": "poly 3 3 12 3 22 13 13 22 3 12; -disc 7.5 7.5 1.8",
    "ticket": "box 2 6 22 18 2; -disc 2 12 2.4; -disc 22 12 2.4; -line 1.6 15 8 15 16",
    "timer": "ring 12 13.5 8 2; box 9.5 1.5 14.5 4 0.5; line 2 12 9 12 13.5",
    "train": "box 5 3 19 18 4; -box 7.5 6 16.5 11 1; -disc 9 14.5 1.3; -disc 15 14.5 1.3; line 2 8 18 5 22; line 2 16 18 19 22",
    "utensils": "line 2 7 3 7 21; line 1.6 4.5 3 4.5 8 9.5 8 9.5 3; line 2 17 3 17 21; disc 17 7 3.4",
    "video": "box 2 6 16 18 2; poly 16.5 10.5 22 7 22 17 16.5 13.5",
    "wallet": "box 2 5 22 20 2.5; -box 14 10.5 23 15 1; disc 17 12.7 1.3",
    "warning": "poly 12 2 23 21 1 21; -box 11 8.5 13 15 0; -disc 12 18 1.3",
    "wifi": "arc 12 20 15 225 315 2.6; arc 12 20 9.6 225 315 2.6; disc 12 19 2.4",
    "wind": "line 2 2 9 14 9; arc 14 6.5 2.6 -150 90 2; line 2 2 14 18 14; arc 18 16.6 2.6 -90 150 2",
}  # fmt: skip

ALIASES: dict[str, str] = {
    "about": "info", "account": "person", "airplane": "plane", "album": "image", "answer": "phone", "attach": "document",
    "basket": "cart", "box": "archive", "browser": "globe", "buy": "cart", "call": "phone", "cash": "money", "chat": "message", "contact": "person",
    "contacts": "people", "dark": "moon", "delete": "bin", "display": "sun", "done": "check", "event": "calendar", "favourite": "star",
    "favorite": "star", "file": "document", "files": "folder", "fitness": "run", "food": "utensils", "forward": "arrow", "gallery": "image",
    "group": "people", "health": "heart", "house": "home", "inbox": "mail", "internet": "globe", "like": "heart", "location": "pin",
    "maps": "map", "marker": "pin", "messages": "message", "mic": "microphone", "network": "wifi", "new": "add", "news": "document",
    "notes": "note", "notification": "bell", "open": "arrow", "order": "bag", "package": "archive", "palette": "brush", "parcel": "archive",
    "pen": "edit", "pencil": "edit", "photo": "image", "photos": "image", "picture": "image", "place": "pin", "plan": "list",
    "playlist": "list", "plus": "add", "privacy": "shield", "profile": "person", "recipe": "utensils", "record": "microphone", "remove": "minus",
    "ride": "bus", "route": "map", "save": "check", "security": "shield", "settings": "gear", "sms": "message", "song": "music", "sort": "filter",
    "speaker": "sound", "stats": "chart", "stopwatch": "timer", "store": "shop", "task": "check", "tasks": "list", "tick": "check", "todo": "list",
    "transfer": "send", "transit": "bus", "trash": "bin", "travel": "plane", "tune": "music", "user": "person", "users": "people", "volume": "sound",
    "watch": "clock", "weather": "cloud", "web": "globe", "world": "globe", "write": "edit",
}  # fmt: skip


@lru_cache(maxsize=512)
def pictogram_mask(name: str, size_px: int) -> Image.Image | None:
    """The pictogram as a mask; None: there is no drawing of that name."""
    known = name.lower()
    drawing = DRAWINGS.get(ALIASES.get(known, known))
    if drawing is None:
        return None
    unit = size_px * SMOOTH / GRID
    mask = Image.new("L", (size_px * SMOOTH, size_px * SMOOTH))
    brush = ImageDraw.Draw(mask)
    for part in drawing.split(";"):
        verb, *numbers = part.split()
        stroke(
            brush, verb.lstrip("-"), [float(number) * unit for number in numbers], 0 if verb[0] == "-" else 255, unit
        )
    return mask.reduce(SMOOTH)


def stroke(brush: ImageDraw.ImageDraw, verb: str, n: Numbers, ink: int | tuple[int, int, int], unit: float) -> None:
    """Draw one stroke; `n` is in pixels, `unit` the pixels of one step of the grid."""
    match verb:
        case "disc":
            brush.ellipse((n[0] - n[2], n[1] - n[2], n[0] + n[2], n[1] + n[2]), fill=ink)
        case "ring":
            brush.ellipse((n[0] - n[2], n[1] - n[2], n[0] + n[2], n[1] + n[2]), outline=ink, width=round(n[3]))
        case "box":
            brush.rounded_rectangle(n[:4], min(n[4], (n[2] - n[0]) / 2, (n[3] - n[1]) / 2), fill=ink)
        case "frame":
            brush.rounded_rectangle(n[:4], n[4], outline=ink, width=round(n[5]))
        case "poly":
            brush.polygon(n, fill=ink)
        case "arc":
            box = (n[0] - n[2], n[1] - n[2], n[0] + n[2], n[1] + n[2])
            brush.arc(box, n[3] / unit, n[4] / unit, fill=ink, width=round(n[5]))
        case "line":
            _line(brush, n[1:], n[0], ink)


def _line(brush: ImageDraw.ImageDraw, points: Numbers, width: float, ink: int | tuple[int, int, int]) -> None:
    """A line with round ends and joints."""
    brush.line(points, fill=ink, width=round(width), joint="curve")
    radius = width / 2
    for x, y in zip(points[::2], points[1::2], strict=True):
        brush.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)


def fallback_colour(name: str) -> tuple[int, int, int]:
    """A colour of its own for every name."""
    palette = (
        (0xC6, 0x4B, 0x4B),
        (0xB3, 0x6B, 0x1E),
        (0x3F, 0x8F, 0x55),
        (0x2F, 0x7F, 0x93),
        (0x4A, 0x68, 0xC4),
        (0x8A, 0x55, 0xB5),
    )
    return palette[crc32(name.encode("utf-8", "replace")) % len(palette)]
