"""The arithmetic of `distrl bench vlm`: FLOPs, the share of the matrix rate, prompts and their parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from distrl.bench.vlm import model as vlm_model
from distrl.bench.vlm.model import (
    ANSWER_TOKENS,
    CPU,
    FILLER,
    FORBIDDEN_TOKENS,
    GPU,
    GRID,
    IMAGE_TOKENS,
    TEXT_TOKENS,
    WARM_CALLS,
    default_attention,
    flops_of,
    matrix_rate,
    matrix_rate_share,
    prompts,
    rows_of,
    seconds,
    stock_seconds,
    with_answer,
)

LENGTH = IMAGE_TOKENS + TEXT_TOKENS


def shell(*, text: int, embedding: int, vision: int, head: int) -> Any:
    """A model with so many weights in each of its parts."""

    def holder(**sizes: int) -> nn.Module:
        module = nn.Module()
        for name, size in sizes.items():
            module.register_parameter(name, nn.Parameter(torch.zeros(size)))
        return module

    inner = SimpleNamespace(language_model=holder(layer=text, embed_tokens=embedding), visual=holder(blocks=vision))
    return SimpleNamespace(model=inner, lm_head=nn.Linear(head, 1, bias=False))


def fake_model(vocabulary: int = 500) -> Any:
    """As much of a model as prompts need."""
    return SimpleNamespace(
        device=torch.device("cpu"), config=SimpleNamespace(text_config=SimpleNamespace(vocab_size=vocabulary))
    )


# --- FLOPs and the matrix rate ----------------------------------------------------------------------------------------


def test_an_image_of_the_grid_has_a_token_for_four_patches() -> None:
    assert (GRID[0] * 14, GRID[1] * 14) == (728, 364)
    assert IMAGE_TOKENS == 338


def test_a_decision_takes_two_operations_for_each_weight_and_token() -> None:
    tokens, patches = LENGTH + ANSWER_TOKENS, GRID[0] * GRID[1]
    found = flops_of(shell(text=100, embedding=10_000, vision=10, head=7))
    assert found.decision == 2.0 * (100 * tokens + 10 * patches + 7 * ANSWER_TOKENS)


def test_a_sample_also_goes_back_through_text_and_head_but_not_through_vision() -> None:
    text, vision, head = (
        flops_of(shell(text=t, embedding=1, vision=v, head=h)) for t, v, h in ((5, 0, 1), (0, 5, 1), (0, 0, 5))
    )
    head_alone = 2.0 * ANSWER_TOKENS
    assert text.sample == 2 * text.decision
    assert vision.sample == vision.decision + head_alone
    assert head.sample == 2 * head.decision == 4 * 5 * ANSWER_TOKENS


def test_embeddings_are_looked_up_and_not_multiplied() -> None:
    assert flops_of(shell(text=1, embedding=1, vision=1, head=1)) == flops_of(
        shell(text=1, embedding=10**6, vision=1, head=1)
    )


@pytest.mark.parametrize(
    ("per_s", "flops", "rate", "share"), [(10.0, 2e9, 1e12, 0.02), (500.0, 2e9, 1e12, 1.0), (0.0, 2e9, 1e12, 0.0)]
)
def test_the_share_of_the_matrix_rate_is_what_was_computed_over_what_could_be(
    per_s: float, flops: float, rate: float, share: float
) -> None:
    assert matrix_rate_share(per_s, flops, rate) == pytest.approx(share)


def test_the_matrix_rate_counts_two_operations_for_each_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vlm_model, "seconds", lambda work, setting: 0.5 * len(work()))
    assert matrix_rate(CPU) == 2.0 * 512**3 / 0.5


@pytest.mark.parametrize("repeats", [1, 3])
def test_work_is_timed_after_kernels_were_compiled_and_graphs_captured(repeats: int) -> None:
    done: list[int] = []
    found = seconds(lambda: done.append(1), replace(CPU, repeats=repeats))
    assert len(done) == WARM_CALLS + repeats
    assert WARM_CALLS >= 3  # one captures the graph of what came before
    assert found > 0.0


def test_short_calls_are_timed_for_longer() -> None:
    done: list[int] = []
    found = seconds(lambda: done.append(1), replace(CPU, least_s=0.05))
    assert len(done) > WARM_CALLS + CPU.repeats
    assert 0.0 < found < 0.05


def test_stock_is_timed_after_a_single_call() -> None:
    done: list[int] = []
    assert stock_seconds(lambda: done.append(1), replace(CPU, stock_repeats=2)) > 0.0
    assert len(done) == 3


def test_the_real_shape_is_that_of_the_published_model() -> None:
    shape = vlm_model._shape("3b")
    assert (shape["text_config"]["hidden_size"], shape["text_config"]["num_hidden_layers"]) == (2048, 36)
    assert (shape["vision_config"]["depth"], shape["vision_config"]["hidden_size"]) == (32, 1280)
    shallow = vlm_model._shape("shallow")
    assert shallow["text_config"]["hidden_size"] == 2048
    assert shallow["text_config"]["num_hidden_layers"] < 36
    assert shallow["vision_config"]["out_hidden_size"] == shallow["text_config"]["hidden_size"]


@pytest.mark.parametrize("setting", [GPU, CPU], ids=["GPU", "CPU"])
def test_a_training_batch_is_made_of_whole_micro_batches_and_can_be_halved(setting: vlm_model.VlmSetting) -> None:
    assert setting.train_batch % setting.micro_batch == 0
    assert setting.train_batch % 2 == 0
    assert len(set(setting.batches)) == len(setting.batches)


# --- prompts ----------------------------------------------------------------------------------------------------------


def test_a_prompt_holds_one_image_between_its_marks_and_text_around_it() -> None:
    made = prompts(fake_model(), 3)
    ids_BL = made["input_ids"]
    assert ids_BL.shape == (3, LENGTH)
    assert (ids_BL == vlm_model.IMAGE).sum(dim=1).tolist() == [IMAGE_TOKENS] * 3
    for mark in (vlm_model.START, vlm_model.END):
        assert (ids_BL == mark).sum(dim=1).tolist() == [1] * 3
    plain = ids_BL[ids_BL >= FILLER]
    assert len(plain) == 3 * (LENGTH - IMAGE_TOKENS - 2)
    assert int(plain.max()) < 500
    assert made["pixel_values"].shape == (3 * GRID[0] * GRID[1], 1176)
    assert made["image_grid_thw"].tolist() == [[1, *GRID]] * 3
    assert torch.equal(made["mm_token_type_ids"], (ids_BL == vlm_model.IMAGE).int())


def test_prompts_are_padded_on_the_left_by_different_lengths() -> None:
    mask_BL = prompts(fake_model(), 10)["attention_mask"]
    assert (mask_BL == 0).sum(dim=1).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert (mask_BL.diff(dim=1) >= 0).all(), "no hole after the first token"


def test_forbidden_tokens_are_those_that_are_no_text() -> None:
    assert tuple(range(10)) == FORBIDDEN_TOKENS
    assert {vlm_model.IMAGE, vlm_model.START, vlm_model.END} <= set(FORBIDDEN_TOKENS)


def test_an_answer_is_appended_and_is_text_that_is_attended_to() -> None:
    made = prompts(fake_model(), 2)
    answers_BA = torch.randint(FILLER, 500, (2, ANSWER_TOKENS))
    whole = with_answer(made, answers_BA)
    assert torch.equal(whole["input_ids"][:, :LENGTH], made["input_ids"])
    assert torch.equal(whole["input_ids"][:, LENGTH:], answers_BA)
    assert whole["attention_mask"][:, LENGTH:].all()
    assert not whole["mm_token_type_ids"][:, LENGTH:].any()
    assert whole["mm_token_type_ids"].dtype == made["mm_token_type_ids"].dtype
    assert whole["pixel_values"] is made["pixel_values"]
    assert made["input_ids"].shape == (2, LENGTH), "the prompts are not changed"


def joined(parts: list[dict[str, Tensor]], name: str) -> Tensor:
    return torch.cat([part[name] for part in parts])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_parts_of_a_batch_make_the_whole_with_each_image_beside_its_prompt(size: int) -> None:
    whole = prompts(fake_model(), 5)
    parts = [rows_of(whole, start, size) for start in range(0, 5, size)]
    for name, tensor in whole.items():
        assert torch.equal(joined(parts, name), tensor)
    for part in parts:
        assert len(part["pixel_values"]) == len(part["input_ids"]) * GRID[0] * GRID[1]


@pytest.mark.parametrize("before", [True, False])
def test_the_default_attention_is_there_inside_and_what_was_before_afterwards(before: bool) -> None:
    was = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(before)
        with default_attention():
            assert torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was)
