"""Plug-ins are found by name, get settings that were checked, and are refused with the fix where something is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from distrl import plugins
from distrl.algorithms.aride import ARide
from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.config.schema import AlgorithmConfig, Config, DevicesConfig, JudgeConfig, PolicyConfig, TasksConfig
from distrl.devices.base import Device, Fleet, find_devices
from distrl.devices.sim.device import SimDevice
from distrl.errors import ConfigError
from distrl.policies.pointer.policy import PointerPolicy
from distrl.runtime.factory import make_algorithm, make_policy
from distrl.tasks.base import Suite, find_suite
from distrl.tasks.judges import AutoJudge, Judge, find_judge
from distrl.telemetry.events import read_events
from support.runs import TINY, distrl, flags

FLEET = Fleet(owner="worker-0", count=2, seed=3)
GOOD = """
import msgspec
from distrl.algorithms.filtered_bc import FilteredBC
from distrl.config.schema import FilteredBCConfig, PointerConfig, SimConfig
from distrl.devices.sim.device import make_devices
from distrl.policies.pointer.policy import PointerPolicy
from distrl.tasks.sim.suites import sim_touch
from distrl.types import Verdict


class Options(msgspec.Struct, forbid_unknown_fields=True):
    host: str = "here"
    ports: tuple[int, ...] = ()


class judges:
    Settings = Options

    def __init__(self, settings):
        self.settings = settings

    async def judge(self, attempt):
        return Verdict(outcome="success")


def devices(settings, fleet):
    made = make_devices(SimConfig(), fleet)
    for device in made:
        device.settings = settings
    return made


def suites(settings):
    made = sim_touch(None)
    made.settings = settings
    return made


def policies(settings, context):
    made = PointerPolicy(PointerConfig(width=16, layers=1), context)
    made.settings = settings
    return made


def algorithms(settings, context):
    made = FilteredBC(FilteredBCConfig(), context)
    made.settings = settings
    return made


devices.Settings = suites.Settings = policies.Settings = algorithms.Settings = Options
"""
KINDS: tuple[plugins.Kind, ...] = ("devices", "suites", "judges", "policies", "algorithms")
FLAG = {kind: f"--{setting}" for kind, setting in plugins.SETTING.items()}
TABLE = {kind: f"{setting.rpartition('.')[0]}.options" for kind, setting in plugins.SETTING.items()}


def find(kind: plugins.Kind, name: str, options: dict[str, Any] | None = None) -> Any:
    """What a run gets that names this."""
    given = options or {}
    match kind:
        case "devices":
            return find_devices(DevicesConfig(kind=name, options=given), FLEET)[0]
        case "suites":
            return find_suite(TasksConfig(suite=name, options=given))
        case "judges":
            return find_judge(JudgeConfig(kind=name, options=given))
        case "policies":
            return make_policy(replace(Config(), policy=PolicyConfig(kind=name, options=given)))
        case "algorithms":
            return make_algorithm(replace(Config(), algorithm=AlgorithmConfig(kind=name, options=given)))


def refusal(kind: plugins.Kind, name: str, options: dict[str, Any] | None = None) -> str:
    """What is said of this name: a few lines with the fix."""
    with pytest.raises(ConfigError) as caught:
        find(kind, name, options)
    said = str(caught.value)
    assert caught.value.exit_code == 2
    assert len(said.splitlines()) <= 15
    assert "\ntry: " in said
    return said


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules in the test's own folder can be imported, and are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in {"good", "bad", "pack", "nearby"}:
            del sys.modules[name]


@pytest.fixture
def good(tmp_path: Path) -> str:
    """A module with one plug-in of each kind, called by the kind."""
    (tmp_path / "good.py").write_text(GOOD)
    return "good"


def write(folder: Path, text: str) -> None:
    (folder / "bad.py").write_text(text)


# --- where a name leads


def test_built_in_names_give_what_they_stand_for() -> None:
    assert isinstance(find("devices", "sim"), SimDevice)
    assert find("suites", "sim-touch").name == "sim-touch"
    assert isinstance(find("judges", "auto"), AutoJudge)
    assert isinstance(find("policies", "pointer"), PointerPolicy)
    assert isinstance(find("algorithms", "aride"), ARide)


@pytest.mark.parametrize("kind", KINDS)
def test_every_built_in_name_can_be_loaded(kind: plugins.Kind) -> None:
    assert all(callable(plugins.load(kind, name)) for name in plugins.BUILT_IN[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_path_leads_to_a_plug_in_with_its_options(kind: plugins.Kind, good: str) -> None:
    made = find(kind, f"{good}:{kind}", {"host": "there", "ports": [1, 2]})
    assert (made.settings.host, made.settings.ports) == ("there", (1, 2))
    assert find(kind, f"{good}:{kind}").settings.host == "here"


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_point_leads_to_a_plug_in_by_its_name(
    kind: plugins.Kind, good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry_points(*, group: str) -> list[EntryPoint]:
        found = EntryPoint(name="mine", value=f"{good}:{kind}", group=f"distrl.{kind}")
        return [found] if group == found.group else []

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    assert find(kind, "mine", {"host": "there"}).settings.host == "there"
    assert plugins.names(kind) == [*plugins.BUILT_IN[kind], "mine"]
    assert "expected: one of mine" in refusal(kind, "mina")


def test_a_built_in_name_is_not_taken_over_by_an_entry_point(good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thief = EntryPoint(name="auto", value=f"{good}:judges", group="distrl.judges")
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: [thief])
    assert isinstance(find("judges", "auto"), AutoJudge)
    assert plugins.names("judges").count("auto") == 1


def test_an_attribute_may_lie_deeper(tmp_path: Path) -> None:
    write(tmp_path, "class Outer:\n    class Inner:\n        def __init__(self, settings): ...\n")
    assert plugins.load("judges", "bad:Outer.Inner").__name__ == "Inner"


def test_a_module_in_the_folder_that_distrl_is_started_in_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "nearby.py").write_text(GOOD)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    monkeypatch.chdir(folder)
    assert find("judges", "nearby:judges").settings.host == "here"


# --- what is refused


def test_two_devices_of_one_name_are_refused(tmp_path: Path) -> None:
    write(
        tmp_path,
        GOOD
        + "\n\ndef twins(settings, fleet):\n    return devices(settings, fleet)[:1] * 2\n\ntwins.Settings = Options\n",
    )
    assert "several devices of one name: worker-0/phone-0, worker-0/phone-0" in refusal("devices", "bad:twins")


@pytest.mark.parametrize(("kind", "context"), [("devices", "Fleet"), ("policies", "PolicyContext"), ("judges", "")])
def test_a_plug_in_that_takes_other_arguments_is_refused(kind: plugins.Kind, context: str, tmp_path: Path) -> None:
    write(tmp_path, "def make(one, two, three):\n    return None\n")
    said = refusal(kind, "bad:make")
    assert "cannot be called so: missing a required argument" in said
    assert (f"its settings and a {context}" if context else "one that takes its settings") in said


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("algorithms", "GRPO", "grpo"),
        ("algorithms", "filtered-bc", "filtered_bc"),
        ("policies", "pixels", "pixel"),
        ("devices", "simulated", "sim"),
        ("suites", "sim-generel", "sim-general"),
        ("judges", "Reward", "reward"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(kind: plugins.Kind, name: str, meant: str) -> None:
    said = refusal(kind, name)
    assert f"{plugins.SETTING[kind]} = {name!r} is not known" in said
    assert f"expected: one of {meant}" in said
    assert f"the group distrl.{kind}" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_resembles_none_is_answered_with_all(kind: plugins.Kind) -> None:
    said = refusal(kind, "zzz")
    assert all(name in said for name in plugins.BUILT_IN[kind])
    assert "package.module:attribute" in said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("path", "module"), [("no_such:Thing", "no_such"), ("no.such.module:Thing", "no")])
def test_a_module_that_is_not_there_is_named(kind: plugins.Kind, path: str, module: str) -> None:
    said = refusal(kind, path)
    assert f"{plugins.SETTING[kind]} = {path!r}: there is no module {module!r}" in said
    assert "pip install -e YOUR_PACKAGE, or start distrl in the folder that holds it" in said


def test_a_missing_part_of_a_package_that_is_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    assert "there is no module 'pack.part'" in refusal("judges", "pack.part:Thing")


def test_a_module_that_needs_another_one_is_not_called_missing_itself(tmp_path: Path) -> None:
    write(tmp_path, "import no_such_package.inner\n")
    said = refusal("judges", "bad:Thing")
    assert "bad needs the module 'no_such_package', which is not installed" in said
    assert "try: pip install the package that has no_such_package" in said


@pytest.mark.parametrize("raises", ["1 / 0", "raise SystemError('x\\n' * 400)", "def broken(:"])
def test_a_module_that_raises_on_import_is_named_with_its_error(tmp_path: Path, raises: str) -> None:
    write(tmp_path, f"{raises}\n")
    said = refusal("policies", "bad:Thing")
    assert "importing bad raised " in said
    assert "try: python -c 'import bad' shows the whole traceback" in said


def test_an_attribute_that_is_not_there_is_answered_with_the_nearest_one(good: str) -> None:
    said = refusal("judges", f"{good}:judge")
    assert f"judge.kind = '{good}:judge': good has no 'judge'" in said
    assert "expected: one of judges" in said
    assert "check the name after the colon" in said
    assert "good has no ''" in refusal("judges", f"{good}:")


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_called_is_refused(kind: plugins.Kind, tmp_path: Path) -> None:
    write(tmp_path, "THING = 3\n")
    said = refusal(kind, "bad:THING")
    assert "gives a int" in said
    assert "expected: a function or a class that takes its settings first" in said
    assert f"a plug-in of the kind {kind}" in said


@pytest.mark.parametrize(
    ("kind", "missing", "expected"),
    [
        ("suites", "without name, size, task", "a Suite"),
        ("judges", "without judge", "a Judge"),
        ("policies", "decide, dump, encode, imitate, network, restore, score", "a Policy"),
        ("algorithms", "a Thing", "a Algorithm"),
    ],
)
def test_a_plug_in_that_makes_something_else_is_refused_with_what_is_missing(
    kind: plugins.Kind, missing: str, expected: str, tmp_path: Path
) -> None:
    write(tmp_path, "class Thing:\n    def __init__(self, settings, *context): ...\n")
    said = refusal(kind, "bad:Thing")
    assert missing in said
    assert f"expected: {expected}" in said


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("[]", "gives []"),
        ("None", "gives None"),
        ("3", "gives 3"),
        ("[Thing()]", "a Thing without capture, close, end_state, perform, reset, restart, times"),
    ],
)
def test_devices_are_a_list_of_devices(made: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, f"class Thing:\n    name = 'x'\ndef make(settings, fleet):\n    return {made}\n")
    assert said in refusal("devices", "bad:make")


def test_a_judge_whose_method_is_no_coroutine_function_is_refused_with_the_fix(tmp_path: Path) -> None:
    write(tmp_path, "class Thing:\n    def __init__(self, settings): ...\n    def judge(self, attempt): ...\n")
    said = refusal("judges", "bad:Thing")
    assert "gives a Thing whose judge is no coroutine function" in said
    assert "try: write `async def judge`" in said


DEVICE_METHODS = ("reset", "capture", "perform", "end_state", "restart", "close")


def a_device(times: str = "TimeScales()", *, plain: str = "") -> str:
    """The source of a factory of one device; `plain` is the method without `async`."""
    methods = [f"    {'' if one == plain else 'async '}def {one}(self, *a, **k): ..." for one in DEVICE_METHODS]
    head = f"from distrl.devices.base import TimeScales\nclass Thing:\n    name, times = 'x', {times}\n"
    return head + "\n".join(methods) + "\ndef make(settings, fleet):\n    return [Thing()]\n"


@pytest.mark.parametrize("method", DEVICE_METHODS)
def test_a_device_with_a_method_that_is_no_coroutine_function_is_refused_with_the_fix(
    method: str, tmp_path: Path
) -> None:
    write(tmp_path, a_device(plain=method))
    said = refusal("devices", "bad:make")
    assert f"gives a Thing whose {method} is no coroutine function" in said
    assert f"try: write `async def {method}`" in said


def test_a_device_without_time_scales_is_refused_and_one_with_them_is_not(tmp_path: Path) -> None:
    write(tmp_path, a_device("{}"))
    assert "a Thing whose times are {}" in (said := refusal("devices", "bad:make"))
    assert "times of the type distrl.devices.base.TimeScales" in said
    (tmp_path / "good.py").write_text(a_device())
    assert find("devices", "good:make").name == "x"


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_a_plug_in_does_not_have_is_refused_with_the_nearest_one(kind: plugins.Kind, good: str) -> None:
    said = refusal(kind, f"{good}:{kind}", {"hots": "x"})
    assert f"{TABLE[kind]}.hots is no setting of {good}:{kind}" in said
    assert "expected: one of host, ports" in said


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_of_the_wrong_type_is_refused_by_name(kind: plugins.Kind, good: str) -> None:
    said = refusal(kind, f"{good}:{kind}", {"ports": ["x"]})
    assert f"{TABLE[kind]} does not fit {good}:{kind}: " in said
    assert "$.ports[0]" in said
    assert f"try: mend the values under [{TABLE[kind]}]" in said


@pytest.mark.parametrize("kind", KINDS)
def test_options_for_a_plug_in_without_settings_are_refused(kind: plugins.Kind, tmp_path: Path) -> None:
    write(tmp_path, "def make(settings, *context): ...\n")
    said = refusal(kind, "bad:make", {"x": 1})
    assert f"{TABLE[kind]}.x is no setting of bad:make" in said
    assert "no options: it declares no settings" in said


def test_a_plug_in_without_settings_is_given_none(tmp_path: Path) -> None:
    write(
        tmp_path, "class Thing:\n    def __init__(self, given): self.given = given\n    async def judge(self, a): ...\n"
    )
    assert find("judges", "bad:Thing").given is None


@pytest.mark.parametrize(("kind", "name"), [(kind, next(iter(plugins.BUILT_IN[kind]))) for kind in KINDS])
def test_options_beside_something_built_in_are_never_ignored(kind: plugins.Kind, name: str) -> None:
    said = refusal(kind, name, {"x": 1})
    assert f"{TABLE[kind]}.x is for plug-ins, and {plugins.SETTING[kind]} = {name} is built in" in said


def test_the_seams_are_what_their_plug_ins_make(good: str) -> None:
    for kind, seam in (("devices", Device), ("suites", Suite), ("judges", Judge)):
        assert isinstance(find(kind, f"{good}:{kind}"), seam)  # type: ignore[arg-type]


# --- by the command line

BROKEN: dict[str, tuple[str, Callable[[plugins.Kind], list[str]], str]] = {
    "no such module": ("", lambda kind: ["no.such:Thing"], "there is no module 'no'"),
    "no such name": ("", lambda kind: ["nothing-like-it"], "is not known"),
    "raises": ("1 / 0\n", lambda kind: ["bad:Thing"], "raised ZeroDivisionError"),
    "needs another": ("import no_such_package\n", lambda kind: ["bad:Thing"], "needs the module 'no_such_package'"),
    "no attribute": ("", lambda kind: ["bad:Thing"], "bad has no 'Thing'"),
    "not callable": ("Thing = 3\n", lambda kind: ["bad:Thing"], "gives a int"),
    "unknown option": (
        "def Thing(settings, *context): ...\n",
        lambda kind: ["bad:Thing", f"--{TABLE[kind]}.x", "1"],
        "is no setting of bad:Thing",
    ),
    "wrong option": (
        GOOD,
        lambda kind: [f"bad:{kind}", f"--{TABLE[kind]}.ports", '["x"]'],
        "$.ports[0]",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", BROKEN)
def test_a_run_with_a_broken_plug_in_ends_before_anything_is_written(
    kind: plugins.Kind, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, flags, said = BROKEN[case]
    write(tmp_path, text)
    root = tmp_path / "runs"
    assert main(["train", FLAG[kind], *flags(kind), "--run.root", str(root)]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "\ntry: " in message
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 15
    assert not root.exists()


RAISES = """
def broken(settings, *context):
    return {}[
        "token"
    ]
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_plug_in_that_raises_while_it_is_made_is_named_with_the_error_and_its_place(
    kind: plugins.Kind, tmp_path: Path
) -> None:
    write(tmp_path, RAISES)
    said = refusal(kind, "bad:broken")
    assert f"{plugins.SETTING[kind]} = 'bad:broken' raised KeyError: 'token' in {tmp_path / 'bad.py'}:3" in said


def test_an_error_deep_inside_a_library_is_placed_in_the_plug_ins_own_file(tmp_path: Path) -> None:
    write(tmp_path, "import json\n\ndef broken(settings):\n    json.loads('{')\n")
    assert "raised JSONDecodeError: Expecting property name" in (said := refusal("judges", "bad:broken"))
    assert "bad.py:4" in said


@pytest.mark.parametrize("kind", ["suites", "judges", "algorithms"])
def test_a_run_whose_plug_in_raises_ends_before_anything_is_written(
    kind: plugins.Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, RAISES)
    assert main(["train", FLAG[kind], "bad:broken", "--run.root", str(tmp_path / "runs")]) == 2
    message = capsys.readouterr().err
    assert "raised KeyError: 'token' in" in message
    assert len(message.splitlines()) <= 4
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("kind", ["policies", "devices"])
def test_a_role_whose_plug_in_raises_ends_the_run_at_once(kind: plugins.Kind, tmp_path: Path) -> None:
    write(tmp_path, RAISES)
    tiny = flags({**TINY, "run.root": tmp_path / "runs", "warm_start.demonstrations": 0})
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    chosen = _without(tiny, "--policy.pointer" if kind == "policies" else "--devices.sim")
    done = distrl("train", *chosen, FLAG[kind], "bad:broken", env=env, cwd=tmp_path)
    assert done.returncode == 2
    assert "raised KeyError: 'token' in" in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    died = [event for event in read_events(run / "logs" / "supervisor.jsonl") if event["event"] == "died"]
    assert died == []


def _without(words: list[str], prefix: str) -> list[str]:
    """Flags but for those that begin so."""
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for pair in pairs if not pair[0].startswith(prefix) for word in pair]


ANNOTATED = """
from __future__ import annotations
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from nowhere import Context


class Options(msgspec.Struct):
    host: str = "here"


class Judge:
    def __init__(self, settings: Options):
        self.settings = settings

    async def judge(self, attempt: Context): ...
"""


def test_settings_are_read_from_the_first_parameters_annotation(tmp_path: Path) -> None:
    write(tmp_path, ANNOTATED)
    assert find("judges", "bad:Judge", {"host": "there"}).settings.host == "there"
    assert find("judges", "bad:Judge").settings.host == "here"
    assert "judge.options.hots is no setting of bad:Judge" in refusal("judges", "bad:Judge", {"hots": 1})


@pytest.mark.parametrize("kind", ["suites", "judges"])
def test_a_run_whose_suite_or_judge_is_none_ends_before_anything_is_written(
    kind: plugins.Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "class Thing:\n    def __init__(self, settings): ...\n")
    assert main(["train", FLAG[kind], "bad:Thing", "--run.root", str(tmp_path / "runs")]) == 2
    assert "gives a Thing without " in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("key", ["judge", "tasks"])
def test_options_beside_a_built_in_judge_or_suite_end_a_run_before_it_begins(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", f"--{key}.options.x", "1", "--run.root", str(tmp_path / "runs")]) == 2
    assert f"{key}.options.x is for plug-ins" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_configuration_may_name_plug_ins_of_every_kind(good: str) -> None:
    flags = {plugins.SETTING[kind]: f"{good}:{kind}" for kind in KINDS}
    hosts = {f"{TABLE[kind]}.host": "there" for kind in KINDS}
    config = load_config(None, {**flags, **hosts})
    assert make_algorithm(config).settings == make_policy(config).settings  # type: ignore[attr-defined]
    assert find_judge(config.judge).settings.host == "there"  # type: ignore[attr-defined]


def test_the_page_on_extending_names_everything_that_is_built_in() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    for kind, setting in plugins.SETTING.items():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{setting}` |"))
        assert [name for name in plugins.BUILT_IN[kind] if f"`{name}`" not in row] == []


def test_suites_that_need_nothing_else_are_listed_first() -> None:
    assert plugins.names("suites")[:4] == ["sim-start", "sim-touch", "sim-general", "sim-shopping"]
