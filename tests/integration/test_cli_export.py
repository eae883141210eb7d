"""What leaves a run, and what comes into one: `distrl export` and `distrl sft`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace as changed
from safetensors.torch import load_file

from distrl.cli import sft
from distrl.cli.main import main
from distrl.config.load import config_hash, dump_toml, load_config
from distrl.config.schema import Config
from distrl.evaluation.report import make_report, wilson
from distrl.experience.durable import replace
from distrl.experience.frames import FrameStore, reference_of
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import from_files
from distrl.policies.base import PolicyContext
from distrl.policies.pointer.policy import PointerPolicy
from distrl.runtime.factory import make_policy
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.summary import summarise
from distrl.transport.base import BudgetUsed
from distrl.transport.files import CheckpointFolder
from distrl.transport.weight_files import WeightsFolder
from support.batches import Played, decided_episode, shown_by_the_oracle, tiny_policy
from support.learners import make_version
from support.vlms import PICTURES, tiny_model

CLONING = {"warm_start.epochs": 2, "warm_start.learning_rate": 0.01}
SMALL = {"policy.pointer.width": 16, "policy.pointer.layers": 1, **CLONING}
NOW = datetime(2026, 1, 2, 3, 4, 5)


def make_run(root: Path, **settings: Any) -> tuple[RunFolder, Config]:
    """A run that has published version 0."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    small = {key: value for key, value in SMALL.items() if not (key.startswith("policy.") and "policy.kind" in given)}
    config = load_config(None, {**small, "run.root": str(root), **given})
    run = create_run(config, now=NOW)
    WeightsFolder(run.weights).publish(make_policy(config), make_version(0))
    return run, config


def vlm_run(root: Path, **settings: Any) -> tuple[RunFolder, Config]:
    vlm = {"policy__vlm__path": str(tiny_model("text")), "policy__vlm__pictures": False, "policy__vlm__lora_rank": 4}
    return make_run(root, **{"policy__kind": "vlm", **vlm, **settings})


def finish(run: RunFolder, config: Config) -> None:
    """Write down what the run came to."""
    run.evaluations.mkdir()
    for name, successes in (("before", 3), ("after", 12)):
        played = [decided_episode(tiny_policy(), f"e{n}", Played(success=n < successes)) for n in range(20)]
        replace(run.evaluations / f"{name}.json", json_of(make_report(played, suite="sim-start", version=0)))
    summarise(run, config, BudgetUsed())


def json_of(record: object) -> bytes:
    import msgspec

    return msgspec.json.encode(record)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_pointer_leaves_with_its_weights_its_settings_and_a_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, config = make_run(tmp_path / "runs")
    finish(run, config)
    out = tmp_path / "deep" / "out"
    assert main(["export", str(run.path), str(out), "--json"]) == 0
    assert told(capsys)["files"] == ["README.md", "config.toml", "export.json", "model.safetensors"]
    data = (out / "model.safetensors").read_bytes()
    PointerPolicy(load_config(out / "config.toml").policy.pointer, PolicyContext(seed=9)).restore(
        data, source="the export"
    )
    card, rate = (out / "README.md").read_text(encoding="utf-8"), wilson(12, 20)
    assert "| before practice, after 50 demonstrations | " in card
    assert "With `pip install 'distrl-0.1.0-py3-none-any.whl[train]'` (" in card
    assert f"| after training | 60.0% [{rate.low:.1%}, {rate.high:.1%}], 20 tasks |" in card
    assert f"`{config_hash(config)}`" in card
    assert f"| `model.safetensors` | `{sha256(data).hexdigest()}` |" in card
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_the_python_of_a_card_plays_with_the_suite_and_devices_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    one = {"setup": {"type": "sim", "phone": 0, "seed": 1}, "check": {"type": "sim", "showing": {"app": "clock"}}}
    tasks.write_text(
        "\n".join(json.dumps({**one, "instruction": f"Open the clock {n}", "max_steps": 2}) for n in range(40))
    )
    run, _ = make_run(
        tmp_path / "runs", tasks__suite="list", tasks__list__path=str(tasks), warm_start__demonstrations=0
    )
    out = tmp_path / "out"
    assert main(["export", str(run.path), str(out)]) == 0
    (code,) = re.findall(r"```python\n(.+?)```", (out / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    played: dict[str, Any] = {}
    capsys.readouterr()
    exec(code.replace("FOLDER", str(out)), played)
    assert played["info"]["task"].suite == "list"
    assert "Verdict(" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "rank", "form"), [([], 4, "adapter"), (["--merged"], 4, "merged"), ([], 0, "merged")]
)
def test_a_language_model_leaves_as_an_adapter_or_whole(
    flags: list[str], rank: int, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = vlm_run(tmp_path / "runs", policy__vlm__lora_rank=rank)
    assert main(["export", str(run.path), str(tmp_path / "out"), *flags, "--json"]) == 0
    found = told(capsys)
    weights = "adapter_model.safetensors" if form == "adapter" else "model.safetensors"
    assert found["form"] == form
    assert {weights, "distrl", "config.toml", "README.md"} <= set(found["files"])
    assert (tmp_path / "out" / "distrl" / "value_head.safetensors").is_file()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "base_model: text\n" in card
    assert "whl[train,vlm]'` (" in card
    assert "Not measured" in card
    assert str(tmp_path) not in card
    if form == "adapter":
        settings = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
        assert settings["base_model_name_or_path"] == "text"
        assert "`vllm serve models/text --enable-lora --lora-modules phone=FOLDER`" in card
        assert "`--max-lora-rank` of 4 or" in card
        assert "write the model's id on its hub" in card  # a bare name resolves nowhere
    else:
        assert "vllm serve FOLDER" in card


def test_what_cannot_be_exported_ends_in_a_message_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = make_run(tmp_path / "runs")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").touch()
    whole, _ = vlm_run(tmp_path / "more", policy__vlm__lora_rank=0)
    wrong = [
        ([str(run.path), str(taken)], "is not empty"),
        ([str(run.path), str(tmp_path / "out"), "--merged"], "leave --merged out"),
        ([str(whole.path), str(tmp_path / "out"), "--adapter"], "--merged"),
        ([str(tmp_path), str(tmp_path / "out")], "is no run folder"),
    ]
    for arguments, words in wrong:
        assert main(["export", *arguments]) == 2
        assert words in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "taken", "more"}


# supervised learning


def data_run(root: Path, *, success: bool = True, screenshots: Sequence[str] = ("",) * 4) -> RunFolder:
    """A run whose episodes did what the oracle does; the last step of each is undone, and the first two came to nothing."""
    run, _ = make_run(root)
    pairs = shown_by_the_oracle(8)
    with ExperienceStore(run.experience) as store:
        for number, screenshot in enumerate(screenshots):
            shown = [
                (changed(seen, screenshot=screenshot), action) for seen, action in pairs[number * 3 : number * 3 + 3]
            ]
            store.add(oracle_episode(f"e{number}", shown, success=success))
    return run


def oracle_episode(id: str, pairs: Any, *, success: bool) -> Any:
    played = decided_episode(tiny_policy(), id, Played(num_steps=len(pairs), success=success))
    steps = tuple(
        changed(
            step,
            observation=seen,
            decision=changed(step.decision, action=action),
            valid=index != 0,
        )
        for index, (step, (seen, action)) in enumerate(zip(played.steps, pairs, strict=True))
    )
    return changed(played, steps=steps)


def test_learning_from_stored_episodes_makes_a_run_that_training_goes_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_run(tmp_path / "data")
    config = load_config(None, {**SMALL, "run.root": str(tmp_path / "runs")})
    (tmp_path / "my.toml").write_text(dump_toml(config), encoding="utf-8")
    assert main(["sft", str(tmp_path / "my.toml"), "--data", str(data.path), "--warm_start.epochs", "9", "--json"]) == 0
    first = told(capsys)
    assert (first["policy_version"], first["resumed"]) == (0, False)
    assert 0 < first["examples"] <= first["steps"] <= 8
    assert first["damaged_episodes"] == 0
    run = RunFolder(Path(first["run"]))
    learnt, fresh = make_policy(run.config()), make_policy(run.config())
    files = CheckpointFolder(run.checkpoints).newest()
    assert files is not None
    checkpoint = from_files(files)
    learnt.restore(checkpoint.policy, source="the checkpoint")
    assert likelihood(learnt) > likelihood(fresh) + 0.5

    assert main(["sft", str(run.path), "--data", str(data.path), "--data", str(data.path), "--json"]) == 0
    second = told(capsys)
    assert (second["policy_version"], second["resumed"]) == (1, True)
    assert second["examples"] == 2 * first["examples"]


def likelihood(policy: Any) -> float:
    """Of what the data run did, the steps that were refused apart."""
    pairs = [pair for number in range(4) for pair in shown_by_the_oracle(8)[number * 3 + 1 : number * 3 + 3]]
    known = [(policy.encode(seen), choice) for seen, action in pairs if (choice := policy.imitate(seen, action))]
    with torch.no_grad():
        return float(policy.score([seen for seen, _ in known], [choice for _, choice in known]).logp_N.mean())


def test_a_language_model_learns_from_the_episodes_of_another_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_run(tmp_path / "data")
    run, _ = vlm_run(tmp_path / "runs", warm_start__epochs=1)
    before = load_file(run.weights / "v000000.safetensors")
    assert main(["sft", str(run.path), "--data", str(data.path), "--json"]) == 0
    assert told(capsys)["policy_version"] == 1
    after = load_file(run.weights / "v000001.safetensors")
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_what_cannot_be_learnt_from_ends_in_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = make_run(tmp_path / "runs")
    failures = data_run(tmp_path / "data", success=False)
    wrong = [
        ([str(run.path), "--data", str(failures.path)], "no successful episode"),
        ([str(run.path), "--data", str(tmp_path)], "is no run folder"),
        ([str(run.path), "--data", str(data_run(tmp_path / "good").path), "--seed", "3"], "keeps its own settings"),
        ([str(tmp_path / "no.toml"), "--data", str(data_run(tmp_path / "fine").path)], "no file"),
        ([str(run.path)], "--data"),
    ]
    for arguments, words in wrong:
        assert main(["sft", *arguments]) == 2
        assert words in capsys.readouterr().err


def vlm_file(folder: Path, **settings: Any) -> Path:
    """A configuration of a tiny language model, whose runs go to `folder / "runs"`."""
    vlm = {"path": str(tiny_model("text")), "pictures": False, "lora_rank": 4, **settings}
    flags = {f"policy.vlm.{key}": value for key, value in vlm.items()}
    flags |= {"policy.kind": "vlm", "rollout.keep_screenshots": vlm["pictures"], "run.root": str(folder / "runs")}
    config = load_config(None, {**CLONING, **flags})
    (folder / "my.toml").write_text(dump_toml(config), encoding="utf-8")
    return folder / "my.toml"


def test_where_no_step_can_be_expressed_nothing_is_published_and_no_run_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_run(tmp_path / "data")
    assert main(["sft", str(vlm_file(tmp_path, answer_tokens=2)), "--data", str(data.path)]) == 2
    words = capsys.readouterr().err
    assert "can express none of the 8 demonstrated steps" in words
    assert "policy.vlm.answer_tokens above 2" in words
    assert len(words.splitlines()) <= 4
    assert not (tmp_path / "runs").exists()
    run, _ = vlm_run(tmp_path / "others", policy__vlm__answer_tokens=2)
    assert main(["sft", str(run.path), "--data", str(data.path)]) == 2
    assert [path.name for path in run.weights.glob("*.safetensors")] == ["v000000.safetensors"]


def test_what_can_be_expressed_in_part_is_learnt_and_reported_as_a_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, short = data_run(tmp_path / "data"), vlm_file(tmp_path, answer_tokens=12)
    assert main(["sft", str(short), "--data", str(data.path), "--warm_start.epochs", "1"]) == 0
    said = re.search(r"learnt (\d+) of (\d+) steps", capsys.readouterr().out)
    assert said is not None
    assert 0 < int(said[1]) < int(said[2]) == 8


def test_a_folder_that_is_no_model_leaves_no_run_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = data_run(tmp_path / "data")
    assert main(["sft", str(vlm_file(tmp_path, path=str(tmp_path))), "--data", str(data.path)]) == 2
    assert "is no model folder" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_damaged_episodes_are_passed_over_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, (run, _) = data_run(tmp_path / "data"), make_run(tmp_path / "runs")
    files = sorted(data.experience.glob("episodes/*/*.ep"), key=lambda file: file.name)
    files[0].write_bytes(b"rubbish")
    files[1].unlink()
    assert main(["sft", str(run.path), "--data", str(data.path), "--json"]) == 0
    found = told(capsys)
    assert (found["damaged_episodes"], found["steps"]) == (2, 4)
    assert main(["sft", str(run.path), "--data", str(data.path)]) == 0
    assert "skipped as damaged: 2 episodes" in capsys.readouterr().out
    for file in files[2:]:
        file.unlink()
    assert main(["sft", str(run.path), "--data", str(data.path)]) == 2
    assert "4 are damaged" in capsys.readouterr().err


def test_an_episode_whose_pictures_are_gone_is_passed_over_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, gone = reference_of(PICTURES["tall"]), reference_of(b"nobody has this one")
    data = data_run(tmp_path / "data", screenshots=(there, gone, there, there))
    FrameStore(data.experience).put(PICTURES["tall"])
    file = vlm_file(tmp_path, path=str(tiny_model("qwen2.5-vl")), pictures=True, elements=False, image_max_pixels=8000)
    assert main(["sft", str(file), "--data", str(data.path), "--warm_start.epochs", "1", "--json"]) == 0
    found = told(capsys)
    assert (found["damaged_episodes"], found["examples"], found["steps"]) == (1, 6, 6)


def test_ctrl_c_while_a_new_run_learns_leaves_no_run_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> float:
        assert len(list((tmp_path / "new").iterdir())) == 1
        raise KeyboardInterrupt

    data = data_run(tmp_path / "data")
    (tmp_path / "my.toml").write_text(dump_toml(load_config(None, {**SMALL, "run.root": str(tmp_path / "new")})))
    monkeypatch.setattr(sft, "_clone", interrupted)
    assert main(["sft", str(tmp_path / "my.toml"), "--data", str(data.path)]) == 130
    assert list((tmp_path / "new").iterdir()) == []
    run, _ = make_run(tmp_path / "old")
    monkeypatch.setattr(sft, "_clone", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["sft", str(run.path), "--data", str(data.path)]) == 130
    assert run.config_file.exists()


def test_a_folder_that_cannot_be_written_is_answered_with_the_argument_that_names_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = make_run(tmp_path / "runs")
    (tmp_path / "file").write_text("mine")
    assert main(["export", str(run.path), str(tmp_path / "file" / "out")]) == 2
    message = capsys.readouterr().err
    assert "choose another with the second argument" in message
    assert "--run.root" not in message
