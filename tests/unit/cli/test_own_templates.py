"""What helps a person who writes templates: ids and changes while playing, ids that are taken back, wrong routes refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

import distrl
from distrl.cli.main import main
from distrl.cli.watch import _suite_of
from distrl.dashboard.catalogue import EpisodeFilter
from distrl.dashboard.episode_page import show
from distrl.dashboard.run_list import OpenRun
from distrl.errors import TaskError
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.source import TaskChoice, choose_task, find_source
from distrl.tasks.base import suite
from distrl.telemetry.live import DeviceView, DeviceViews, FileScreens
from support.trained import small_run
from support.trajectories import make_trajectory

GOOD = """
from distrl.devices.sim.apps.settings import CHOICES, PREFS
from distrl.tasks.sim.templates import Draft, SimSuite, Templates, open_app, tap

templates = Templates()


@templates.add
def ringtone(t: Draft) -> None:
    melody, other = t.random.sample(CHOICES["sound"]["ringtone"][1], 2)
    t.say(
        f"Set the ringtone to {melody}",
        f"Use {melody} as the call melody",
        f"When someone calls, play {melody}",
        f"I want to hear {melody} when the phone rings",
        f"Ring with {melody} from now on",
    )
    t.given(PREFS, "ringtone", choice=other)
    t.want(PREFS, "ringtone", choice=melody)
    t.route(open_app("settings"), tap("section:sound"), tap("ringtone"), tap(f"option:{melody}"))


def sounds(_settings: None) -> SimSuite:
    return SimSuite("sounds", templates, sizes={"train": 6, "tune": 1, "test": 2})
"""
LOST = GOOD.replace('tap("ringtone"), ', 'tap("rington"), ')
SCROLLED = LOST.replace('tap("section:sound"), ', "")
CLOSED = GOOD.replace('open_app("settings")', 'open_app("setings")')
BROKEN = GOOD.replace("t.given(", "t.gven(")
SHORT = GOOD.replace(', tap(f"option:{melody}")', "")
MISSED = GOOD.replace("t.want(PREFS", 't.want("settings.prefs"')
NEVER = GOOD.replace(
    "    t.say(",
    """    from distrl.tasks.sim.templates import NoInstance

    raise NoInstance("not today")
    t.say(""",
)
EMPTY = GOOD.replace("return SimSuite(", "SimSuite(")
DONE = GOOD.replace("choice=other", "choice=melody")
ASKED = """
from distrl.devices.sim.apps.settings import PREFS
from distrl.tasks.sim.templates import Draft, SimSuite, Templates, open_app, tap

templates = Templates()


@templates.add
def ringtone(t: Draft) -> None:
    ask, which = t.one_of("What is", "Name", "Tell me", "Read", "Find out", "Say", "Look up"), t.one_of("the", "my")
    t.say(f"{ask} {which} ringtone", f"{ask} {which} call melody")
    t.want_answer(str(t.tables[PREFS]["ringtone"]["choice"]))
    t.route(open_app("settings"), tap("section:sound"))


def sounds(_settings: None) -> SimSuite:
    return SimSuite("sounds", templates, sizes={"train": 6, "tune": 1, "test": 2})
"""
UNSEEN = ASKED.replace('t.want_answer(str(t.tables[PREFS]["ringtone"]["choice"]))', 't.want_answer("42 elephants")')
DRAWN = ASKED.replace(
    "    ask, which", '    _, person = t.row("contacts.person", lambda record: record["job"] != "")\n    ask, which'
)
DRAWN_LATER = ASKED.replace(
    "    ask, which", '    _, person = t.row("contacts.person")\n    person["compny"]\n    ask, which'
)
DRAWN_OF_SOME = ASKED.replace(
    "    ask, which", '    t.row("settings.pref", lambda record: record["choice"] == "Off")\n    ask, which'
)
COUNTED = UNSEEN.replace('"42 elephants"', '"42 elephants", shown=False')
TRAIN = ("train", "--run.minutes", "0.1", "--tasks.suite")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module in the current folder that holds the source of the test's parameter."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(request.param)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_ids_and_what_an_action_changed_are_shown_to_whoever_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ["tasks", "try", "sim-general/test/00010", "--out", str(tmp_path)]
    assert main([*task, "--ids"]) == 0
    shown = capsys.readouterr().out
    assert "id option:18:30" in shown
    assert "record calendar.event/e8: {" in shown
    assert "'time': '18:30'}" in shown
    assert "showing calendar/event {'id': 'e8'}" in shown
    assert main(task) == 0
    plain = capsys.readouterr().out
    assert " id option:" not in plain
    assert "record calendar" not in plain


@pytest.mark.parametrize("module", [GOOD], indirect=True)
def test_an_id_that_is_shown_is_taken_back(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", f"{module}:sounds/test/1"]) == 0
    shown = capsys.readouterr().out
    id = shown.splitlines()[0]
    assert id == f"{module}:sounds/test/00001"
    assert main(["tasks", "show", id]) == 0
    assert capsys.readouterr().out == shown
    assert main(["tasks", "try", id, "--json"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{id} (ringtone): ")
    assert json.loads(told[-1])["task"] == id
    for wrong in (f"{module}:sounds/test/2", f"{module}:sounds/test/x"):
        assert main(["tasks", "show", wrong]) == 2
        hint = capsys.readouterr().err.splitlines()[-1].removeprefix("try: distrl ")
        assert main(hint.split()) == 0
        capsys.readouterr()
    assert main(["tasks", "list", "--suite", f"{module}:sounds"]) == 0
    assert "sounds: 6 train, 1 tune, 2 test tasks; oracle median 5 steps" in capsys.readouterr().out


@pytest.mark.parametrize("module", [GOOD], indirect=True)
def test_a_task_of_the_own_suite_of_a_run_is_found_by_import_path_and_short_name(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{module}:sounds"
    run = small_run(tmp_path / "runs", tasks__suite=path)
    for id in (f"{path}/test/1", "sounds/test/1", "test/1", "1"):
        source = find_source(run.path, TaskChoice(suite=_suite_of(id)), trust_code=True)
        assert choose_task(source.config, id).id == "sounds/test/00001"
    assert main(["watch", str(run.path), f"{path}/test/1", "--trust-code", "--json"]) == 0
    told = capsys.readouterr().out.splitlines()
    torch.set_flush_denormal(False)
    assert any(line.startswith(f"{path}/test/00001 (ringtone): ") for line in told)
    assert json.loads(told[-1])["episodes"][0]["task"] == f"{path}/test/00001"
    env = distrl.make_env(path)
    for id in (f"{path}/test/1", "sounds/test/1"):
        assert env.reset(options={"task": id})[1]["task"].id == "sounds/test/00001"
    with pytest.raises(TaskError) as caught:
        choose_task(source.config, "sound/test/1")
    assert caught.value.expected == f"{path}/test/0 and the like"
    assert caught.value.fix == f"distrl tasks list --suite {path}"


@pytest.mark.parametrize("module", [GOOD], indirect=True)
def test_a_module_that_is_named_without_its_function_is_answered_with_how_to_name_it(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", "list", "--suite", module]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"distrl: tasks.suite = {module!r} is a file, {module}.py"
    assert told[-1].startswith(f"try: {module}:NAME, ")


@pytest.mark.parametrize("module", [GOOD], indirect=True)
def test_the_dashboard_names_a_task_of_an_own_suite_as_the_command_line_does(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{module}:sounds"
    task = suite(path).task("train", 3)
    run = distrl.record(
        [replace(make_trajectory("played"), task=task)], run__root=str(tmp_path / "runs"), tasks__suite=path
    )
    heartbeats = RunFolder(run.path).heartbeats
    heartbeats.mkdir()
    view = DeviceView(device="d", role="worker-0", state="playing", task=task.id)
    FileScreens(heartbeats, "worker-0").show(DeviceViews(time_s=1.0, devices=(view,)))
    opened = OpenRun(run.path)
    opened.refresh()
    (entry,) = opened.catalogue.find(EpisodeFilter(task=f"{path}/train/00003"), budget_s=60.0).entries
    (tile,) = opened.fleet.tiles()[1]
    shown = show(opened.run, entry, ("", ""), 0)
    assert {entry.task, tile.task, shown.task} == {f"{path}/train/00003"}
    assert opened.catalogue.choices().suites == {path: 1}
    assert main(["tasks", "show", shown.task]) == 0
    assert capsys.readouterr().out.splitlines()[0] == shown.task


@pytest.mark.parametrize(
    ("module", "seen", "expected", "fix"),
    [
        (DRAWN, "contacts.person has no field 'job', in ", "company, email, favourite, name, phone", 'record["'),
        (DRAWN_LATER, "contacts.person has no field 'compny', in ", "company, email, favourite, name, phone", 'record["company"]'),
        (DRAWN_OF_SOME, "a record of settings.pref has no 'choice', which others have, in ", "on", 'record.get("choice")'),
    ],
    indirect=["module"],
    ids=["in the condition", "in the record", "of some records"],
)  # fmt: skip
def test_a_field_that_a_record_has_not_is_answered_with_those_that_it_has(
    module: str, seen: str, expected: str, fix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", "list", "--suite", f"{module}:sounds"]) == 2
    told = capsys.readouterr().err.splitlines()
    line = next(n for n, text in enumerate((tmp_path / f"{module}.py").read_text().splitlines(), 1) if "t.row(" in text)
    line += "compny" in seen
    assert told[0] == f"distrl: template ringtone of sounds: {seen}{tmp_path / module}.py:{line}"
    assert told[1] == f"expected: {expected}"
    assert told[2].startswith(f"try: {fix}")


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (LOST, "cannot find 'rington'"),
        (SCROLLED, "cannot find 'rington'"),
        (CLOSED, "no app is called 'setings'"),
        (MISSED, "template ringtone of sounds: there is no table 'settings.prefs', in "),
        (NEVER, "no phone can pose ringtone of sounds in the train split: not today"),
        (BROKEN, "template ringtone of sounds raised AttributeError: 'Draft' object has no attribute 'gven' in "),
        (SHORT, "fails: settings.pref 'ringtone' should have choice "),
        (UNSEEN, "stands on no screen of the oracle's way"),
    ],
    indirect=["module"],
    ids=["lost", "scrolled", "closed", "missed", "never", "broken", "short", "unseen"],
)
def test_a_route_that_does_not_lead_to_success_is_refused_before_anything_starts(
    module: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["tasks", "list", "--suite", f"{module}:sounds"], [*TRAIN, f"{module}:sounds"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert why in said
        assert "sounds" in said
        assert ("oracle" in said) == (f"`distrl tasks try {module}:sounds/" in said)
        assert len(said.splitlines()) <= 15
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("module", [ASKED, COUNTED], indirect=True, ids=["shown", "counted"])
def test_an_answer_stands_on_a_screen_or_is_said_to_be_worked_out(module: str) -> None:
    assert main(["tasks", "list", "--suite", f"{module}:sounds"]) == 0


@pytest.mark.parametrize("module", [LOST], indirect=True)
def test_a_check_has_the_oracle_play(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "check", f"{module}:sounds", "--json"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["usable"] == 0
    assert "cannot find 'rington'" in found["left_out"]["ringtone"]


@pytest.mark.parametrize("module", [DONE], indirect=True)
def test_a_template_that_is_solved_at_its_start_is_named(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "list", "--suite", f"{module}:sounds"]) == 1
    assert f"ringtone is solved at the start, such as {module}:sounds/test/00000: " in capsys.readouterr().out
    assert main(["tasks", "check", f"{module}:sounds", "--json"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["left_out"] == {"ringtone": "solved at the start: a claim at once is a success"}


@pytest.mark.parametrize("module", [GOOD], indirect=True)
def test_a_template_of_an_own_suite_is_shown(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{module}:sounds"
    assert main(["tasks", "show", "ringtone", "--suite", path]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith(path)] == [
        f"{path}/test/00000",
        f"{path}/test/00001",
    ]
    assert main(["tasks", "show", "rington", "--suite", path]) == 2
    said = capsys.readouterr().err
    assert "expected: one of ringtone\n" in said
    assert f"try: distrl tasks list --suite {path}" in said
    assert main(["tasks", "show", "sim-start/test/0", "--suite", path]) == 2
    assert "names a suite itself" in capsys.readouterr().err
    for words in (["list", path], ["show", path]):
        assert main(["tasks", *words]) == 2
        assert f"try: distrl tasks list --suite {path}" in capsys.readouterr().err


@pytest.mark.parametrize("module", [EMPTY], indirect=True)
def test_a_suite_function_without_a_return_is_told_so(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "list", "--suite", f"{module}:sounds"]) == 2
    said = capsys.readouterr().err
    assert "gives None: it returns nothing" in said
    assert "docs/" not in said
