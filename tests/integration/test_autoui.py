"""Auto-UI as a policy: real loading code, the real architecture at a tiny size, decisions and scores that agree, a run that learns."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from PIL import Image
from safetensors.torch import load_file, save_file

from distrl.config.schema import AutoUIConfig
from distrl.errors import ConfigError
from distrl.policies.autoui.loading import load
from distrl.policies.autoui.policy import AutoUIPolicy, previous
from distrl.policies.base import Policy, PolicyContext
from distrl.types import Finish, LongPress, Observation, Past, Press, Swipe, Tap, TypeText, Wait
from support.androids import own_server
from support.autouis import make_folders
from support.chats import ChatServer, says
from support.fake_emulator import emulator_ports, lay_out_sdk
from support.runs import distrl, flags

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> AutoUIConfig:
    return make_folders(tmp_path_factory.mktemp("models"))


class Pictures:
    """Two screenshots that differ."""

    def get(self, reference: str) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", (90, 180), {"red": "#c00000", "blue": "#0000c0"}[reference]).save(file, "PNG")
        return file.getvalue()


def a_policy(config: AutoUIConfig, seed: int = 0) -> AutoUIPolicy:
    return AutoUIPolicy(config, PolicyContext(frames=Pictures(), seed=seed))


def seen(instruction: str = "Open the clock", screenshot: str = "red", *recent: Past) -> Observation:
    return Observation(instruction=instruction, screenshot=screenshot, width_px=90, height_px=180, recent=recent)


SCREENS = [
    seen(),
    seen("Turn on the alarm, and then tell me what the time is", "blue", Past(action=Tap(0.25, 0.5))),
    seen("Go", "red", Past(action=Press("home")), Past(action=TypeText("tea"))),
]


@pytest.mark.parametrize("v1_1", [True, False])
def test_what_is_decided_is_scored_the_same_whatever_else_is_in_the_batch(tmp_path: Path, v1_1: bool) -> None:
    policy = a_policy(make_folders(tmp_path, v1_1=v1_1))
    assert isinstance(policy, Policy)
    decisions = policy.decide(SCREENS, temperature=1.0, generator=torch.Generator().manual_seed(1))
    encoded, choices = [policy.encode(one) for one in SCREENS], [one.choice for one in decisions]
    together = policy.score(encoded, choices)
    for row, decision in enumerate(decisions):
        alone = policy.score([encoded[row]], [choices[row]])
        for scores, at in ((together, row), (alone, 0)):
            assert float(scores.logp_N.detach()[at]) == pytest.approx(decision.logp, abs=1e-3)
            assert float(scores.entropy_N.detach()[at]) == pytest.approx(decision.entropy, abs=1e-2)
            assert float(torch.sigmoid(scores.value_logit_N.detach()[at])) == pytest.approx(decision.value, abs=1e-4)
    assert len(set(choices)) == 3


def test_the_screenshot_and_the_last_action_are_read(folders: AutoUIConfig) -> None:
    policy = a_policy(folders)
    (choice,) = (one.choice for one in policy.decide([seen()], temperature=0.0, generator=torch.Generator()))
    logp = [
        float(policy.score([policy.encode(one)], [choice]).logp_N.detach())
        for one in (seen(), seen(screenshot="blue"), seen("Open the clock", "red", Past(action=Tap(0.1, 0.1))))
    ]
    assert len({round(value, 3) for value in logp}) == 3


def test_gradients_reach_all_of_the_t5_and_none_of_the_vision_tower(folders: AutoUIConfig) -> None:
    policy = a_policy(folders)
    answer = policy.imitate(SCREENS[0], Tap(0.25, 0.5))
    assert answer is None  # 24 tokens are too few for such a line here
    policy.config = replace(folders, answer_tokens=200)
    answer = policy.imitate(SCREENS[0], Tap(0.25, 0.5))
    assert answer is not None
    before = float(policy.score([policy.encode(SCREENS[0])], [answer]).logp_N.detach())
    optimizer = torch.optim.Adam(policy.network.parameters(), lr=3e-3)
    for _ in range(20):
        scores = policy.score([policy.encode(SCREENS[0])], [answer])
        optimizer.zero_grad()
        (scores.value_logit_N.square().sum() - scores.logp_N.sum()).backward()
        optimizer.step()
    assert float(scores.logp_N.detach()) > before / 2
    without = [name for name, weights in policy.network.named_parameters() if weights.grad is None]
    assert without == []
    assert not any(weights.requires_grad for weights in policy._vision._tower.parameters())


def test_the_network_is_transformers_own_t5_with_the_published_fusion(folders: AutoUIConfig) -> None:
    from transformers.modeling_outputs import BaseModelOutput

    network = load(folders, torch.device("cpu")).network
    ids, mask, image = torch.tensor([[5, 6, 7, 1]]), torch.ones(1, 4, dtype=torch.long), torch.randn(1, 24)
    said = torch.tensor([[0, 9, 8]])
    with torch.no_grad():
        hidden = network.t5.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        # Attention to a single vector is that vector, whatever the query.
        values = torch.nn.functional.linear(network.image_dense(image), *_values_of(network.mha_layer))
        attended = network.mha_layer.out_proj(values)[:, None].expand_as(hidden)
        gate = torch.sigmoid(network.gate_dense(torch.cat([hidden, attended], -1)))
        fused = (1 - gate) * hidden + gate * attended
        assert torch.allclose(network.read(ids, mask, image), fused, atol=1e-5)
        theirs = network.t5(
            encoder_outputs=BaseModelOutput(last_hidden_state=fused), attention_mask=mask, decoder_input_ids=said
        )
        assert torch.allclose(network.logits(fused, mask, said), theirs.logits, atol=1e-4)


def _values_of(attention: torch.nn.MultiheadAttention) -> tuple[torch.Tensor, torch.Tensor]:
    width = attention.embed_dim
    return attention.in_proj_weight[2 * width :], attention.in_proj_bias[2 * width :]


def test_weights_travel_whole_and_each_once(folders: AutoUIConfig, tmp_path: Path) -> None:
    one, other = a_policy(folders), a_policy(folders, seed=1)
    with torch.no_grad():
        for weights in one.network.parameters():
            weights.add_(0.01)
    other.restore(one.dump(), source="the other")
    for name, weights in one.weights().items():
        assert torch.equal(weights, other.weights()[name]), name
    assert "t5.encoder.embed_tokens.weight" not in one.weights()


def test_the_prompt_and_the_last_action_are_as_auto_ui_has_them(folders: AutoUIConfig) -> None:
    nowhere = '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"'
    encoded = a_policy(folders).encode(SCREENS[1])
    assert encoded.prompt == (
        'Previous Actions: "action_type": "DUAL_POINT", "touch_point": "[0.5000, 0.2500]", "lift_point": "[0.5000, 0.2500]", '
        '"typed_text": "" Goal: Turn on the alarm, and then tell me what the time is</s>'
    )
    assert previous(TypeText("tea")) == f'"action_type": "TYPE", {nowhere}, "typed_text": "tea"'
    assert previous(Finish("impossible")) == f'"action_type": "STATUS_TASK_COMPLETE", {nowhere}, "typed_text": ""'
    assert previous(Press("enter")).startswith('"action_type": "PRESS_ENTER"')
    assert '"lift_point": "[0.2000, 0.5000]"' in previous(Swipe(0.5, 0.8, 0.5, 0.2))
    assert previous(LongPress(0.1, 0.2)) == previous(Tap(0.1, 0.2))
    assert previous(Wait()) == ""


def test_what_the_dialect_cannot_say_is_not_imitated(folders: AutoUIConfig) -> None:
    policy = a_policy(replace(folders, answer_tokens=400))
    assert policy.imitate(seen(), Wait()) is None
    answer = policy.imitate(seen(), TypeText('say "tea" & \u4e2d'))
    assert answer is not None
    assert policy._dialect.parse(policy._text(answer), _screen()) == TypeText('say "tea" & \u4e2d')


def _screen():  # type: ignore[no-untyped-def]
    from distrl.policies.dialects.base import Screen

    return Screen(width=90, height=180)


def test_folders_that_do_not_fit_are_refused_with_what_is_missing(folders: AutoUIConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.autoui\.path = '' is no model folder"):
        a_policy(replace(folders, path=""))
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in Path(folders.path).iterdir():
        (plain / file.name).write_bytes(file.read_bytes())
    tensors = load_file(plain / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in tensors.items() if not name.startswith("gate")}, plain / "model.safetensors"
    )
    with pytest.raises(ConfigError, match="lack 2 tensors of Auto-UI, such as gate_dense") as caught:
        a_policy(replace(folders, path=str(plain)))
    assert "docs/autoui.md" in caught.value.fix
    with pytest.raises(ConfigError, match="it holds a t5 model, and a blip-2 model is wanted"):
        a_policy(replace(folders, vision_path=folders.path))
    cut = tmp_path / "cut"
    cut.mkdir()
    for file in Path(folders.vision_path).iterdir():
        (cut / file.name).write_bytes(file.read_bytes())
    save_file({"vision_model.none": torch.zeros(1)}, cut / "model.safetensors")
    with pytest.raises(ConfigError, match=r"lack .* tensors of BLIP-2's vision tower"):
        a_policy(replace(folders, vision_path=str(cut)))
    (plain / "model.safetensors").rename(plain / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="is a pickle"):
        a_policy(replace(folders, path=str(plain)))


@pytest.mark.long
def test_the_papers_configuration_trains_with_it(
    folders: AutoUIConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file as it is, but for what the reader brings: models, lists, SDK, endpoint; and with less of everything."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANDROID_USER_HOME", str(tmp_path / ".android"))
    sdk = lay_out_sdk(tmp_path / "sdk")
    (sdk / "system-images/android-28/google_apis/x86_64").mkdir(parents=True)
    for name, first in (("train", 0), ("test", 40)):
        lines = [f"Open the app number {number}" for number in range(first, first + 50)]  # ten stand in both
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    with emulator_ports(), own_server() as config, ChatServer(usual=says("failure")) as judge:
        settings = {
            "run.root": tmp_path / "runs",
            "run.minutes": 0,
            "run.episodes": 8,
            "tasks.list.path": tmp_path / "train.txt",
            "tasks.list.test_path": tmp_path / "test.txt",
            "tasks.list.max_steps": 3,
            "judge.model.url": judge.url,
            "devices.per_worker": 2,
            "devices.android.port": config.port,
            "devices.android.quiet_s": 0,
            "devices.android.wait_s": 0,
            "devices.android.emulator.sdk": sdk,
            "devices.android.emulator.count": 2,
            "devices.android.emulator.first_port": 5640,
            "devices.android.emulator.arguments": json.dumps(["-accel", "off"]),
            "policy.autoui.path": folders.path,
            "policy.autoui.vision_path": folders.vision_path,
            "policy.autoui.answer_tokens": 12,
            "learner.first_update_episodes": 4,
            "learner.batch_trajectories": 2,
            "learner.publish_every_s": 0.3,
            "evaluation.episodes": 2,
            "evaluation.devices": 2,
        }
        done = distrl("train", ROOT / "configs/distrl-paper.toml", *flags(settings), "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["episodes"] >= 8
    assert summary["updates"] > 0
    assert (summary["lost_episodes"], summary["restarts"]) == (0, 0)
    told = [asked["messages"][1]["content"] for asked in judge.asked]
    assert told
    assert all(any(part["type"] == "image_url" for part in parts) for parts in told)
    assert all('"elements": []' in parts[0]["text"] for parts in told)
    history = (tmp_path / ".android/avd/distrl-0.avd/history").read_text()
    assert history.count("load distrl") >= 2  # before each task
