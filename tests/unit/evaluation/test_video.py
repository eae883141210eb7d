"""An episode as an MP4: decoded again, it has the frames of the GIF, for as long."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image, ImageDraw

import distrl
from distrl.cli.main import main
from distrl.errors import UsageError
from distrl.evaluation import video
from distrl.evaluation.film import frames_of, make_gif
from distrl.evaluation.stored_playback import Playback, stored_playback
from distrl.evaluation.video import FRAMES_PER_S, make_mp4
from distrl.experience.frames import FrameStore
from distrl.types import Ending, Trajectory, Verdict
from support.trajectories import make_trajectory


def screen(number: int) -> bytes:
    """A picture of its own for each step."""
    picture = Image.new("RGB", (181, 363), (40 * number, 120, 200 - 30 * number))
    ImageDraw.Draw(picture).text((20, 100), f"screen {number}", "white")
    out = BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def pictured(run: Path) -> Trajectory:
    """An episode whose screens are in the frames of a run."""
    store, episode = FrameStore(run / "experience"), make_trajectory("filmed", num_steps=3)
    references = [store.put(screen(number)) for number in range(4)]
    steps = tuple(
        replace(step, observation=replace(step.observation, screenshot=reference))
        for step, reference in zip(episode.steps, references, strict=False)
    )
    return replace(episode, steps=steps, last=replace(steps[-1].observation, screenshot=references[3]))


def decoded(content: bytes) -> tuple[list[np.ndarray], float]:
    av = pytest.importorskip("av", reason="PyAV is not installed: the extra [video]")
    with av.open(BytesIO(content)) as film:
        (stream,) = film.streams.video
        assert stream.codec_context.name == "h264"
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(stream)]
        return frames, float(stream.duration * stream.time_base)


def test_a_film_has_the_frames_of_the_gif_for_as_long(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="PyAV is not installed: the extra [video]")
    playback = Playback(trajectory=make_trajectory(num_steps=3), screens=tuple(screen(number) for number in range(4)))
    pictures, times_ms = frames_of(playback)
    frames, seconds = decoded(make_mp4(playback))
    assert seconds == pytest.approx(sum(times_ms) / 1000, abs=0.2)
    at_s = 0.0
    for picture, time_ms in zip(pictures, times_ms, strict=True):
        shown = frames[int((at_s + time_ms / 2000) * FRAMES_PER_S)]
        right = np.asarray(picture)[: shown.shape[0], : shown.shape[1]]
        assert np.abs(shown.astype(int) - right.astype(int)).mean() < 6, at_s
        at_s += time_ms / 1000
    assert all(side % 2 == 0 for side in frames[0].shape[:2])


@pytest.mark.parametrize("suffix", ["mp4", "gif", "png"])
def test_a_stored_episode_is_exported_as_a_film(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = distrl.record([make_trajectory("drawn")], run__root=str(tmp_path / "runs"))
    again = distrl.record([pictured(run.path)], run__root=str(tmp_path / "runs"), run__name="pictured")
    FrameStore(again.path / "experience").put_all(screen(number) for number in range(4))
    if suffix == "mp4":
        pytest.importorskip("av", reason="PyAV is not installed: the extra [video]")
    for found, id, said in ((run, "drawn", "drawn from its elements"), (again, "filmed", "3 steps")):
        out = tmp_path / "new" / f"{id}.{suffix}"
        assert main(["export", str(found.path), str(out), "--film", id]) == 0
        assert said in capsys.readouterr().out
        if suffix == "mp4":
            assert len(decoded(out.read_bytes())[0]) > 10
        else:
            with Image.open(out) as picture:
                assert picture.format == suffix.upper()


def test_the_film_of_an_episode_that_the_end_of_the_run_cut_off_shows_no_failure(tmp_path: Path) -> None:
    failed = replace(make_trajectory("cut", success=False), ending=Ending.TIME_LIMIT)
    unknown = replace(failed, verdict=Verdict(outcome="unknown", reason="the end of the run cut it off"))
    run = distrl.record([failed], run__root=str(tmp_path / "runs"))
    assert main(["export", str(run.path), str(tmp_path / "cut.gif"), "--film", "cut"]) == 0
    films = [make_gif(Playback(trajectory=one, screens=())) for one in (unknown, failed)]
    assert (tmp_path / "cut.gif").read_bytes() == films[0] != films[1]


def test_a_screen_that_is_gone_is_drawn_from_its_elements(tmp_path: Path) -> None:
    run = distrl.record([make_trajectory("other")], run__root=str(tmp_path))
    episode = pictured(run.path)
    assert len(stored_playback(episode, run.frame).screens) == 4
    next((run.path / "experience" / "frames").glob("*/*.png")).unlink()
    assert stored_playback(episode, run.frame).screens == ()


def test_what_cannot_be_filmed_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = distrl.record([make_trajectory("drawn")], run__root=str(tmp_path / "runs"))
    assert main(["export", str(run.path), str(tmp_path / "a.avi"), "--film", "drawn"]) == 2
    assert "a.gif" in capsys.readouterr().err
    assert main(["export", str(run.path), str(tmp_path / "a.gif"), "--film", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
    monkeypatch.setattr(video, "find_spec", lambda name: None)
    assert main(["export", str(run.path), str(tmp_path / "a.mp4"), "--film", "drawn"]) == 2
    assert "'.[video]'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="video"):
        make_mp4(Playback(trajectory=make_trajectory(), screens=()))
    assert not list(tmp_path.glob("a.*"))
