"""Grounding pretraining: the sample pool, the loss, training on a stream to its end, and the data workers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from distrl.config.schema import GroundingConfig, WarmStartConfig
from distrl.errors import RoleCrashed
from distrl.policies.pixel.policy import PixelPolicy
from distrl.pretraining.grounding.data_worker import BLOCK
from distrl.pretraining.grounding.losses import GroundingLoss, LossTerms, SamplePool
from distrl.pretraining.grounding.samples import block_bytes, sample_fields
from distrl.pretraining.grounding.stream import TIMEOUT_S, SampleStream, fields_of
from distrl.pretraining.grounding.training import pretrain_on_stream
from support.faketime import FakeTime
from support.grounding import FromMemory, RecordingReporter, some_samples
from support.pixels import TINY, pixel_config, tiny_pixels

CPU = torch.device("cpu")
GROUNDING = GroundingConfig(queries=4, pool=64)
WARM = WarmStartConfig(samples=900, batch=4, learning_rate=3e-3, grounding=GROUNDING)
CONFIG = pixel_config(warm_start__demonstrations=4, warm_start__samples=100, warm_start__processes=2)


def a_loss(config: GroundingConfig = GROUNDING) -> tuple[PixelPolicy, GroundingLoss]:
    policy = tiny_pixels()
    return policy, GroundingLoss(policy.network, TINY, config, seed=0)


def a_block() -> dict[str, Tensor]:
    samples = some_samples()
    return {name: torch.cat([part] * (BLOCK // len(part))) for name, part in samples.items()}


def test_a_pool_holds_the_newest_samples_and_draws_from_all_of_them() -> None:
    pool = SamplePool(sample_fields(TINY), 40, CPU)
    for turn in range(3):
        pool.put({name: torch.full_like(part[:16], turn) for name, part in some_samples().items()})
    assert (len(pool), pool.taken) == (40, 48)
    drawn = pool.draw(400, torch.Generator().manual_seed(0))["element"][:, 0]
    counts = [int((drawn == turn).sum()) for turn in range(3)]
    assert sum(counts) == 400
    assert counts[0] < counts[1]
    assert min(counts) > 20


def test_what_is_learnt_from_are_steps_points_letters_and_names() -> None:
    policy, loss = a_loss()
    terms = loss.compute(some_samples(), measured=True)
    assert all(torch.isfinite(part) for part in terms.parts.values())
    reading = terms.parts["letters"] + terms.parts["names"]
    assert torch.allclose(terms.total, terms.parts["step"] + terms.parts["pointing"] + reading)
    terms.total.backward()
    without = {name for name, weights in policy.network.named_parameters() if weights.grad is None}
    assert without == {name for name in without if name.startswith("value_head")}
    assert all(0.0 <= float(terms.parts[name]) <= 1.0 for name in terms.parts if name.endswith("_known"))


def test_the_same_screens_are_soon_known() -> None:
    _, loss = a_loss()
    optimizer = torch.optim.AdamW(loss.parameters(), lr=3e-3)
    first = loss.compute(some_samples(), measured=True).parts
    for _ in range(20):
        optimizer.zero_grad()
        loss.compute(some_samples()).total.backward()
        optimizer.step()
    last = loss.compute(some_samples(), measured=True).parts
    for name in ("step", "pointing", "letters"):
        assert float(last[name]) < 0.9 * float(first[name]), name
    assert float(last["kinds_known"]) > float(first["kinds_known"])


def test_no_query_is_drawn_twice_for_a_screen_and_none_that_does_not_exist() -> None:
    _, loss = a_loss()
    numbers_B1 = torch.tensor([[1], [2], [4], [7]], dtype=torch.uint8)
    for _ in range(20):
        which_BK, real_BK = loss._which(numbers_B1)
        assert which_BK[:, 0].tolist() == [0] * 4
        for which_K, real_K, number in zip(which_BK, real_BK, (1, 2, 4, 7), strict=True):
            asked = which_K[real_K].tolist()
            assert len(set(asked)) == len(asked) == min(number, 4)
            assert max(asked) < number


def test_past_actions_come_with_every_query() -> None:
    _, loss = a_loss()
    samples = some_samples()
    batch, _ = loss._batch(samples, loss._which(samples["num_queries"])[0])
    assert torch.equal(
        batch.past_BPC.view(16, 4, *samples["past"].shape[1:]), samples["past"][:, None].long().expand(-1, 4, -1, -1)
    )


def test_the_auxiliary_loss_trains_the_network_and_neither_next_steps_nor_the_heads() -> None:
    policy, loss = a_loss()
    pool = SamplePool(sample_fields(TINY), 16, CPU)
    pool.put(some_samples())
    loss.auxiliary_loss(pool, 8)().backward()
    assert policy.network.stem[0][0].weight.grad is not None
    assert all(weights.grad is None for weights in loss.heads.parameters())
    pointing = replace(GROUNDING, pointing_weight=0.0, reading_weight=0.0)
    assert float(a_loss(pointing)[1].auxiliary_loss(pool, 8)().detach()) == 0.0


def test_pretraining_ends_with_the_samples_that_were_asked_for_and_reports_its_progress() -> None:
    _, loss = a_loss()
    source, reporter = FromMemory(a_block()), RecordingReporter()
    last = pretrain_on_stream(loss, SamplePool(sample_fields(TINY), 64, CPU), source, WARM, reporter)
    assert last.share == 1.0
    assert last.samples == last.batches * 4 * 4 >= 900
    assert last.drawn == source.given
    assert reporter.figures[-1]["samples"] == last.samples
    assert reporter.num_alive >= last.batches
    assert last.parts["step"] < reporter.figures[0]["loss"]
    assert "100%" in reporter.said[-1]


def test_a_batch_with_a_nan_loss_is_skipped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, loss = a_loss()
    reporter, usual, numbers = RecordingReporter(), loss.compute, count()

    def compute(samples: Mapping[str, Tensor], *, measured: bool = False) -> LossTerms:
        terms = usual(samples, measured=measured)
        if next(numbers) not in (3, 30):
            return terms
        parts = {name: part * float("nan") for name, part in terms.parts.items()}
        return replace(terms, total=terms.total * float("nan"), parts=parts)

    monkeypatch.setattr(loss, "compute", compute)
    last = pretrain_on_stream(loss, SamplePool(sample_fields(TINY), 64, CPU), FromMemory(a_block()), WARM, reporter)
    assert [figures["skipped"] for figures in reporter.figures] == [1, 2, 2]
    assert all(math.isfinite(value) for figures in reporter.figures for value in figures.values())
    assert last.parts["step"] < reporter.figures[0]["loss"]
    assert all(bool(weights.isfinite().all()) for weights in policy.network.parameters())


def test_a_loss_that_stays_nan_ends_the_warm_start_with_the_fix() -> None:
    policy, loss = a_loss()
    with torch.no_grad():
        policy.network.state.fill_(float("nan"))
    with pytest.raises(RoleCrashed, match="warm start") as caught:
        pretrain_on_stream(
            loss, SamplePool(sample_fields(TINY), 64, CPU), FromMemory(a_block()), WARM, RecordingReporter()
        )
    assert "learning_rate" in caught.value.fix


def a_worker(tmp_path: Path, body: str) -> tuple[str, ...]:
    """A process that reads its job and then does as told."""
    script = tmp_path / "worker.py"
    script.write_text(f"import sys\nsys.stdin.buffer.read()\nout = sys.stdout.buffer\n{body}\n")
    return (sys.executable, str(script))


def test_blocks_arrive_whole_whoever_draws_them(tmp_path: Path) -> None:
    size = block_bytes(sample_fields(TINY), BLOCK)
    command = a_worker(tmp_path, f"n = 0\nwhile True:\n    n += 1\n    out.write(bytes([n % 256]) * {size})")
    values: list[set[int]] = []
    with SampleStream(CONFIG, sample_fields(TINY), pinned=False, command=command) as stream:
        stream.fill(
            lambda samples: values.append(
                {int(v) for part in samples.values() for v in part.view(torch.uint8).unique()}
            ),
            blocks=6,
            on_wait=lambda: None,
        )
    assert len(values) == 6
    assert all(len(found) == 1 for found in values)


def test_a_data_worker_that_dies_ends_the_stream_with_its_code(tmp_path: Path) -> None:
    stream = SampleStream(CONFIG, sample_fields(TINY), pinned=False, command=a_worker(tmp_path, "sys.exit(7)"))
    with stream, pytest.raises(RoleCrashed, match="ended with 7"):
        stream.fill(lambda samples: None, blocks=1, on_wait=lambda: None)


def test_data_workers_that_draw_nothing_are_given_up(tmp_path: Path) -> None:
    command, time = a_worker(tmp_path, "import time\ntime.sleep(600)"), FakeTime()

    def on_wait() -> None:
        time.now_s += TIMEOUT_S / 3

    stream = SampleStream(CONFIG, sample_fields(TINY), pinned=False, command=command, clock=time.clock)
    with stream, pytest.raises(RoleCrashed, match="no screen came"):
        stream.fill(lambda samples: None, blocks=1, on_wait=on_wait)


def test_the_real_data_workers_draw_what_the_pool_takes() -> None:
    with SampleStream(
        replace(CONFIG, warm_start=replace(CONFIG.warm_start, processes=1)), sample_fields(TINY), pinned=False
    ) as stream:
        pool = SamplePool(sample_fields(TINY), 64, CPU)
        stream.fill(pool.put, blocks=1, on_wait=lambda: None)
    assert len(pool) == BLOCK
    samples = pool.draw(8, torch.Generator().manual_seed(0))
    assert torch.isfinite(a_loss()[1].compute(samples).total)


def test_the_fields_of_a_block_are_its_own_memory() -> None:
    block = torch.zeros(block_bytes(sample_fields(TINY), BLOCK), dtype=torch.uint8)
    parts = fields_of(block, sample_fields(TINY))
    parts["name"][...] = 5
    assert int((block == 5).sum()) == parts["name"].numel()
    assert {name: tuple(part.shape) for name, part in parts.items()} == {
        name: (BLOCK, *part.shape[1:]) for name, part in some_samples().items()
    }
