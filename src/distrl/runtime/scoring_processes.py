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
from collections.abc import Callable, Iterator
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
    cuda: bool
    """Whether each has a GPU of its own."""
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
    with scoring_peers(config, frames, cuda=cuda, on_wait=on_wait) as peers:
        yield DataParallelPolicy(policy, peers, batch=config.learner.batch_trajectories)


@contextmanager
def scoring_peers(
    config: Config, frames: FrameReader, *, cuda: bool, on_wait: Callable[[], None]
) -> Iterator[list[Peer]]:
    """The processes beside this one, which are ended with the block."""
    if cuda:
        check_nccl(config)
    num, started = config.learner.gpus, list[tuple[subprocess.Popen[bytes], Peer]]()
    with tempfile.TemporaryDirectory(prefix="distrl-scoring-") as folder:
        meeting = str(Path(folder, "meeting"))
        try:
            for number in range(1, num):
                job = Job(number=number, num=num, config=config, cuda=cuda, meeting=meeting)
                started.append(_start(job, frames))
            peers = [peer for _, peer in started]
            for peer in peers:
                peer.take(Ready, -1, on_wait=on_wait)
            _meet(Job(number=0, num=num, config=config, cuda=cuda, meeting=meeting))
            yield peers
        finally:
            for process, peer in started:
                peer.close()
                _end(process)
            if distributed.is_initialized():
                distributed.destroy_process_group()


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
    place = f"on cuda:{job.number}" if job.cuda else "on the CPU"
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
    if job.cuda:
        torch.cuda.set_device(job.number)
    distributed.init_process_group(
        "nccl" if job.cuda else "gloo",
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
    config = job.config
    if job.cuda:
        config = msgspec.structs.replace(
            config, learner=msgspec.structs.replace(config.learner, device=f"cuda:{job.number}")
        )
    scorer = Scorer(make_policy(config, AskedFrames(channel), learning=True), channel)
    scorer.serve(lambda: _meet(job))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
