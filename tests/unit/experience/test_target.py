"""Targets elsewhere: what is acknowledged is durable there first, and a run folder can be filled again from them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

import pytest

from distrl.config.load import load_config
from distrl.errors import ConfigError, StoreBusy, StoreError
from distrl.experience import target as targets
from distrl.experience.frames import reference_of
from distrl.experience.target import Target, check_target
from distrl.runtime.kinds import check_runtime
from distrl.transport.files import FileLayout, FileTransport
from distrl.transport.stored_elsewhere import StoredElsewhere
from support.trajectories import make_trajectory

fsspec = pytest.importorskip("fsspec")
PICTURES = [b"\xff\xd8 one", b"\x89PNG two", b"three"]


@pytest.fixture(params=["folder", "memory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place that is empty: on a disk, in fsspec's memory, and on an S3 server of this machine."""
    if request.param == "folder":
        yield str(tmp_path / "share")
    elif request.param == "memory":
        yield f"memory://bucket-{uuid4().hex}"
    else:
        yield from an_s3_bucket()


def an_s3_bucket() -> Iterator[str]:
    pytest.importorskip("s3fs", reason="pip install s3fs")
    server = pytest.importorskip("moto.server", reason="pip install 'moto[server]'").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    before = dict(fsspec.config.conf)
    fsspec.config.conf["s3"] = {
        "endpoint_url": f"http://{host}:{port}", "key": "test", "secret": "test", "skip_instance_cache": True
    }  # fmt: skip
    try:
        name = f"bucket-{uuid4().hex}"
        fsspec.filesystem("s3").mkdir(name)
        yield f"s3://{name}/runs"
    finally:
        fsspec.config.conf.clear()
        fsspec.config.conf.update(before)
        server.stop()


def test_what_was_put_is_there_whole_under_its_name_and_once(url: str) -> None:
    target = Target(url)
    assert target.names("episodes") == []
    target.put_all({f"episodes/{number}.ep": b"x" * number for number in range(20)})
    target.put_all({"episodes/3.ep": b"xxx", "frames/a.jpg": b"picture"})
    again = Target(url)
    assert again.names("episodes") == sorted(f"{number}.ep" for number in range(20))
    assert again.get("episodes/7.ep") == b"x" * 7
    assert again.below("frames").get("a.jpg") == b"picture"
    again.remove("frames/a.jpg")
    with pytest.raises(StoreError):
        again.get("frames/a.jpg")


def test_an_episode_is_there_with_its_pictures_before_it_is_acknowledged_and_comes_back_from_there(
    url: str, tmp_path: Path
) -> None:
    run, other = FileLayout(tmp_path / "run"), FileLayout(tmp_path / "other" / "run")
    transport = FileTransport(run, storage=url)
    transport.episodes.add(make_trajectory("e1"), {reference_of(PICTURES[0]): PICTURES[0]})
    transport.episodes.add(make_trajectory("e2"), {})
    transport.episodes.add(make_trajectory("e2"), {})  # it was not acknowledged in time, and comes again
    for picture in PICTURES[1:]:
        assert transport.frames.put(picture) == reference_of(picture)
    there = Target(url).below("run")
    assert there.names("episodes") == ["e1.ep", "e2.ep"]
    assert len(there.names("frames")) == 3
    assert StoredElsewhere(there).fetch(other.experience) == (2, 3)
    found = FileTransport(other)
    assert sorted(row.id for row in found.episodes.after(0, 10)) == ["e1", "e2"]
    assert found.episodes.read("e1") == make_trajectory("e1")
    assert [found.frames.get(reference_of(picture)) for picture in PICTURES] == PICTURES
    assert found.episodes.audit().healthy
    assert StoredElsewhere(there).fetch(other.experience) == (0, 0)


def test_a_picture_that_the_run_folder_has_no_more_is_read_from_there(url: str, tmp_path: Path) -> None:
    layout = FileLayout(tmp_path / "run")
    transport = FileTransport(layout, storage=url)
    references = [transport.frames.put(picture) for picture in PICTURES]
    for path in (layout.experience / "frames").glob("*/*"):
        path.unlink()
    assert [transport.frames.get(reference) for reference in references] == PICTURES
    with pytest.raises(StoreError, match="neither in the run folder nor at"):
        transport.frames.get(reference_of(b"never seen"))


class Failing(Target):
    """A target that does not answer until it is mended."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.mended, self.tries = Event(), 0

    def _put(self, name: str, content: bytes) -> None:
        self.tries += 1
        if not self.mended.is_set():
            raise StoreBusy("no route to host")
        super()._put(name, content)


def test_while_a_target_does_not_answer_nothing_is_acknowledged_and_it_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target, layout = Failing(str(tmp_path / "share")), FileLayout(tmp_path / "run")
    transport = FileTransport(layout, storage=str(tmp_path / "share"))
    transport.episodes._elsewhere = StoredElsewhere(target, sleep=lambda s: time.sleep(s / 100))
    adding = Thread(target=transport.episodes.add, args=[make_trajectory("e1"), {}], daemon=True)
    adding.start()
    while target.tries < 3:
        time.sleep(0.001)
    assert transport.episodes.stats().episodes == 0
    assert adding.is_alive()
    target.mended.set()
    adding.join(30)
    assert transport.episodes.stats().episodes == 1
    assert target.names("episodes") == ["e1.ep"]
    assert "no route to host; tried again until it answers" in caplog.text
    assert len(caplog.records) == 1


def test_a_file_that_broke_off_is_written_again_before_its_episode_is_acknowledged(tmp_path: Path) -> None:
    url = f"memory://bucket-{uuid4().hex}"
    Target(url).put_all({"run/episodes/e1.ep": b"half of an epi"})
    transport = FileTransport(FileLayout(tmp_path / "run"), storage=url)
    transport.episodes.add(make_trajectory("e1"), {})
    there = Target(url).below("run")
    assert StoredElsewhere(there).fetch(tmp_path / "other") == (1, 0)
    there.put_all({"episodes/e2.ep": b"half of an epi", f"frames/{'a' * 64}.jpg": b"half of a pic"})
    assert StoredElsewhere(there).fetch(tmp_path / "other") == (0, 0)


# --- what cannot be used ----------------------------------------------------------------------------------------------


def refused(url: str) -> str:
    started_s = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        check_runtime(load_config(None, {"run.storage": url}))
    assert time.monotonic() - started_s < 30
    assert caught.value.fix
    return str(caught.value)


def test_a_target_that_can_be_used_is_left_as_it_was(url: str) -> None:
    check_target(url)
    assert Target(url).names("") == []


def test_a_target_that_cannot_be_used_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot write" in refused(str(tmp_path / "file"))
    assert "run.storage = nonsense://x" in refused("nonsense://x")
    assert "depends on the folder" in refused("share/runs")
    assert "holds a password" in refused("sftp://me:secret@host/x")
    if os.getuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "the right to write there" in refused(str(tmp_path / "locked"))


def test_a_target_that_does_not_answer_is_refused_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(targets, "_try", lambda target: time.sleep(60))
    with pytest.raises(ConfigError, match=r"did not answer within 0\.2 s"):
        check_target(str(tmp_path), deadline_s=0.2)
