"""Strict loading: what fits comes out typed and with its origin, what does not is refused with the fix."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.config.load import config_hash, dump_toml, load, load_config
from distrl.config.reference import as_setting, flatten, kind_tables, settings
from distrl.config.schema import Config, JudgeConfig
from distrl.errors import ConfigError
from distrl.types import SettingValue


def write(folder: Path, text: str) -> Path:
    file = folder / "run.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(path: Path | None = None, **overrides: str) -> str:
    """What the error says for these flags (`__` for the dot)."""
    with pytest.raises(ConfigError) as caught:
        load(path, {key.replace("__", "."): value for key, value in overrides.items()})
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) <= 5
    return str(caught.value)


def test_nothing_given_means_the_defaults() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert set(loaded.sources.values()) == {"default"}


def test_a_flag_beats_the_file_and_the_file_beats_the_default(tmp_path: Path) -> None:
    file = write(tmp_path, "[run]\nseed = 1\nminutes = 2\n[devices.sim.latency]\nprofile = 'instant'\n")
    loaded = load(file, {"run.seed": "7"})
    assert loaded.config.run.seed == 7
    assert loaded.config.run.minutes == 2.0
    assert loaded.config.devices.sim.latency.profile == "instant"
    assert loaded.sources["run.seed"] == "flag"
    assert loaded.sources["run.minutes"] == "file"
    assert loaded.sources["run.name"] == "default"


def test_flags_become_the_type_of_their_field() -> None:
    config = load_config(
        None, {"policy.pointer.string_match": "false", "learner.learning_rate": "1e-4", "run.root": "0"}
    )
    assert config.policy.pointer.string_match is False
    assert config.learner.learning_rate == 1e-4
    assert config.run.root == "0"
    assert isinstance(load_config(None, {"run.minutes": "3"}).run.minutes, float)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("run__seed", "-1", "a whole number from 0 to 4294967295"),
        ("run__seed", "1.5", "a whole number"),
        ("algorithm__aride__gamma", "1.01", "a number from 0 to 1"),
        ("algorithm__aride__gamma", "nan", "a number from 0 to 1"),
        ("learner__learning_rate", "inf", "a number above 0"),
        ("policy__pointer__string_match", "yes", "true or false"),
        ("policy__pointer__width", "17", "16 divides"),
        ("devices__sim__latency__profile", "fast", '"emulator" or "instant"'),
        ("run__name", "No Spaces", "of a to z, 0 to 9 and -"),
        ("policy__device", "gpu", '"cpu", "auto", "cuda" or "cuda:N"'),
    ],
)
def test_a_value_that_does_not_fit_names_key_value_and_what_would(key: str, value: str, expected: str) -> None:
    said = refusal(None, **{key: value})
    assert f"--{key.replace('__', '.')} {value}" in said
    assert expected in said


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("learner__mode", "asynch", "async"),
        ("algorithm__aride__advantage", "Signed", "signed"),
        ("policy__vlm__dialect", "qwen3", "qwen3_vl"),
        ("policy__vlm__dtype", "bf16", "bfloat16"),
    ],
)
def test_a_choice_that_does_not_exist_is_answered_with_the_nearest_one(key: str, value: str, meant: str) -> None:
    said = refusal(None, **{key: value})
    assert f'--{key.replace("__", ".")} "{meant}" as a flag' in said
    assert "default" not in said


def test_a_choice_that_resembles_none_is_answered_with_the_default() -> None:
    assert '--learner.mode "async" as a flag, which is the default' in refusal(learner__mode="zzz")


def test_no_setting_is_described_by_a_pattern() -> None:
    assert [key for key, setting in settings().items() if "^" in setting.expected] == []


def test_an_unknown_key_is_refused_with_the_likeliest_one_first() -> None:
    assert "expected: one of run.seed" in refusal(run__sed="1")
    assert "expected: one of algorithm.aride.gamma" in refusal(learner__gama="1")
    assert "devices.sim.latency.profile" in refusal(devices__sim__latency="instant")
    assert "rollout" in refusal(rolout__wrkers="1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nsed = 3\n", "run.sed is no setting"),
        ("seed = 3\n", "run.seed"),
        ("[run]\nseed = '3'\n", 'run.seed = "3"'),
        ("[run]\nseed = true\n", "a whole number"),
        ("[run.seed]\nx = 1\n", "run.seed"),
        ("devices = 3\n", "devices is a section"),
        ("[[run]]\nseed = 3\n", "run is a section"),
        ("[trian]\nx = 1\n", "trian is no setting"),
        ("[run]\nseed = 1979-05-27\n", "1979-05-27"),
        ("[run\n", "is not TOML"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, text)
    message = refusal(file)
    assert str(file) in message
    assert said in message
    assert "\ntry: " in message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    assert "run.toml" in refusal(tmp_path / "rum.toml")
    assert "cannot read" in refusal(tmp_path)
    file.write_bytes(b"\xff\xfe\x00")
    assert "not text" in refusal(file)
    assert "try: name a TOML file" in refusal(file)


def test_a_run_in_the_place_of_a_file_is_answered_with_how_to_go_on_with_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path)
    assert "--resume" not in str(refused.value), "any other folder"
    (tmp_path / "FORMAT").write_text("2\n")
    with pytest.raises(ConfigError, match=f"(?s)cannot read.*train --resume {tmp_path}"):
        load_config(tmp_path)


def test_a_file_may_begin_with_the_mark_that_some_editors_put_there(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("[run]\nseed = 3\n", encoding="utf-8-sig")
    assert load_config(file).run.seed == 3


def test_a_section_that_is_given_a_value_is_answered_with_how_to_write_one(tmp_path: Path) -> None:
    assert 'try: [run], and under it name = "sim", for one' in refusal(write(tmp_path, "run = 3\n"))
    assert 'try: --devices.sim.latency.profile "emulator", for one' in refusal(devices__sim__latency="instant")


def test_a_ready_run_is_offered_to_who_gives_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert f"try: name {Path('configs/mine.toml')}, or leave it out for the defaults" in refusal(Path("mine"))
    said = refusal(Path("nope.toml"))
    assert "try: check the path, or name a ready run of these, or leave it out" in said
    assert all(name in said for name in ("first-run", "cluster", "miniwob", "ppo", str(Path("configs/mine.toml"))))
    assert "expected: one of first-run, " in refusal(Path("frst-run"))


@pytest.mark.parametrize("name", ["ppo", "ppo.toml", "configs/ppo.toml", "configs/ppo"])
def test_a_ready_run_is_found_by_its_name_in_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(Path(name)).algorithm.kind == "ppo"
    (tmp_path / "ppo.toml").write_text('[run]\nname = "own"\n')
    assert load_config(Path("ppo.toml")).run.name == "own"


@pytest.mark.parametrize("name", ["elsewhere/ppo.toml", "ppo.json", "nope"])
def test_what_only_resembles_the_name_of_a_ready_run_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"no file {name}" in refusal(Path(name))


def test_a_dumped_configuration_reads_back_the_same(tmp_path: Path) -> None:
    config = load_config(None, {"run.seed": "9", "run.root": 'w0 "x" \\ é\x7f', "learner.learning_rate": "1e-7"})
    assert load_config(write(tmp_path, dump_toml(config))) == config


@given(text=st.text(st.characters(exclude_categories=["Cs"])), rate=st.floats(0.0, 1.0), seed=st.integers(0, 2**32 - 1))
@hypothesis_settings(max_examples=50)
def test_any_value_survives_the_round_trip_through_toml(text: str, rate: float, seed: int) -> None:
    config = load_config(None, {"run.root": text, "algorithm.aride.gamma": rate, "run.seed": seed})
    read = tomllib.loads(dump_toml(config))
    assert (read["run"]["root"], read["algorithm"]["aride"]["gamma"], read["run"]["seed"]) == (text, rate, seed)


def test_the_hash_follows_every_value_but_the_place_and_the_name() -> None:
    plain = config_hash(Config())
    assert plain == config_hash(load_config(None, {"run.root": "elsewhere", "run.name": "other"}))
    assert plain != config_hash(load_config(None, {"run.seed": "1"}))
    assert plain != config_hash(load_config(None, {"devices.sim.perturbations.popup_rate": "0.5"}))
    assert len(plain) == 12


def test_every_default_fits_its_own_limits() -> None:
    defaults = {key: setting.default for key, setting in settings().items()}
    others = {
        f"{section}.{table}": f"{section}.kind"
        for section, tables in kind_tables().items()
        for table in tables
        if table != defaults[f"{section}.kind"]
    }
    chosen = {key: value for key, value in defaults.items() if not key.startswith(tuple(f"{name}." for name in others))}
    assert load_config(None, chosen) == Config()
    for table, kind in others.items():
        own = {key: value for key, value in defaults.items() if key.startswith(f"{table}.")}
        config = load_config(None, {**NEEDED, kind: table.rpartition(".")[2], **own})
        assert {key: flatten(config)[key] for key in own} == own
    assert flatten(Config()) == {key: setting.default for key, setting in settings().items()}


# --- tables of kinds ------------------------------------------------------------------------------------------------

NEEDED: dict[str, SettingValue] = {"rollout.keep_screenshots": True, "rollout.group_size": 2}
"""What some kinds ask of other sections."""


@pytest.mark.parametrize(
    ("key", "value", "kind", "chosen"),
    [
        ("algorithm.ppo.clip", "0.1", "ppo", "aride"),
        ("algorithm.grpo.gamma", "0.9", "grpo", "aride"),
        ("policy.pixel.width", "64", "pixel", "pointer"),
        ("policy.vlm.path", "x", "vlm", "pointer"),
    ],
)
def test_a_setting_of_a_kind_that_is_not_chosen_is_refused_from_a_file_and_from_a_flag(
    tmp_path: Path, key: str, value: str, kind: str, chosen: str
) -> None:
    section, table, name = key.split(".")
    text = value if value[0].isdigit() else f'"{value}"'
    file = write(tmp_path, f"[{section}.{table}]\n{name} = {text}\n")
    for said in (refusal(file), refusal(None, **{key.replace(".", "__"): value})):
        assert f"{key} is read by {kind} alone, and {section}.kind is {chosen}" in said
        assert f"try: leave {key} out, or --{section}.kind {kind}" in said
    needed = {**NEEDED, "policy.vlm.pictures": "false"} if kind == "vlm" else NEEDED
    assert str(flatten(load_config(file, {**needed, f"{section}.kind": kind}))[key]) == value


def test_devices_of_your_own_leave_the_table_of_the_phones_alone() -> None:
    said = refusal(devices__kind="mine:make", devices__sim__latency__profile="instant")
    assert "devices.sim.latency.profile is read by sim alone, and devices.kind is mine:make" in said


def test_the_table_of_a_kind_may_be_given_before_its_kind(tmp_path: Path) -> None:
    file = write(tmp_path, "[algorithm.ppo]\nclip = 0.3\n[algorithm]\nkind = 'ppo'\n")
    assert load_config(file).algorithm.ppo.clip == 0.3


def test_lambda_is_called_lambda_in_files_and_flags(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "[algorithm.aride]\nlambda = 0.5\n")).algorithm.aride.lambda_ == 0.5
    config = load_config(None, {"algorithm.aride.lambda": "0.25"})
    assert config.algorithm.aride.lambda_ == 0.25
    assert "\nlambda = 0.25\n" in dump_toml(config)
    assert load_config(write(tmp_path, dump_toml(config))) == config
    assert "algorithm.aride.lambda" in refusal(algorithm__aride__lambda_="0.5")


# --- options and lists ----------------------------------------------------------------------------------------------

OPTIONS = '{}kind = "mine.module:make"\n[{}.options]\nhost = "h"\nports = [1, 2]\nfast = true\nshare = 0.5\n'


@pytest.mark.parametrize("section", ["devices", "policy", "algorithm", "judge"])
def test_a_plug_in_is_given_its_options_as_they_are(tmp_path: Path, section: str) -> None:
    config = load_config(write(tmp_path, OPTIONS.format(f"[{section}]\n", section)))
    assert getattr(config, section).options == {"host": "h", "ports": (1, 2), "fast": True, "share": 0.5}
    assert load_config(write(tmp_path, dump_toml(config))) == config


def test_a_suite_is_given_its_options_too(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, '[tasks]\nsuite = "mine:suite"\n[tasks.options]\nsize = 3\n'))
    assert config.tasks.options == {"size": 3}
    assert load_config(write(tmp_path, dump_toml(config))) == config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("plain words", "plain words"),
        ('"3"', "3"),
        ("[1, 2]", (1, 2)),
        ('["a", "b"]', ("a", "b")),
        ("", ""),
    ],
)
def test_an_option_that_is_a_flag_is_read_as_toml_would_or_is_text(text: str, value: SettingValue) -> None:
    loaded = load(None, {"judge.kind": "mine:judge", "judge.options.x": text})
    assert loaded.config.judge.options == {"x": value}
    assert loaded.sources["judge.options.x"] == "flag"


def test_a_list_may_be_given_as_a_value_and_not_as_text() -> None:
    assert load_config(None, {"judge.kind": "mine:judge", "judge.options.x": (1, 2)}).judge.options == {"x": (1, 2)}


def test_a_flag_beats_the_option_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[judge]\nkind = "mine:judge"\n[judge.options]\nx = 1\ny = 2\n')
    assert load_config(file, {"judge.options.x": "9"}).judge.options == {"x": 9, "y": 2}


@pytest.mark.parametrize("value", ["{ a = 1 }", "[[1], [2]]", "[{ a = 1 }]", "1979-05-27"])
def test_an_option_that_is_neither_plain_nor_a_list_is_refused(tmp_path: Path, value: str) -> None:
    said = refusal(write(tmp_path, f'[judge]\nkind = "mine:judge"\n[judge.options]\nx = {value}\n'))
    assert "judge.options.x is neither a plain value nor a list of them" in said
    assert "\ntry: judge.options.x = " in said


@pytest.mark.parametrize(("section", "kind"), [("devices", "sim"), ("policy", "pointer"), ("algorithm", "aride")])
def test_options_of_something_built_in_are_refused(section: str, kind: str) -> None:
    said = refusal(None, **{f"{section}__options__x": "1"})
    assert f"{section}.options.x is for plug-ins, and {section}.kind = {kind} is built in" in said
    assert f"try: leave {section}.options.x out" in said


@pytest.mark.parametrize("given", ["q_proj,v_proj", "q_proj, v_proj,", '["q_proj", "v_proj"]'])
def test_a_list_is_a_flag_of_words_or_of_toml(given: str) -> None:
    flags = {"policy.kind": "vlm", "policy.vlm.pictures": "false", "policy.vlm.lora_targets": given}
    assert load_config(None, flags).policy.vlm.lora_targets == ("q_proj", "v_proj")


def test_a_list_in_a_file_is_a_list_and_reads_back(tmp_path: Path) -> None:
    text = '[policy]\nkind = "vlm"\n[policy.vlm]\npictures = false\nlora_targets = ["q_proj", "é \\"x\\""]\n'
    config = load_config(write(tmp_path, text))
    assert config.policy.vlm.lora_targets == ("q_proj", 'é "x"')
    assert load_config(write(tmp_path, dump_toml(config))) == config


@pytest.mark.parametrize("wrong", ["'q_proj'", "[1, 2]", "3"])
def test_what_is_no_list_of_words_is_refused_with_the_default(tmp_path: Path, wrong: str) -> None:
    said = refusal(write(tmp_path, f"[policy.vlm]\nlora_targets = {wrong}\n"))
    assert "expected: a list, each text" in said
    assert 'policy.vlm.lora_targets = ["q_proj", "k_proj"' in said


def test_a_dump_leaves_the_tables_of_other_kinds_out() -> None:
    tables = tomllib.loads(dump_toml(Config()))
    assert set(tables["algorithm"]) == {"kind", "aride"}
    assert {"pointer"} == tables["policy"].keys() & {"pointer", "pixel", "vlm"}


names = st.text(st.characters(codec="ascii", categories=["L", "N"]) | st.just("-"), min_size=1)
plain = st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**62), 2**62) | st.booleans()


@given(options=st.dictionaries(names, plain | st.lists(plain, max_size=3)))
@hypothesis_settings(max_examples=50)
def test_any_options_survive_the_round_trip_through_toml(options: dict[str, object]) -> None:
    held = {name: as_setting(value) for name, value in options.items()}
    config = replace(Config(), judge=JudgeConfig(kind="mine:judge", options=held))
    read = tomllib.loads(dump_toml(config))["judge"]
    assert {name: as_setting(value) for name, value in read.get("options", {}).items()} == config.judge.options


def test_the_hash_follows_the_options_of_a_plug_in() -> None:
    one, two = (load_config(None, {"judge.kind": "mine:judge", "judge.options.x": x}) for x in ("1", "2"))
    assert config_hash(one) != config_hash(two)
