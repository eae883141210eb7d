"""UI hierarchies of Android become elements that a policy can name and touch; what is no hierarchy is an error."""

from __future__ import annotations

import pytest

from distrl.devices.android.hierarchy import NoHierarchy, parse
from distrl.types import Bounds

HEAD = "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation=\"0\">"


def node(inside: str = "", *, bounds: str = "[0,0][1080,2400]", **facts: str) -> str:
    shown = " ".join(f'{name.replace("_", "-").rstrip("-")}="{value}"' for name, value in facts.items())
    return f'<node {shown} package="com.android.settings" bounds="{bounds}">{inside}</node>'


def dump(inside: str) -> bytes:
    return f"{HEAD}{node(inside)}</hierarchy>\nUI hierchary dumped to: /dev/tty\n".encode()


def test_a_row_takes_the_words_of_its_children_and_keeps_its_switch() -> None:
    row = node(
        node(text="Wi-Fi", bounds="[40,300][500,360]")
        + node(node(text="Connected", bounds="[40,360][500,400]"), bounds="[40,360][500,400]")
        + node(class_="android.widget.Switch", checkable="true", checked="true", bounds="[900,300][1000,400]"),
        clickable="true",
        class_="android.widget.LinearLayout",
        bounds="[0,280][1080,420]",
        resource_id="com.android.settings:id/row",
    )
    row, switch = parse(dump(row)).elements
    assert (row.text, row.class_name, row.resource_id, row.clickable) == (
        "Wi-Fi Connected",
        "LinearLayout",
        "row",
        True,
    )
    assert (switch.class_name, switch.checked) == ("Switch", True)


def test_bounds_are_shares_of_the_screen_cut_off_at_its_edges() -> None:
    found = parse(
        dump(node(text="a", bounds="[-100,1200][540,2600]") + node(text="gone", bounds="[1080,0][1200,9]")),
        (1080, 2400),
    )
    (element,) = found.elements
    assert element.bounds == Bounds(0.0, 0.5, 0.5, 1.0)
    assert found.package == "com.android.settings"


def test_containers_without_words_are_not_reported() -> None:
    assert parse(dump(node(node(text="x", bounds="[0,0][9,9]")))).elements[0].text == "x"
    assert len(parse(dump(node(node(text="x", bounds="[0,0][9,9]")))).elements) == 1


def test_a_screen_without_anything_to_touch_is_no_error() -> None:
    assert parse(dump("")).elements == ()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"ERROR: could not get idle state.\n",
        b"ERROR: null root node returned by UiTestAutomationBridge.\n",
        HEAD.encode() + b"</hierarchy>",
        dump(node(text="a"))[:200],
        dump(node(text="a")).replace(b'text="a"', b'text="a'),
        bytes(range(256)),
        b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><hierarchy><node/></hierarchy>',
        HEAD.encode() + b'<node bounds="[0,0][9,9]">' * 5000 + b"</node>" * 5000 + b"</hierarchy>",
    ],
)
@pytest.mark.parametrize("size", [None, (360, 720)])
def test_what_is_no_hierarchy_is_an_error_and_never_an_empty_screen(text: bytes, size: tuple[int, int] | None) -> None:
    with pytest.raises(NoHierarchy):
        parse(text, size)
