"""What leaves a run, and what comes into one: `distrl export` and `distrl sft`."""

from __future__ import annotations

import json
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from distrl.cli.main import main
from distrl.config.load import config_hash, dump_toml, load_config
from distrl.config.schema import Config
from distrl.evaluation.report import make_report, wilson
from distrl.experience.durable import replace
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import CheckpointFolder
from distrl.learner.weights import WeightsFolder
from distrl.policies.pointer.policy import PointerPolicy
from distrl.runtime.assembly import make_policy
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.spent import Spent
from distrl.runtime.summary import summarise
from support.learners import make_version
from support.lessons import Played, decided_episode, shown_by_the_oracle, tiny_policy
from support.vlms import tiny_model

SMALL = {"policy.width": 16, "policy.layers": 1, "warm_start.epochs": 2, "warm_start.learning_rate": 0.01}
NOW = datetime(2026, 1, 2, 3, 4, 5)


def make_run(root: Path, **settings: Any) -> tuple[RunFolder, Config]:
    """A run that has published version 0."""
    config = load_config(
        None, {**SMALL, "run.root": str(root), **{k.replace("__", "."): v for k, v in settings.items()}}
    )
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
    summarise(run, config, Spent())


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
    assert told(capsys)["files"] == ["README.md", "config.toml", "model.safetensors"]
    data = (out / "model.safetensors").read_bytes()
    PointerPolicy(load_config(out / "config.toml").policy, seed=9).restore(data, source="the export")
    card, rate = (out / "README.md").read_text(encoding="utf-8"), wilson(12, 20)
    assert f"| after training | 60.0% [{rate.low:.1%}, {rate.high:.1%}], 20 tasks |" in card
    assert f"`{config_hash(config)}`" in card
    assert f"| `model.safetensors` | `{sha256(data).hexdigest()}` |" in card
    assert [path.name for path in out.parent.iterdir()] == ["out"]


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
    assert {weights, "value_head.safetensors", "config.toml", "README.md"} <= set(found["files"])
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "base_model: text\n" in card
    assert "Not measured" in card
    assert str(tmp_path) not in card
    if form == "adapter":
        settings = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
        assert settings["base_model_name_or_path"] == "text"


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


def data_run(root: Path, *, success: bool = True) -> RunFolder:
    """A run whose episodes did what the oracle does; the last step of each is undone, and the first two came to nothing."""
    run, _ = make_run(root)
    pairs = shown_by_the_oracle(8)
    with ExperienceStore(run.experience) as store:
        for number in range(4):
            store.add(oracle_episode(f"e{number}", pairs[number * 3 : number * 3 + 3], success=success))
    return run


def oracle_episode(id: str, pairs: Any, *, success: bool) -> Any:
    from msgspec.structs import replace as changed

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
    assert 0 < first["examples"] <= 8
    run = RunFolder(Path(first["run"]))
    learnt, fresh = make_policy(run.config()), make_policy(run.config())
    checkpoint = CheckpointFolder(run.checkpoints).newest()
    assert checkpoint is not None
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
