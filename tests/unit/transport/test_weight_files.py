"""Published versions as files: checksummed, whole or not at all, in growing order."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from distrl.errors import StoreError
from distrl.experience import durable
from distrl.policies.pointer.policy import PointerPolicy
from distrl.transport import weight_files
from distrl.transport.weight_files import WeightsFolder
from support.batches import tiny_policy
from support.learners import make_version


class Killed(BaseException):
    """Stands for `kill -9`."""


def filled(number: float) -> PointerPolicy:
    """A policy whose every weight is `number`, so that a mixture of two versions would show."""
    policy = tiny_policy()
    with torch.no_grad():
        for weights in policy.network.parameters():
            weights.fill_(number)
    return policy


def all_weights(policy: PointerPolicy) -> set[float]:
    every = torch.cat([weights.detach().flatten() for weights in policy.network.parameters()])
    return {float(every.min()), float(every.max())}


def test_there_is_no_latest_version_before_the_first(tmp_path: Path) -> None:
    assert WeightsFolder(tmp_path / "weights").latest() is None


def test_what_is_published_is_found_and_loaded_by_others(tmp_path: Path) -> None:
    policy, reader = tiny_policy(1, spread=0.1), tiny_policy(2)
    done = WeightsFolder(tmp_path).publish(policy, make_version(3, updates=17, episodes=40))
    folder = WeightsFolder(tmp_path)
    latest = folder.latest()
    assert latest == done
    assert latest is not None
    assert (latest.version, latest.updates, latest.episodes) == (3, 17, 40)
    assert latest.size_bytes == (tmp_path / latest.file).stat().st_size
    folder.load(reader, latest)
    assert reader.dump() == policy.dump()
    assert folder.find(3) == done
    assert folder.find(4) is None


def test_a_reader_that_stays_open_sees_each_new_version(tmp_path: Path) -> None:
    writer, reader = WeightsFolder(tmp_path), WeightsFolder(tmp_path)
    for number in range(4):
        writer.publish(tiny_policy(number), make_version(number))
        latest = reader.latest()
        assert latest is not None
        assert latest.version == number
        assert reader.latest() is latest


@pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
def test_a_damaged_file_is_refused_and_leaves_the_policy_as_it_was(tmp_path: Path, harm: str) -> None:
    folder, reader = WeightsFolder(tmp_path), tiny_policy(2)
    done = folder.publish(tiny_policy(1), make_version(0))
    path, before = tmp_path / done.file, reader.dump()
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-9]), "empty": b""}[harm])
    with pytest.raises(StoreError, match=r"v000000\.safetensors is damaged") as caught:
        folder.load(reader, done)
    assert caught.value.fix
    assert reader.dump() == before


def test_a_version_that_is_gone_is_an_error_with_a_fix(tmp_path: Path) -> None:
    folder = WeightsFolder(tmp_path)
    done = folder.publish(tiny_policy(), make_version(0))
    (tmp_path / done.file).unlink()
    with pytest.raises(StoreError, match="is gone") as caught:
        folder.load(tiny_policy(), done)
    assert "evaluate a folder in" in caught.value.fix
    assert "latest.json and resume the run" in caught.value.fix


def test_a_damaged_pointer_is_an_error_with_a_fix(tmp_path: Path) -> None:
    folder = WeightsFolder(tmp_path)
    folder.publish(tiny_policy(), make_version(0))
    (tmp_path / "latest.json").write_bytes(b'{"version": 0, "file": "\xff')
    with pytest.raises(StoreError, match=r"latest\.json is damaged") as caught:
        WeightsFolder(tmp_path).latest()
    assert caught.value.fix


def test_old_versions_are_forgotten_but_the_first_and_the_last_few_are_kept(tmp_path: Path) -> None:
    folder, policy = WeightsFolder(tmp_path, keep=3), tiny_policy()
    for number in range(8):
        folder.publish(policy, make_version(number))
    assert [number for number in range(8) if folder.find(number)] == [0, 5, 6, 7]
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [
        "v000000.safetensors",
        "v000005.safetensors",
        "v000006.safetensors",
        "v000007.safetensors",
    ]
    first = folder.find(0)
    assert first is not None
    folder.load(policy, first)


FOREIGN = ("v9-notes.txt", "v000001 (copy).safetensors", "v1.json", "vocabulary.json", "v.x", "v000001.safetensors.bak")


def test_files_of_other_names_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    folder, policy = WeightsFolder(tmp_path, keep=1), tiny_policy()
    for name in FOREIGN:
        (tmp_path / name).write_bytes(b"somebody's own")
    for number in range(4):
        folder.publish(policy, make_version(number))
    assert [number for number in range(4) if folder.find(number)] == [0, 3]
    assert {name for name in FOREIGN if (tmp_path / name).exists()} == set(FOREIGN)


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_writer_killed_at_any_write_leaves_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    folder, policy = WeightsFolder(tmp_path), filled(1.0)
    folder.publish(policy, make_version(1))
    left = [writes]

    def replace(path: Path, *pieces: bytes | memoryview) -> None:
        if not left[0]:
            content = b"".join(pieces)
            path.with_name(f".{path.name}.half").write_bytes(content[: len(content) // 2])
            raise Killed
        left[0] -= 1
        durable.replace(path, *pieces)

    monkeypatch.setattr(weight_files, "replace", replace)
    with pytest.raises(Killed):
        folder.publish(filled(2.0), make_version(2))
    latest = WeightsFolder(tmp_path).latest()
    assert latest is not None
    assert latest.version == 1
    WeightsFolder(tmp_path).load(policy, latest)
    assert all_weights(policy) == {1.0}
    monkeypatch.undo()
    # The next incarnation publishes the same number again, over whatever lies there.
    again = WeightsFolder(tmp_path)
    again.load(policy, again.publish(filled(3.0), make_version(2)))
    assert all_weights(policy) == {3.0}


def test_readers_beside_a_writer_see_whole_versions_in_growing_order(tmp_path: Path) -> None:
    writer = WeightsFolder(tmp_path, keep=1000)
    writer.publish(filled(0.0), make_version(0))
    seen: list[int] = []
    torn: list[object] = []
    done = Event()

    def read() -> None:
        folder, policy = WeightsFolder(tmp_path), tiny_policy()
        while not done.is_set():
            latest = folder.latest()
            assert latest is not None
            folder.load(policy, latest)
            seen.append(latest.version)
            if all_weights(policy) != {float(latest.version)}:
                torn.append(latest)

    reader = Thread(target=read)
    reader.start()
    try:
        for number in range(1, 12):
            writer.publish(filled(float(number)), make_version(number))
    finally:
        done.set()
        reader.join()
    assert seen
    assert seen == sorted(seen)
    assert not torn
