"""How fast a GPU clones screens, under several settings: `python benchmarks/pixel_probe.py [--seconds 55]`.

Prints what the machine has, how fast screens are drawn by how many processes, a table of batch sizes with and without
compiled layers, and the kernels that take longest. Stops by itself; what does not fit into the time is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.learner.screens import SheetStream
from distrl.policies.pixel.network import PixelNetwork, Stem, compile_layers, plain_layers
from distrl.policies.pixel.study import SheetPool, Study

BEGAN_S = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN_S:5.1f}] {text}", flush=True)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(step: Callable[[], None], *, warm: int = 3, count: int = 8) -> float:
    """Seconds of one step."""
    for _ in range(warm):
        step()
    synchronize()
    started_s = time.monotonic()
    for _ in range(count):
        step()
    synchronize()
    return (time.monotonic() - started_s) / count


class Probe:
    """One network and a pool of real screens."""

    def __init__(self, config: Config, device: torch.device, stream: SheetStream) -> None:
        self.config, self.device, self.stream = config, device, stream
        torch.manual_seed(0)
        self.network = PixelNetwork(config.policy.pixel).to(device)
        self.pool = SheetPool(config.policy.pixel, 2048, device)

    def study(self, batch: int, questions: int, reading: float) -> Callable[[], None]:
        warm_start = replace(self.config.warm_start, batch=batch, questions=questions, reading_weight=reading)
        study = Study(self.network, self.config.policy.pixel, warm_start, seed=0)
        optimizer = torch.optim.AdamW(study.parameters(), lr=1e-5, fused=True)

        def step() -> None:
            self.stream.take(self.pool.put, most=16)
            loss = study.on(self.pool.draw(batch, study.generator)).total
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(study.parameters(), 1.0)
            optimizer.step()

        return step

    def row(self, name: str, batch: int, questions: int, reading: float = 1.0, count: int = 8) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            spent_s = timed(self.study(batch, questions, reading), count=count)
        except Exception as error:
            say(f"{name:34s} FAILED {type(error).__name__}: {str(error)[:300]}")
            return
        room = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else 0.0
        say(
            f"{name:34s} batch {batch:4d} x {questions}: {1000 * spent_s:7.1f} ms, {batch / spent_s:7.0f} screens/s, "
            f"{batch * questions / spent_s:7.0f} questions/s, {room:5.1f} GiB"
        )

    def parts(self, batch: int, questions: int) -> None:
        """Where a step's time goes: forward and backward of looking alone, and of acting without gradient."""
        sheets = self.pool.draw(batch, torch.Generator(self.device).manual_seed(0))
        tint = torch.tensor([[1.0, 1, 1, 0, 0, 0]], device=self.device).expand(batch, -1)

        def look(stage: int) -> None:
            seen = self.network.look(sheets["picture"], tint)[stage]
            seen.float().mean().backward()

        def stem() -> None:
            half = torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")
            with half:
                self.network._squares(sheets["picture"], tint).float().mean().backward()

        for name, step in (("stem", stem), ("stem and vision", lambda: look(1))):
            spent_s = timed(step)
            say(f"{name:34s} batch {batch:4d}: {1000 * spent_s:7.1f} ms forward and backward")

    def kernels(self, batch: int, questions: int) -> None:
        from torch.profiler import ProfilerActivity, profile

        step = self.study(batch, questions, 1.0)
        timed(step, warm=2, count=1)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            step()
            synchronize()
        table = found.key_averages().table(sort_by="self_cuda_time_total", row_limit=16, max_name_column_width=72)
        lines = [line for line in table.splitlines() if "----" not in line]
        print("\n".join(f"{line[:74]} {' '.join(line[74:].split()[-5:])}" for line in lines), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=str(Path(__file__).parents[1] / "configs/pixel-h200.toml"))
    parser.add_argument("--seconds", type=float, default=55.0)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--small", action="store_true", help="tiny batches, to see on a CPU that the probe works")
    asked = parser.parse_args()
    config = load_config(Path(asked.config), {"warm_start.processes": asked.processes})
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    say(
        f"torch {torch.__version__}, {name}, {os.cpu_count()} cores, gcc {shutil.which('gcc')}, cc {shutil.which('cc')}"
    )
    size = 4 if asked.small else 128

    def left_s() -> float:
        return asked.seconds - (time.monotonic() - BEGAN_S)

    with SheetStream(config, pinned=device.type == "cuda") as stream:
        probe = Probe(config, device, stream)
        stream.fill(probe.pool.put, blocks=2, waiting=lambda: None)
        say(f"the first screens of {asked.processes} processes are here")
        drawing = Drawing(probe.pool)
        probe.row("plain", size, 4)
        drawing.tell("meanwhile")
        if not asked.small:
            probe.row("plain", 256, 4, count=4)
        probe.row("plain, nothing read", size, 4, reading=0.0)
        probe.row("plain, one question", size, 1, reading=0.0)
        probe.parts(size, 4)
        drawing.tell("meanwhile")
        if device.type == "cuda" and left_s() > 20:
            probe.kernels(size, 4)
        drawing.tell("meanwhile")
        compiled(probe, size, left_s)
        drawing.tell("meanwhile")
        while left_s() > 2 and not asked.small:
            time.sleep(0.02)
            stream.take(probe.pool.put, most=64)
        drawing.tell("with an idle GPU")


def compiled(probe: Probe, size: int, left_s: Callable[[], float]) -> None:
    if left_s() < 12 or probe.device.type != "cuda":
        return say("no time left to compile, or no GPU")
    started_s = time.monotonic()
    compile_layers(probe.network)
    probe.row("layers compiled", size, 4)
    say(f"compiling and trying took {time.monotonic() - started_s:.1f} s")
    if left_s() > 14:
        for part in probe.network.modules():
            if isinstance(part, Stem):
                part.compile(dynamic=False)
        probe.row("layers and stem compiled", size, 4)
    plain_layers(probe.network)


class Drawing:
    """How fast screens come in."""

    def __init__(self, pool: SheetPool) -> None:
        self._pool, self._since_s, self._taken = pool, time.monotonic(), pool.taken

    def tell(self, when: str) -> None:
        spent_s, taken = time.monotonic() - self._since_s, self._pool.taken - self._taken
        say(f"{taken} screens in {spent_s:.1f} s, {taken / max(spent_s, 1e-9):.0f}/s {when}")
        self._since_s, self._taken = time.monotonic(), self._pool.taken


if __name__ == "__main__":
    main()
