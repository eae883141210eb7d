"""The UI transition graph: what it says of a screen after what was played, and how it travels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from distrl.config.schema import PointerConfig
from distrl.errors import StoreError
from distrl.policies.base import PolicyContext, is_growing
from distrl.policies.pointer.grammar import KINDS
from distrl.policies.pointer.graph import SIZE_BYTES, TransitionGraph, node_of, terms_of
from distrl.policies.pointer.policy import PointerPolicy
from distrl.types import (
    Action,
    Bounds,
    Decision,
    Finish,
    Observation,
    Past,
    Step,
    Swipe,
    Tap,
    Trajectory,
    TypeText,
    UiElement,
)
from support.trajectories import make_trajectory

ASKED = "在支付宝中开启刷新音效"
RELEVANCE, VALUE, BETTER, UNTRIED, INERT = range(5)
GROWING = PointerConfig(transition_graph=True, fitting_actions=True, fitting_claims=True)


def element(text: str, row: int, description: str = "") -> UiElement:
    return UiElement(
        text=text, description=description, clickable=True, bounds=Bounds(0.0, row / 20, 1.0, (row + 1) / 20)
    )


def screen(*labels: str, asked: str = ASKED, app: str = "alipay") -> Observation:
    return Observation(
        instruction=asked, app=app, elements=tuple(element(text, row) for row, text in enumerate(labels))
    )


def tap(seen: Observation, row: int) -> Action:
    return Tap(*seen.elements[row].bounds.centre)


HOME, ME, SETTINGS = (
    screen("首页", "我的", "消息"),
    screen("首页", "我的", "设置"),
    screen("声音", "刷新音效", "深色模式"),
)


def episode(*steps: tuple[Observation, Action]) -> Trajectory:
    made = [
        Step(
            observation=seen,
            decision=Decision(action=action, choice=(0, 0, 0), logp=-1.0, entropy=1.0, value=0.5),
            version=0,
        )
        for seen, action in steps
    ]
    return replace(make_trajectory(success=False), steps=tuple(made))


def explored() -> TransitionGraph:
    graph = TransitionGraph()
    graph.add(episode((HOME, tap(HOME, 1)), (ME, tap(ME, 2)), (SETTINGS, Finish())))
    return graph


def test_an_element_is_worth_what_lies_behind_it_the_less_the_further() -> None:
    graph = explored()
    home, me, settings = (graph.view(seen).elements_EG for seen in (HOME, ME, SETTINGS))
    assert home[:, VALUE].argmax() == 1
    assert me[:, VALUE].argmax() == 2
    assert me[2, VALUE] > home[1, VALUE] > 0.0
    assert settings[:, RELEVANCE].argmax() == 1
    assert settings[:, BETTER].argmax() == 1


def test_it_answers_for_an_instruction_that_was_never_played() -> None:
    asked = "把深色模式打开"
    seen = replace(HOME, instruction=asked)
    assert explored().view(seen).elements_EG[:, BETTER].argmax() == 1
    assert explored().view(replace(SETTINGS, instruction=asked)).elements_EG[:, BETTER].argmax() == 2


def test_what_was_tried_without_effect_is_worth_nothing() -> None:
    graph = TransitionGraph()
    graph.add(episode((SETTINGS, tap(SETTINGS, 0)), (SETTINGS, Finish())))
    view = graph.view(SETTINGS).elements_EG
    assert view[0, VALUE] == 0.0
    assert view[:, UNTRIED].tolist() == [0.0, 1.0, 1.0]


def test_what_was_never_tried_is_looked_for_where_it_lies() -> None:
    graph = TransitionGraph()
    graph.add(
        episode(
            (HOME, tap(HOME, 0)), (HOME, tap(HOME, 2)), (HOME, tap(HOME, 1)), (ME, tap(ME, 0)), (HOME, tap(HOME, 1)),
            (ME, Finish()),
        )
    )  # fmt: skip
    view = graph.view(HOME).elements_EG
    assert view[1, UNTRIED] == pytest.approx(0.75)
    assert view[1, UNTRIED] > view[0, UNTRIED] > view[2, UNTRIED] == 0.0


def test_what_has_just_been_touched_without_effect_is_told_until_the_screen_changes() -> None:
    past = Past(action=tap(SETTINGS, 1), target="刷新音效", changed=False)
    seen = replace(SETTINGS, recent=(past,))
    assert explored().view(seen).elements_EG[:, INERT].tolist() == [0.0, 1.0, 0.0]
    assert explored().view(seen).elements_EG[1, BETTER] == 0.0
    moved = replace(SETTINGS, recent=(past, Past(action=tap(SETTINGS, 0), target="声音", changed=True)))
    assert not explored().view(moved).elements_EG[:, INERT].any()


def test_what_says_again_what_was_typed_is_no_label_of_the_app() -> None:
    typed = Past(action=TypeText("刷新音效"), target="刷新音效")
    found = screen("没有找到刷新音效", "设置")
    graph = TransitionGraph()
    graph.add(episode((replace(found, recent=(typed,)), Finish())))
    assert not any("刷新音效" in node for node in graph._held.nodes)
    assert any("设置" in node for node in graph._held.nodes)


def test_what_was_touched_again_and_again_gives_way_to_something_else() -> None:
    past = Past(action=tap(HOME, 1), target="我的", changed=True)
    worth = [
        explored().view(replace(HOME, recent=(past,) * times)).elements_EG[1, [BETTER, UNTRIED]] for times in range(3)
    ]
    assert worth[0][0] > worth[1][0] > worth[2][0] > 0.0


def test_what_was_typed_into_a_field_is_no_label() -> None:
    field = replace(element("刷新音效", 3, "搜索"), class_name="EditText")
    seen = replace(HOME, elements=(*HOME.elements, field))
    assert explored().view(seen).elements_EG[3, RELEVANCE] == 0.0
    assert node_of(field, "alipay") == node_of(replace(field, text=""), "alipay")


def test_a_swipe_down_is_worth_what_it_brought_to_the_screen() -> None:
    graph, top = TransitionGraph(), screen("声音", "通知")
    graph.add(episode((top, Swipe(0.5, 0.6, 0.5, 0.25)), (SETTINGS, Finish())))
    assert graph.view(top).screen_G[2] > 0.5
    assert graph.view(SETTINGS).screen_G[2] == 0.0


def test_words_that_every_instruction_of_an_app_has_count_for_little() -> None:
    graph = TransitionGraph()
    seen = [screen("支付宝", "刷新音效", asked=f"在支付宝中{what}") for what in ("查余额", "看账单", "开启刷新音效")]
    for each in seen:
        graph.add(episode((each, Finish())))
    relevance = graph.view(seen[-1]).elements_EG[:, RELEVANCE]
    assert relevance[1] > 3 * relevance[0]


def test_what_an_instruction_named_and_was_touched_gives_way_to_what_is_left() -> None:
    graph, asked = explored(), "打开刷新音效，再打开深色模式"
    before = replace(SETTINGS, instruction=asked)
    done_one = replace(before, recent=(Past(action=tap(SETTINGS, 2), target="深色模式"),))
    done_both = replace(before, recent=(*done_one.recent, Past(action=tap(SETTINGS, 1), target="刷新音效")))
    first, second, third = (graph.view(seen) for seen in (before, done_one, done_both))
    assert first.elements_EG[:, BETTER].argmax() == 2
    assert second.elements_EG[:, BETTER].argmax() == 1
    assert first.screen_G[3] == 0.0 < second.screen_G[3] < third.screen_G[3]
    assert third.screen_G[3] > 0.8  # the words between the names stand on no label
    failed = replace(before, recent=(replace(done_one.recent[0], changed=False),))
    assert graph.view(failed).screen_G[3] == 0.0


def test_labels_are_nodes_without_their_numbers_and_icons_by_their_place() -> None:
    assert node_of(element("12 条新消息", 0), "a") == node_of(element("7 条新消息", 3), "a")
    assert node_of(element("", 0, "更多"), "a") != node_of(element("", 12, "更多"), "a")
    assert node_of(element("设置", 0), "a") != node_of(element("设置", 0), "b")
    assert terms_of("刷新 Wi-Fi 我") == {"刷新", "wi-fi", "我"}


def test_it_travels_with_the_weights() -> None:
    teacher, pupil = (PointerPolicy(GROWING, PolicyContext(seed=seed)) for seed in (0, 1))
    teacher.take_played(episode((HOME, tap(HOME, 1)), (ME, tap(ME, 2)), (SETTINGS, Finish())))
    assert not pupil.encode(HOME).graph_EG[:, VALUE].any()
    pupil.restore(teacher.dump(), source="a test")
    np.testing.assert_array_equal(pupil.encode(HOME).graph_EG, teacher.encode(HOME).graph_EG)
    assert pupil.encode(HOME).graph_EG[1, VALUE] > 0.0


def test_one_that_has_grown_too_large_forgets_what_was_seen_least() -> None:
    graph, often = TransitionGraph(), screen("首页", "刷新音效")
    graph.add(episode((often, Finish()), (often, Finish())))
    random = np.random.default_rng(0)
    for _ in range(300):
        labels = ["".join(chr(code) for code in random.integers(0x4E00, 0x9FFF, 38)) for _ in range(60)]
        graph.add(episode((screen(*labels), Finish())))
    tensor = torch.zeros(SIZE_BYTES, dtype=torch.uint8)
    graph.write(tensor)
    read = TransitionGraph()
    read.read(tensor, source="a test")
    assert 0 < read.num_screens < 301
    assert read.view(often).elements_EG[1, RELEVANCE] == 1.0


def test_a_damaged_one_is_refused_with_the_name_of_its_file() -> None:
    tensor = torch.zeros(SIZE_BYTES, dtype=torch.uint8)
    explored().write(tensor)
    tensor[20:60] = 0
    with pytest.raises(StoreError, match="version 7"):
        TransitionGraph().read(tensor, source="version 7")


def test_a_policy_of_random_weights_follows_it() -> None:
    policy = PointerPolicy(GROWING, PolicyContext())
    assert is_growing(policy)
    assert not is_growing(PointerPolicy(PointerConfig(), PolicyContext()))
    policy.take_played(episode((HOME, tap(HOME, 1)), (ME, tap(ME, 2)), (SETTINGS, Finish())))
    made = policy.decide([SETTINGS] * 300, temperature=1.0, generator=torch.Generator().manual_seed(0))
    taps = [decision.choice[1] for decision in made if KINDS[decision.choice[0]] == "tap"]
    assert len(taps) > 100
    assert taps.count(1) > 0.8 * len(taps)


def test_quotations_are_what_is_typed_where_the_policy_prefers_them() -> None:
    seen = Observation(
        instruction="在笔记里新建一条便签，标题写「周末采购」",
        app="notes",
        elements=(UiElement(class_name="EditText", clickable=True, focused=True, bounds=Bounds(0.0, 0.0, 1.0, 0.1)),),
    )
    policy = PointerPolicy(replace(GROWING, quoted_spans=True), PolicyContext())
    made = policy.decide([seen] * 300, temperature=1.0, generator=torch.Generator().manual_seed(0))
    typed = [decision.action.text for decision in made if hasattr(decision.action, "text")]
    assert typed.count("周末采购") > 0.2 * len(typed)
    assert typed.count("周末采购") > max(typed.count(other) for other in set(typed) - {"周末采购"})


def test_the_log_probability_of_a_choice_is_that_of_its_decision() -> None:
    policy = PointerPolicy(replace(GROWING, quoted_spans=True), PolicyContext())
    policy.take_played(episode((HOME, tap(HOME, 1)), (ME, tap(ME, 2)), (SETTINGS, Finish())))
    seen = [HOME, ME, SETTINGS]
    made = policy.decide(seen, temperature=1.0, generator=torch.Generator().manual_seed(0))
    scores = policy.score([policy.encode(each) for each in seen], [decision.choice for decision in made])
    for decision, logp in zip(made, scores.logp_N.tolist(), strict=True):
        assert logp == pytest.approx(decision.logp, abs=1e-4)
