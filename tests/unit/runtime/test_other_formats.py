"""A run of another format is refused with the version of distrl that reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.errors import StoreError
from distrl.runtime.run_folder import FORMAT, open_run


def a_run(path: Path, env: str) -> Path:
    (path / "config.toml").write_text("")
    (path / "FORMAT").write_text(f"{FORMAT + 1}\n")
    (path / "env.json").write_text(env)
    return path


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (json.dumps({"python": "3.13", "packages": {"distrl": "0.7.1"}}), "use distrl 0.7.1 that wrote it"),
        (json.dumps({"packages": {"distrl": "not installed"}}), "use the version of distrl that wrote it"),
        (json.dumps({"packages": {}}), "use the version of distrl that wrote it"),
        ('{"packages": ', "use the version of distrl that wrote it"),
    ],
)
def test_the_refusal_names_the_version_that_wrote_the_run(env: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"format {FORMAT + 1}, and this distrl reads format {FORMAT}") as caught:
        open_run(a_run(tmp_path, env))
    assert said in caught.value.fix


def test_a_run_without_a_description_of_its_machine_is_refused_all_the_same(tmp_path: Path) -> None:
    (a_run(tmp_path, "") / "env.json").unlink()
    with pytest.raises(StoreError, match="reads format"):
        open_run(tmp_path)


def test_where_only_the_number_of_the_format_is_lost_the_way_back_is_named(tmp_path: Path) -> None:
    (a_run(tmp_path, "") / "FORMAT").unlink()
    with pytest.raises(StoreError, match="has run-folder format 1") as caught:
        open_run(tmp_path)
    assert f"echo {FORMAT} > {tmp_path / 'FORMAT'}" in caught.value.fix
    (tmp_path / "FORMAT").write_text(f"{FORMAT}\n")
    assert open_run(tmp_path).path == tmp_path
