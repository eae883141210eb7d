"""Strict loading: what fits comes out typed and with its origin, what does not is refused with the fix."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from distrl.config.load import config_hash, dump_toml, load, load_config
from distrl.config.reference import flatten, settings
from distrl.config.schema import Config
from distrl.errors import ConfigError


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
    file = write(tmp_path, "[run]\nseed = 1\nminutes = 2\n[devices.latency]\nprofile = 'instant'\n")
    loaded = load(file, {"run.seed": "7"})
    assert loaded.config.run.seed == 7
    assert loaded.config.run.minutes == 2.0
    assert loaded.config.devices.latency.profile == "instant"
    assert loaded.sources["run.seed"] == "flag"
    assert loaded.sources["run.minutes"] == "file"
    assert loaded.sources["run.name"] == "default"


def test_flags_become_the_type_of_their_field() -> None:
    config = load_config(None, {"policy.string_match": "false", "learner.learning_rate": "1e-4", "run.root": "0"})
    assert config.policy.string_match is False
    assert config.learner.learning_rate == 1e-4
    assert config.run.root == "0"
    assert isinstance(load_config(None, {"run.minutes": "3"}).run.minutes, float)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("run__seed", "-1", "a whole number of at least 0"),
        ("run__seed", "1.5", "a whole number"),
        ("algorithm__gamma", "1.01", "a number from 0 to 1"),
        ("algorithm__gamma", "nan", "a number from 0 to 1"),
        ("learner__learning_rate", "inf", "a number above 0"),
        ("policy__string_match", "yes", "true or false"),
        ("policy__width", "17", "16 divides"),
        ("devices__latency__profile", "fast", '"emulator" or "instant"'),
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
        ("algorithm__name", "GRPO", "grpo"),
        ("algorithm__name", "filtered-bc", "filtered_bc"),
        ("policy__vlm__dialect", "qwen3", "qwen3_vl"),
        ("policy__vlm__dtype", "bf16", "bfloat16"),
    ],
)
def test_a_choice_that_does_not_exist_is_answered_with_the_nearest_one(key: str, value: str, meant: str) -> None:
    said = refusal(None, **{key: value})
    assert f'--{key.replace("__", ".")} "{meant}" as a flag' in said
    assert "default" not in said


def test_a_choice_that_resembles_none_is_answered_with_the_default() -> None:
    assert '--algorithm.name "aride" as a flag, which is the default' in refusal(algorithm__name="zzz")


def test_no_setting_is_described_by_a_pattern() -> None:
    assert [key for key, setting in settings().items() if "^" in setting.expected] == []


def test_an_unknown_key_is_refused_with_the_likeliest_one_first() -> None:
    assert "expected: one of run.seed" in refusal(run__sed="1")
    assert "expected: one of algorithm.gamma" in refusal(learner__gama="1")
    assert "devices.latency.profile" in refusal(devices__latency="instant")
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


def test_a_section_that_is_given_a_value_is_answered_with_how_to_write_one(tmp_path: Path) -> None:
    assert 'try: [run], and under it name = "sim", for one' in refusal(write(tmp_path, "run = 3\n"))
    assert 'try: --devices.latency.profile "emulator", for one' in refusal(devices__latency="instant")


def test_a_ready_run_is_offered_to_who_gives_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "first-run.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert f"try: name {Path('configs/first-run.toml')}, or leave it out for the defaults" in refusal(Path("first-run"))
    assert "try: check the path, or leave it out" in refusal(Path("nope.toml"))


def test_a_dumped_configuration_reads_back_the_same(tmp_path: Path) -> None:
    config = load_config(None, {"run.seed": "9", "run.root": 'w0 "x" \\ é\x7f', "learner.learning_rate": "1e-7"})
    assert load_config(write(tmp_path, dump_toml(config))) == config


@given(text=st.text(st.characters(exclude_categories=["Cs"])), rate=st.floats(0.0, 1.0), seed=st.integers(0, 2**62))
@hypothesis_settings(max_examples=50)
def test_any_value_survives_the_round_trip_through_toml(text: str, rate: float, seed: int) -> None:
    config = load_config(None, {"run.root": text, "algorithm.gamma": rate, "run.seed": seed})
    read = tomllib.loads(dump_toml(config))
    assert (read["run"]["root"], read["algorithm"]["gamma"], read["run"]["seed"]) == (text, rate, seed)


def test_the_hash_follows_every_value_but_the_place_and_the_name() -> None:
    plain = config_hash(Config())
    assert plain == config_hash(load_config(None, {"run.root": "elsewhere", "run.name": "other"}))
    assert plain != config_hash(load_config(None, {"run.seed": "1"}))
    assert plain != config_hash(load_config(None, {"devices.wild.popup_rate": "0.5"}))
    assert len(plain) == 12


def test_every_default_fits_its_own_limits() -> None:
    assert load_config(None, {key: setting.default for key, setting in settings().items()}) == Config()
    assert flatten(Config()) == {key: setting.default for key, setting in settings().items()}
