"""Weights as files: readable by the format's own library, and refused where anything about them is wrong."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from distrl.errors import StoreError
from distrl.policies.weights import DTYPES, pack, restore, unpack

ODD = {
    "b.scalar": torch.tensor(3.5),
    "a.empty": torch.empty(0, 4),
    "turned": torch.arange(12, dtype=torch.float32).reshape(3, 4).T,
    "half": torch.randn(5).to(torch.bfloat16),
    "flags": torch.tensor([True, False, True]),
    "counts": torch.arange(7),
    'ünï " code': torch.ones(1, 1, 1, dtype=torch.int8),
}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and torch.equal(left[name], right[name])
        for name in left
    )


def made_by_hand(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def test_the_library_of_the_format_reads_what_is_packed() -> None:
    assert same(load(b"".join(pack(ODD))), ODD)


def test_what_the_library_of_the_format_writes_is_unpacked() -> None:
    contiguous = {name: tensor.contiguous() for name, tensor in ODD.items()}
    assert same(unpack(save(contiguous, metadata={"format": "pt"})), ODD)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_every_kind_of_number_comes_back(dtype: torch.dtype) -> None:
    given = {"one": torch.tensor([0, 1, 1, 0, 1]).to(dtype), "other": torch.ones(3, dtype=torch.uint8)}
    assert same(unpack(b"".join(pack(given))), given)


def test_nothing_is_copied_on_the_way() -> None:
    tensor = torch.zeros(8)
    _, piece = pack({"w": tensor})
    tensor[3] = 7.0
    assert piece.cast("f")[3] == 7.0
    data = bytearray(b"".join(pack({"w": tensor})))
    (found,) = unpack(memoryview(data)).values()
    data[-4:] = bytes(4)
    data[-20:-16] = torch.tensor([5.0]).numpy().tobytes()
    assert found.tolist() == [0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0]


def test_tensors_lie_aligned() -> None:
    pieces = pack({"a": torch.ones(3, dtype=torch.uint8), "b": torch.ones(2, dtype=torch.float64), "c": torch.ones(1)})
    assert len(pieces[0]) % 8 == 0
    assert [piece.nbytes for piece in pieces[1:]] == [16, 4, 3]


PLACE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234",
        (10**9).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"\xff\xff",
        made_by_hand({"w": 5}),
        made_by_hand({"w": {**PLACE, "dtype": "F31"}}, bytes(8)),
        made_by_hand({"w": PLACE}, bytes(7)),
        made_by_hand({"w": {**PLACE, "shape": [3]}}, bytes(8)),
        made_by_hand({"w": {**PLACE, "shape": [-1, -2]}}, bytes(8)),
        made_by_hand({"w": {**PLACE, "data_offsets": [-8, 0]}}, bytes(8)),
        made_by_hand({"w": {**PLACE, "data_offsets": [8, 0]}}, bytes(8)),
        made_by_hand({"w": {**PLACE, "data_offsets": [4, 12]}}, bytes(8)),
    ],
)
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unpack(data)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_is_changed_in_a_file_it_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(b"".join(pack({"a": torch.ones(3), "b": torch.ones(2, 2, dtype=torch.int16)})))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = unpack(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    except ValueError:
        return
    assert all(tensor.numel() <= len(whole) for tensor in found.values())


@pytest.mark.filterwarnings("error")
def test_weights_that_nobody_may_write_to_are_restored_and_stay_as_they_are() -> None:
    data = memoryview(b"".join(pack(ODD)))
    assert data.readonly
    before, own = bytes(data), {name: torch.zeros_like(tensor) for name, tensor in ODD.items()}
    restore(own, data, source="here", expected="the same")
    assert same(own, ODD)
    for tensor in own.values():
        tensor.zero_()
    assert bytes(data) == before
    with pytest.raises(StoreError, match="here cannot be read"):
        restore(own, b"", source="here", expected="the same")
