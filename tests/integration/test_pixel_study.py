"""Learning to read and to point: the pool, the loss, and cloning a stream of screens to its end."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from distrl.config.schema import WarmStartConfig
from distrl.errors import RoleCrashed
from distrl.policies.pixel.policy import PixelPolicy
from distrl.pretraining.grounding.data_worker import BLOCK
from distrl.pretraining.grounding.losses import SheetPool, Studied, Study
from distrl.pretraining.grounding.samples import block_bytes
from distrl.pretraining.grounding.stream import PATIENCE_S, SheetStream, parts_of
from distrl.pretraining.grounding.training import Progress, study_stream
from support.faketime import FakeTime
from support.pages import some_sheets
from support.pixels import TINY, pixel_config, tiny_pixels

CPU = torch.device("cpu")
WARM = WarmStartConfig(samples=900, batch=4, questions=4, learning_rate=3e-3, pool=64)
CONFIG = pixel_config(warm_start__demonstrations=4, warm_start__samples=100, warm_start__processes=2)


def a_study(warm: WarmStartConfig = WARM) -> tuple[PixelPolicy, Study]:
    policy = tiny_pixels()
    return policy, Study(policy.network, TINY, warm, seed=0)


def a_block() -> dict[str, Tensor]:
    sheets = some_sheets()
    return {name: torch.cat([part] * (BLOCK // len(part))) for name, part in sheets.items()}


class FromMemory:
    """Always the same screens."""

    def __init__(self) -> None:
        self.given = 0

    def take(self, give: Callable[[dict[str, Tensor]], None], *, most: int) -> int:
        give(a_block())
        self.given += BLOCK
        return 1

    def fill(self, give: Callable[[dict[str, Tensor]], None], *, blocks: int, waiting: Callable[[], None]) -> None:
        for _ in range(blocks):
            self.take(give, most=1)


class Hearer:
    def __init__(self) -> None:
        self.told: list[Progress] = []
        self.alive_times = 0

    def tell(self, now: Progress) -> None:
        self.told.append(now)

    def say(self, what: str) -> None: ...

    def alive(self) -> None:
        self.alive_times += 1


# --- the pool -------------------------------------------------------------------------------------------------------


def test_a_pool_holds_the_newest_sheets_and_draws_from_all_of_them() -> None:
    pool = SheetPool(TINY, 40, CPU)
    for turn in range(3):
        pool.put({name: torch.full_like(part[:16], turn) for name, part in some_sheets().items()})
    assert (len(pool), pool.taken) == (40, 48)
    drawn = pool.draw(400, torch.Generator().manual_seed(0))["element"][:, 0]
    counts = [int((drawn == turn).sum()) for turn in range(3)]
    assert sum(counts) == 400
    assert counts[0] < counts[1]
    assert min(counts) > 20


# --- the loss -------------------------------------------------------------------------------------------------------


def test_what_is_learnt_from_are_steps_points_letters_and_names() -> None:
    policy, study = a_study()
    studied = study.on(some_sheets(), measured=True)
    assert all(torch.isfinite(part) for part in studied.parts.values())
    reading = studied.parts["letters"] + studied.parts["names"]
    assert torch.allclose(studied.total, studied.parts["step"] + studied.parts["pointing"] + reading)
    studied.total.backward()
    without = {name for name, weights in policy.network.named_parameters() if weights.grad is None}
    assert without == {name for name in without if name.startswith("value_head")}
    assert all(0.0 <= float(studied.parts[name]) <= 1.0 for name in studied.parts if name.endswith("_known"))


def test_the_same_screens_are_soon_known() -> None:
    _, study = a_study()
    optimizer = torch.optim.AdamW(study.parameters(), lr=3e-3)
    first = study.on(some_sheets(), measured=True).parts
    for _ in range(20):
        optimizer.zero_grad()
        study.on(some_sheets()).total.backward()
        optimizer.step()
    last = study.on(some_sheets(), measured=True).parts
    for name in ("step", "pointing", "letters"):
        assert float(last[name]) < 0.9 * float(first[name]), name
    assert float(last["kinds_known"]) > float(first["kinds_known"])


def test_no_question_is_asked_twice_about_a_screen_and_none_that_there_is_not() -> None:
    _, study = a_study()
    numbers_B1 = torch.tensor([[1], [2], [4], [7]], dtype=torch.uint8)
    for _ in range(20):
        which_BK, real_BK = study._which(numbers_B1)
        assert which_BK[:, 0].tolist() == [0] * 4
        for which_K, real_K, number in zip(which_BK, real_BK, (1, 2, 4, 7), strict=True):
            asked = which_K[real_K].tolist()
            assert len(set(asked)) == len(asked) == min(number, 4)
            assert max(asked) < number


def test_the_past_is_told_with_every_question() -> None:
    _, study = a_study()
    sheets = some_sheets()
    batch, _ = study._ask(sheets, study._which(sheets["questions"])[0])
    assert torch.equal(
        batch.past_BPC.view(16, 4, *sheets["past"].shape[1:]), sheets["past"][:, None].long().expand(-1, 4, -1, -1)
    )


def test_rehearsal_teaches_the_network_to_read_and_leaves_next_steps_and_the_heads_alone() -> None:
    policy, study = a_study()
    pool = SheetPool(TINY, 16, CPU)
    pool.put(some_sheets())
    study.again(pool, 8)().backward()
    assert policy.network.stem[0][0].weight.grad is not None
    assert all(weights.grad is None for weights in study.heads.parameters())
    pointing = replace(WARM, pointing_weight=0.0, reading_weight=0.0)
    assert float(a_study(pointing)[1].again(pool, 8)().detach()) == 0.0


# --- cloning a stream -----------------------------------------------------------------------------------------------


def test_cloning_ends_with_the_samples_that_were_asked_for_and_tells_how_it_went() -> None:
    _, study = a_study()
    source, hearer = FromMemory(), Hearer()
    last = study_stream(study, SheetPool(TINY, 64, CPU), source, WARM, hearer)
    assert last.share == 1.0
    assert last.samples == last.batches * 4 * 4 >= 900
    assert last.drawn == source.given
    assert hearer.told[-1] == last
    assert hearer.alive_times >= last.batches
    assert last.parts["step"] < hearer.told[0].parts["step"]


def test_a_batch_of_a_stream_whose_loss_is_no_number_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, study = a_study()
    hearer, usual, numbers = Hearer(), study.on, count()

    def on(sheets: Mapping[str, Tensor], *, measured: bool = False) -> Studied:
        studied = usual(sheets, measured=measured)
        if next(numbers) not in (3, 30):
            return studied
        parts = {name: part * float("nan") for name, part in studied.parts.items()}
        return replace(studied, total=studied.total * float("nan"), parts=parts)

    monkeypatch.setattr(study, "on", on)
    last = study_stream(study, SheetPool(TINY, 64, CPU), FromMemory(), WARM, hearer)
    assert [now.left_out for now in hearer.told] == [1, 2, 2]
    assert all(math.isfinite(part) for now in hearer.told for part in now.parts.values())
    assert last.parts["step"] < hearer.told[0].parts["step"]
    assert all(bool(weights.isfinite().all()) for weights in policy.network.parameters())


def test_a_loss_that_is_no_number_for_good_ends_the_warm_start_with_the_fix() -> None:
    policy, study = a_study()
    with torch.no_grad():
        policy.network.state.fill_(float("nan"))
    with pytest.raises(RoleCrashed, match="warm start") as caught:
        study_stream(study, SheetPool(TINY, 64, CPU), FromMemory(), WARM, Hearer())
    assert "learning_rate" in caught.value.fix


# --- the processes --------------------------------------------------------------------------------------------------


def a_drawer(tmp_path: Path, body: str) -> tuple[str, ...]:
    """A process that reads its order and then does as told."""
    script = tmp_path / "drawer.py"
    script.write_text(f"import sys\nsys.stdin.buffer.read()\nout = sys.stdout.buffer\n{body}\n")
    return (sys.executable, str(script))


def test_blocks_arrive_whole_whoever_draws_them(tmp_path: Path) -> None:
    size = block_bytes(TINY, BLOCK)
    command = a_drawer(tmp_path, f"n = 0\nwhile True:\n    n += 1\n    out.write(bytes([n % 256]) * {size})")
    values: list[set[int]] = []
    with SheetStream(CONFIG, pinned=False, command=command) as stream:
        stream.fill(
            lambda sheets: values.append({int(v) for part in sheets.values() for v in part.view(torch.uint8).unique()}),
            blocks=6,
            waiting=lambda: None,
        )
    assert len(values) == 6
    assert all(len(found) == 1 for found in values)


def test_a_process_that_dies_ends_the_stream_with_its_code(tmp_path: Path) -> None:
    stream = SheetStream(CONFIG, pinned=False, command=a_drawer(tmp_path, "sys.exit(7)"))
    with stream, pytest.raises(RoleCrashed, match="ended with 7"):
        stream.fill(lambda sheets: None, blocks=1, waiting=lambda: None)


def test_processes_that_draw_nothing_are_not_waited_for_for_ever(tmp_path: Path) -> None:
    command, time = a_drawer(tmp_path, "import time\ntime.sleep(600)"), FakeTime()

    def waiting() -> None:
        time.now_s += PATIENCE_S / 3

    stream = SheetStream(CONFIG, pinned=False, command=command, clock=time.clock)
    with stream, pytest.raises(RoleCrashed, match="no screen was drawn"):
        stream.fill(lambda sheets: None, blocks=1, waiting=waiting)


def test_the_real_processes_draw_what_the_pool_takes() -> None:
    with SheetStream(replace(CONFIG, warm_start=replace(CONFIG.warm_start, processes=1)), pinned=False) as stream:
        pool = SheetPool(TINY, 64, CPU)
        stream.fill(pool.put, blocks=1, waiting=lambda: None)
    assert len(pool) == BLOCK
    sheets = pool.draw(8, torch.Generator().manual_seed(0))
    assert torch.isfinite(a_study()[1].on(sheets).total)


def test_the_fields_of_a_block_are_its_own_memory() -> None:
    block = torch.zeros(block_bytes(TINY, BLOCK), dtype=torch.uint8)
    parts = parts_of(block, CONFIG)
    parts["name"][...] = 5
    assert int((block == 5).sum()) == parts["name"].numel()
    assert {name: tuple(part.shape) for name, part in parts.items()} == {
        name: (BLOCK, *part.shape[1:]) for name, part in some_sheets().items()
    }
