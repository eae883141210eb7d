"""What is made of a run for others: the report, the trace and the comparison."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

import distrl
from distrl.bench.system.stored_run import write_stored_run
from distrl.cli.compare import differences, facts
from distrl.cli.main import main
from distrl.dashboard.catalogue import Detail, Entry
from distrl.dashboard.drawing import screen_svg
from distrl.dashboard.report import cause_of, kind_of_change, write_report
from distrl.dashboard.trace import trace_of
from distrl.experience.frames import FrameStore
from distrl.experience.store import ExperienceStore
from distrl.types import Ending, Observation, Verdict
from support.dashboards import write_hostile_run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stored_run(tmp_path_factory.mktemp("runs"), 120).path


class Reader(HTMLParser):
    """Notes what a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag in ("ol", "pre") or ("class", "scroll") in attrs:
            assert {"tabindex", "aria-label"} <= {name for name, _ in attrs}, (
                f"a {tag} that scrolls is out of reach of the keyboard"
            )

    def handle_data(self, data: str) -> None:
        self.text += data


def read(file: Path) -> Reader:
    reader = Reader()
    reader.feed(file.read_text(encoding="utf-8"))
    return reader


def test_a_report_is_one_file_that_tells_the_figures_failures_and_settings(path: Path) -> None:
    page = read(write_report(path))
    assert "script" not in page.tags
    assert all(address.startswith("data:image/") for address in page.addresses)
    report = distrl.open_run(path).evaluations()["after"]
    for said in (
        f"{report.success:.1%}",
        "success before",
        "the wrong person was called",
        "Best episodes",
        "Worst episodes",
        "Success by template",
        report.per_task[0].template,
        "learning_rate",
        "python",
    ):
        assert said in page.text, said
    failed = sum(not episode.verdict.success for episode in distrl.open_run(path).episodes())
    assert f"Of the newest 120 played episodes, {failed} were no success." in page.text


def test_a_screen_has_a_shape_whatever_the_device_says_of_its_size() -> None:
    for width_px, height_px in ((1, 10**12), (10**12, 1), (-3, 7), (0, 0), (1080, 2400)):
        seen = Observation(instruction="", width_px=width_px, height_px=height_px)
        found = re.search(r'viewBox="0 0 (\d+) (\d+)"', screen_svg(seen, None, b"", "a screen"))
        assert found is not None
        assert 30 <= int(found[2]) <= 750


def test_a_report_of_hostile_text_is_text(tmp_path: Path) -> None:
    page = read(write_report(write_hostile_run(tmp_path).path))
    assert not {"script", "img", "iframe", "object"} & set(page.tags)
    assert "<script>window.hacked=1</script>" in page.text


def test_a_report_of_a_run_without_episodes_says_what_there_is(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 1)
    for file in run.evaluations.glob("*"):
        file.unlink()
    run.metrics.unlink()
    page = read(write_report(run.path))
    assert "not evaluated" in page.text


def test_a_report_shows_pictures_that_were_kept(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 40)
    episodes = list(distrl.open_run(run.path).episodes())
    reference = FrameStore(run.experience).put(b"\xff\xd8a picture\xff\xd9")
    won = next(episode for episode in episodes if episode.verdict.success)
    steps = tuple(replace(step, observation=replace(step.observation, screenshot=reference)) for step in won.steps) * 5
    with ExperienceStore(run.experience) as store:
        store.add(replace(won, id="with-pictures", steps=steps))
    assert any(address.startswith("data:image/jpeg;base64,") for address in read(write_report(run.path)).addresses)


def test_failures_that_differ_in_names_alone_are_one_cause() -> None:
    def cause(reason: str, *effects: str) -> str:
        detail = Detail(
            instruction="",
            device="",
            outcome="failure",
            reason=reason,
            progress=0.0,
            priority=0.0,
            invalid=0,
            side_effects=effects,
        )
        return cause_of(Entry(seq=1, id="a", task="a", suite="a", template="a", version=0, staleness=0, steps=1, success=False, source="played", ending="finished", wall_s=1.0, worker="w", created_s=0.0, detail=detail))  # fmt: skip

    gone = [cause(f"changed what nobody asked for: contacts.person/{who} is gone") for who in ("p1 ('Ann Lee')", "p23 ('Bo')", "p4")]  # fmt: skip
    assert gone == ["changed what nobody asked for: contacts.person/p… is gone"] * 3
    assert cause("notes.note 'n2' ('Tea') should be gone") == cause("notes.note 'n17' should be gone")
    effects = ("notes.note/n7.pinned ('Tea. List') changed", "contacts.person/p1 ('Ann Lee') is gone")
    assert cause(f"changed what nobody asked for: {', '.join(effects)}", *effects) == (
        "changed what nobody asked for: contacts: person deleted"
    )
    assert cause("missing: the answer '3'", *effects) == "missing: the answer …"


@pytest.mark.parametrize(
    ("side_effect", "kind"),
    [
        ("contacts.person/p18 ('Ruth Whitman') is gone", "contacts: person deleted"),
        ("contacts.call/c1 ('Boris Sidorov') was made", "contacts: call added"),
        ("notes.item/l1.0 changed", "notes: item changed"),
        ("notes.note/n7.pinned ('Rental terms') changed", "notes: note changed"),
        ("settings.pref/camera.on changed", "settings: camera changed"),
        ("transactions/8f3-a2.amount changed", "transactions changed"),
        ("the lock screen of 'Ann' is open", "the lock screen of … is open"),
    ],
)
def test_side_effects_are_one_kind_whatever_record_they_befell(side_effect: str, kind: str) -> None:
    assert kind_of_change(side_effect) == kind


# --- trace ------------------------------------------------------------------------------------------------------------


def test_a_trace_has_every_episode_on_its_device_and_time_never_runs_backwards(path: Path) -> None:
    events = json.loads(trace_of(distrl.open_run(path)))["traceEvents"]
    episodes = [event for event in events if event.get("cat") == "episode"]
    assert len(episodes) == 120
    names = {
        (event["pid"], event.get("tid", 0)): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    devices = {episode.id: episode.device for episode in distrl.open_run(path).episodes()}
    assert all(names[event["pid"], event["tid"]] == devices[event["args"]["id"]] for event in episodes)
    assert all(event.get("ts", 0.0) >= 0 and event.get("dur", 0.0) >= 0 for event in events)
    assert {event["ph"] for event in events} == {"M", "X", "C", "i"}
    assert any(event["name"].startswith("publishes version") for event in events)
    decided = [event for event in events if event.get("cat") == "work" and event["name"] == "decides: 7"]
    assert len(decided) == 8 * 12
    assert {names[event["pid"], event["tid"]] for event in decided} == {"decides"}
    assert {event["dur"] for event in decided} == {30_000.0}
    assert not any(event["name"].startswith("takes version") for event in events)  # of workers the spans tell, exactly
    assert [event["args"]["why"] for event in events if event["name"] == "died"] == ["killed by SIGKILL"]


def test_a_trace_tells_failures_from_episodes_that_the_end_of_the_run_cut_off(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 3)
    with ExperienceStore(run.experience) as store:
        played = replace(store.read("episode-000000"), verdict=Verdict(outcome="failure"), ending=Ending.TIME_LIMIT)
        store.add(replace(played, id="cut", wall_s=2.0))
        store.add(replace(played, id="late", wall_s=61.0))
    events = json.loads(trace_of(distrl.open_run(run.path)))["traceEvents"]
    told = {event["args"]["id"]: event["args"]["outcome"] for event in events if event.get("cat") == "episode"}
    assert (told["cut"], told["late"]) == ("cut_off", "failure")


def test_blocks_of_a_row_of_the_trace_do_not_overlap_and_each_says_when_it_began(tmp_path: Path) -> None:
    run = write_stored_run(tmp_path, 140)
    with closing(
        sqlite3.connect(run.experience / "index.sqlite")
    ) as index:  # as if each had waited long for its verdict
        index.execute("UPDATE episodes SET wall_s = 40")
        index.commit()
    events = json.loads(trace_of(distrl.open_run(run.path)))["traceEvents"]
    assert all("ts" in event for event in events if event["ph"] != "M")
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event.get("tid", 0)), []).append((event["ts"], event["ts"] + event["dur"]))
    for blocks in rows.values():
        open_until = list[float]()
        for start, end in sorted(blocks, key=lambda block: (block[0], -block[1])):
            while open_until and open_until[-1] <= start + 1:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1, "a block goes on beyond the one that it begins in"
            open_until.append(end)


def test_the_verbs_write_their_files_and_say_where(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(path), "--out", str(tmp_path / "t.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["size_bytes"] == (tmp_path / "t.json").stat().st_size
    assert main(["report", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(path / "report.html")
    for verb in (["trace"], ["report"], ["compare", str(path)]):
        assert main([*verb, str(tmp_path / "nothing")]) == 2
        assert "is no run folder" in capsys.readouterr().err


# --- compare ----------------------------------------------------------------------------------------------------------


def test_two_runs_are_compared_by_figures_and_settings(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_stored_run(tmp_path, 30)
    config = other.config_file.read_text().replace("per_worker = ", "per_worker = 1")
    other.config_file.write_text(config)
    first, second = distrl.open_run(path), distrl.open_run(other.path)
    assert [facts(one).episodes for one in (first, second)] == [120, 30]
    assert list(differences(first, second)) == ["devices.per_worker"]
    assert main(["compare", str(path), str(other.path), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["settings"]) == ["devices.per_worker"]
