"""Weights of a policy as a safetensors file and back, and weights swapped in place.

The format is that of https://github.com/huggingface/safetensors: the size of the header (8 bytes, little-endian), the
header as JSON, and the tensors' memory end to end. Nothing is copied on the way: the library's own functions copy every
tensor twice each way, which is most of what publishing large weights would cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import c_ubyte
from math import prod

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from distrl.errors import StoreError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SIZE_BYTES = 8
"""Of the number in front of the header; headers are padded to a multiple of it, so that tensors lie aligned."""

LONGEST = 2**31
"""Of one dimension: an empty tensor may claim any, and torch refuses those it cannot count."""


class _Place(msgspec.Struct, frozen=True):
    """One tensor in the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def pack(tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """The file in pieces. Those of tensors are their own memory: use them up before the tensors change."""
    # The widest first, so that no tensor begins at an odd place.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, pieces, start = dict[str, _Place](), list[memoryview](), 0
    for name, tensor in ordered:
        piece = _memory(tensor)
        place = _Place(NAMES[tensor.dtype], tuple(tensor.shape), (start, start + piece.nbytes))
        header[name], start = place, start + piece.nbytes
        pieces.append(piece)
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % SIZE_BYTES)
    return [memoryview(len(text).to_bytes(SIZE_BYTES, "little") + text), *pieces]


def unpack(data: bytes | memoryview) -> dict[str, Tensor]:
    """The tensors of a file, as views of `data` where that may be written to; `ValueError` where it is no such file."""
    # torch has no tensors that nobody may write to.
    return _views(memoryview(bytearray(data) if memoryview(data).readonly else data))


def _views(memory: memoryview) -> dict[str, Tensor]:
    start = SIZE_BYTES + int.from_bytes(memory[:SIZE_BYTES], "little")
    if start > memory.nbytes:
        raise ValueError("it breaks off before the end of its header")
    header = msgspec.json.decode(memory[SIZE_BYTES:start], type=dict[str, msgspec.Raw])
    header.pop("__metadata__", None)
    return {name: _tensor(memory[start:], msgspec.json.decode(raw, type=_Place)) for name, raw in header.items()}


def _as_writable(data: bytes | memoryview) -> memoryview:
    """The same memory, as torch takes it; it has to outlive whatever reads it, and nobody may write to it."""
    if not len(data):
        return memoryview(data)
    first = np.frombuffer(data, np.uint8).ctypes.data
    return memoryview((c_ubyte * memoryview(data).nbytes).from_address(first)).cast("B")


def _memory(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def _tensor(body: memoryview, place: _Place) -> Tensor:
    dtype, (start, end) = DTYPES.get(place.dtype), place.data_offsets
    if dtype is None:
        raise ValueError(f"numbers of the kind {place.dtype} are not known")
    count = prod(place.shape)
    possible = all(0 <= length < LONGEST for length in place.shape) and 0 <= start <= end <= body.nbytes
    if not possible or end - start != count * dtype.itemsize:
        raise ValueError("its header does not fit its size")
    if not count:
        return torch.empty(place.shape, dtype=dtype)
    return torch.frombuffer(body[start:end], dtype=dtype).view(place.shape)


def dump(weights: Mapping[str, Tensor]) -> bytes:
    """The weights, wherever they are."""
    return b"".join(pack(weights))


@torch.no_grad()
def restore(own: Mapping[str, Tensor], data: bytes | memoryview, *, source: str, expected: str) -> None:
    """Put the weights in `data` into `own`, in place, or raise and change nothing; `expected` says what would fit."""
    try:
        tensors = _views(_as_writable(data))  # which are only read here, so nothing is copied on the way
    except ValueError as error:
        raise StoreError(
            f"{source} cannot be read: {error}",
            expected="a safetensors file",
            fix="pick another version or checkpoint",
        ) from error
    strange = [name for name in own.keys() | tensors.keys() if _shape(own, name) != _shape(tensors, name)]
    if strange:
        raise StoreError(
            f"{source} holds weights of another architecture: {min(strange)} does not fit",
            expected=expected,
            fix="use the config.toml that lies beside these weights",
        )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


@contextmanager
def swapped_weights(weights: Sequence[nn.Parameter], others: list[Tensor]) -> Iterator[None]:
    """Exchange `weights` with `others` for the duration of the block, without copying: both sides are swapped back after."""
    _swap(weights, others)
    try:
        yield
    finally:
        _swap(weights, others)


def _swap(weights: Sequence[nn.Parameter], others: list[Tensor]) -> None:
    for number, one in enumerate(weights):
        one.data, others[number] = others[number], one.data
