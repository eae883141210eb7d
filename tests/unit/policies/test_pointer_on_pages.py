"""What the pointer has for pages of other devices: long lists, their classes, and actions that fit the screen."""

from __future__ import annotations

import pytest
import torch

from distrl.config.schema import PointerConfig
from distrl.policies.base import PolicyContext
from distrl.policies.pointer.features import encode
from distrl.policies.pointer.grammar import KINDS, to_action, to_choice
from distrl.policies.pointer.policy import PointerPolicy
from distrl.policies.pointer.words import read
from distrl.types import Bounds, Observation, Tap, TypeText, UiElement


def element(text: str, row: int, **facts: object) -> UiElement:
    bounds = Bounds(0.0, row / 100, 1.0, (row + 1) / 100)
    return UiElement(**{"text": text, "clickable": True, "bounds": bounds, **facts})  # type: ignore[arg-type]


PLAIN = Observation(
    instruction='Enter "Lucio"', elements=(element("Field", 0, class_name="EditText"), element("Submit", 1))
)
FOCUSED = Observation(
    instruction='Enter "Lucio"',
    elements=(element("Field", 0, class_name="EditText", focused=True), element("Submit", 1)),
)
SCROLLS = Observation(
    instruction="Find it", elements=(element("", 0, scrollable=True, clickable=False), element("A", 1))
)


def kinds(policy: PointerPolicy, seen: Observation) -> set[str]:
    made = policy.decide([seen] * 400, temperature=1.0, generator=torch.Generator().manual_seed(0))
    return {KINDS[decision.choice[0]] for decision in made}


@pytest.mark.parametrize(
    ("seen", "fits"),
    [(PLAIN, {"tap"}), (FOCUSED, {"tap", "type", "enter"}), (SCROLLS, {"tap", "down", "up"})],
)
def test_actions_that_do_not_fit_the_screen_are_hardly_ever_chosen(seen: Observation, fits: set[str]) -> None:
    assert kinds(PointerPolicy(PointerConfig(fitting_actions=True), PolicyContext()), seen) == fits
    assert len(kinds(PointerPolicy(PointerConfig(), PolicyContext()), seen)) > 10


def test_where_tasks_end_with_a_claim_finishing_and_going_back_fit_every_screen() -> None:
    claiming = PointerPolicy(PointerConfig(fitting_actions=True, fitting_claims=True), PolicyContext())
    assert kinds(claiming, PLAIN) == {"tap", "back", "done", "answer"}


CHINESE = Observation(
    instruction="给支付宝开启深色模式，昵称改为Ada-2。",
    elements=(element("深色模式", 0), element("浅色模式", 1), element("设置", 2), element("", 3, description="支付宝")),
)


def test_chinese_is_matched_character_by_character_and_typed_as_it_is_written() -> None:
    features = encode(CHINESE, string_match=True).element_features_EF
    share, whole, said, said_whole = features[:, 10], features[:, 11], features[:, 12], features[:, 13]
    assert [round(float(each), 2) for each in share] == [1.0, 0.75, 0.0, 0.0]
    assert whole.tolist() == [1.0, 0.0, 0.0, 0.0]  # 式 and 模 stand in the other one too, and not all in a row
    assert (said[3], said_whole[3]) == (1.0, 1.0)
    for text in ("深色模式", "Ada-2", "昵称改为Ada-2"):
        choice = to_choice(TypeText(text), CHINESE)
        assert choice is not None
        assert to_action(choice, CHINESE) == TypeText(text)
    assert [word.plain for word in read("微信读书, v2.1 「東京タワー」")] == [*"微信读书", "v2.1", *"東京タワー"]


def test_texts_with_spaces_are_read_as_before() -> None:
    said = 'Ringtone: "Café d\'Été", 3.5 — naïve Москва 서울 시청'
    assert [word.plain for word in read(said)] == [
        "ringtone",
        "café",
        "d'été",
        "3.5",
        "—",
        "naïve",
        "москва",
        "서울",
        "시청",
    ]


def test_what_hardly_fits_has_a_finite_loss_all_the_same() -> None:
    policy = PointerPolicy(PointerConfig(fitting_actions=True), PolicyContext())
    scores = policy.score([policy.encode(PLAIN)], [(KINDS.index("back"), 0, 0)])
    assert -40.0 < scores.logp_N.item() < -8.0
    scores.logp_N.sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in policy.network.parameters() if each.grad is not None)


def test_decisions_are_scored_again_exactly_where_actions_have_to_fit() -> None:
    policy = PointerPolicy(PointerConfig(fitting_actions=True), PolicyContext())
    for seen in (PLAIN, FOCUSED, SCROLLS):
        (made,) = policy.decide([seen], temperature=1.0, generator=torch.Generator().manual_seed(3))
        scores = policy.score([policy.encode(seen)], [made.choice])
        assert scores.logp_N.item() == pytest.approx(made.logp, abs=1e-5)


def test_more_elements_are_read_where_the_settings_say_so_with_the_same_weights() -> None:
    seen = Observation(instruction="Entry 77", elements=tuple(element(f"Entry {row}", row) for row in range(90)))
    few, many = (PointerPolicy(PointerConfig(max_elements=number), PolicyContext()) for number in (40, 100))
    many.restore(few.dump(), source="few")
    assert (len(few.encode(seen).element_class_E), len(many.encode(seen).element_class_E)) == (40, 90)
    tap = Tap(*seen.elements[77].bounds.centre)
    assert few.imitate(seen, tap) is None
    assert many.imitate(seen, tap) == (KINDS.index("tap"), 77, 0)


def test_classes_of_pages_are_read_as_those_that_do_the_same() -> None:
    for other, known in (("RadioButton", "CheckBox"), ("Link", "Button"), ("Spinner", "ListItem")):
        first, second = (
            encode(Observation(instruction="a", elements=(element("x", 0, class_name=name),)), string_match=True)
            for name in (other, known)
        )
        assert first.element_class_E.tolist() == second.element_class_E.tolist() != [0]
