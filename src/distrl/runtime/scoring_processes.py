"""The other processes of a learner that computes on several GPUs: started beside it, on its machine, and ended with it.

    python -m distrl.runtime.scoring_processes PIPE

is what each of them runs; the first record on its pipe says which one it is. What they do is in `learner.scoring`.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any

import msgspec
import torch
from torch import distributed

from distrl.config.schema import Config
from distrl.errors import ConfigError
from distrl.experience.frames import FrameReader
from distrl.learner.data_parallel import DataParallelPolicy, Peer, Ready, encoded_type
from distrl.learner.scoring import AskedFrames, Channel, Scorer
from distrl.policies.base import Policy
from distrl.runtime.factory import make_policy, prepare_torch

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""
COLLECTIVE_S = 120.0
"""How long weights or gradients may be on their way; the learner is silent meanwhile, and found out before."""
END_S = 5.0
"""How long a process that has lost its learner may take to be gone before it is killed."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the processes this is, and of what."""

    number: int
    num: int
    config: Config
    device: str
    backend: str
    """Of `torch.distributed`: nccl where each process has a GPU of its own, which it insists on; gloo otherwise."""
    meeting: str
    """A file through which they find each other, in a folder of this user alone."""


@contextmanager
def shared_scoring(
    config: Config, policy: Policy[Any], frames: FrameReader, *, on_wait: Callable[[], None]
) -> Iterator[Policy[Any]]:
    """The learner's policy with `learner.gpus` processes behind its `score`; the policy itself where there is one."""
    num = config.learner.gpus
    if num == 1:
        yield policy
        return
    encoded_type(policy)  # raises before anything is started
    cuda = any(weights.is_cuda for weights in policy.network.parameters())
    devices = [f"cuda:{number}" if cuda else "cpu" for number in range(num)]
    with scoring_peers(config, frames, devices=devices, on_wait=on_wait) as peers:
        yield DataParallelPolicy(policy, peers, batch=config.learner.batch_trajectories)


@contextmanager
def scoring_peers(
    config: Config, frames: FrameReader, *, devices: Sequence[str], on_wait: Callable[[], None]
) -> Iterator[list[Peer]]:
    """The processes beside this one, which are ended with the block; `devices` are those of all processes, this one's first."""
    backend, started = backend_of(devices), list[tuple[subprocess.Popen[bytes], Peer]]()
    if backend == "nccl":
        check_nccl(config)
    with tempfile.TemporaryDirectory(prefix="distrl-scoring-") as folder:
        meeting = str(Path(folder, "meeting"))
        jobs = [
            Job(number=number, num=len(devices), config=config, device=device, backend=backend, meeting=meeting)
            for number, device in enumerate(devices)
        ]
        try:
            for job in jobs[1:]:
                started.append(_start(job, frames))
            peers = [peer for _, peer in started]
            for peer in peers:
                peer.take(Ready, -1, on_wait=on_wait)
            _meet(jobs[0])
            yield peers
        finally:
            for process, peer in started:
                peer.close()
                _end(process)
            if distributed.is_initialized():
                distributed.destroy_process_group()


def backend_of(devices: Sequence[str]) -> str:
    """What passes weights and gradients between processes on these devices."""
    return "nccl" if all(name.startswith("cuda") for name in devices) and len(set(devices)) == len(devices) else "gloo"


def check_nccl(config: Config) -> None:
    """`ConfigError` where this torch cannot pass gradients between GPUs."""
    if not distributed.is_nccl_available():
        raise ConfigError(
            f"learner.gpus = {config.learner.gpus}, and torch {torch.__version__} here was built without NCCL",
            expected="torch for CUDA on Linux, which brings NCCL along",
            fix="--learner.gpus 1, or install torch for CUDA",
        )


def _start(job: Job, frames: FrameReader) -> tuple[subprocess.Popen[bytes], Peer]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "distrl.runtime.scoring_processes", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        pipe = Connection(ours.detach())
    pipe.send_bytes(msgspec.msgpack.encode(job))
    place = "on the CPU" if job.device == "cpu" else f"on {job.device}"
    return process, Peer(f"process {job.number} of the learner, {place},", pipe, frames, lambda: _how_ended(process))


def _how_ended(process: subprocess.Popen[bytes]) -> str:
    code = process.poll()
    if code is None:
        return ""
    return f"killed by {Signals(-code).name}" if code < 0 else f"exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """It ends once its pipe is closed; one that is in the middle of something is killed."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _meet(job: Job) -> None:
    """Join the group; between processes of one machine, so nothing listens on any other address than its own."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, loopback)
    if job.device != "cpu":
        torch.cuda.set_device(job.device)
    distributed.init_process_group(
        job.backend,
        init_method=f"file://{job.meeting}", rank=job.number, world_size=job.num, timeout=timedelta(seconds=COLLECTIVE_S),
    )  # fmt: skip


def main(argv: list[str]) -> int:
    """Be one of the processes until the learner is gone."""
    if sys.platform == "linux":  # elsewhere it ends once it looks at its pipe
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    pipe = Connection(int(argv[0]))
    job = msgspec.msgpack.decode(pipe.recv_bytes(), type=Job)
    prepare_torch()
    channel = Channel(pipe)
    own = msgspec.structs.replace(job.config.learner, device=job.device)
    config = msgspec.structs.replace(job.config, learner=own)
    scorer = Scorer(make_policy(config, AskedFrames(channel), learning=True), channel)
    scorer.serve(lambda: _meet(job))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
