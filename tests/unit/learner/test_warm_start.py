from __future__ import annotations

from random import Random

import msgspec
import torch

from distrl.config.schema import Config, TasksConfig, WarmStartConfig
from distrl.learner.warm_start import clone, demonstrate, demonstration_tasks, examples_for
from distrl.types import Finish, Goal, Want
from support.lessons import UNRULY, some_tasks, tiny_policy

TASKS = some_tasks("sim-general", 6)


def test_cloning_demonstrations_makes_them_likelier() -> None:
    policy = tiny_policy()
    examples = examples_for(policy, demonstrate(TASKS, UNRULY, history=6))
    encoded, choices = [item for item, _ in examples], [choice for _, choice in examples]
    with torch.no_grad():
        before = policy.score(encoded, choices).logp_N
    shares: list[float] = []
    config = WarmStartConfig(epochs=25, learning_rate=1e-2)
    loss = clone(policy, examples, config, random=Random(0), beat=shares.append)
    with torch.no_grad():
        after = policy.score(encoded, choices).logp_N
    assert float(after.mean()) > float(before.mean()) + 0.5
    assert loss < -float(before.mean())
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_cloning_is_the_same_for_the_same_seed() -> None:
    examples = examples_for(tiny_policy(), demonstrate(TASKS[:2], UNRULY, history=6))
    clones = [tiny_policy(), tiny_policy()]
    for policy in clones:
        clone(policy, examples, WarmStartConfig(epochs=2), random=Random(3), beat=lambda share: None)
    assert clones[0].dump() == clones[1].dump()


def test_demonstrations_are_whole_episodes_with_the_history_that_a_policy_would_see() -> None:
    pairs = demonstrate(TASKS[:1], UNRULY, history=2)
    assert isinstance(pairs[-1][1], Finish)
    assert all(seen.instruction == TASKS[0].instruction for seen, _ in pairs)
    done = [action for _, action in pairs]
    for index, (seen, _) in enumerate(pairs):
        assert [past.action for past in seen.recent] == done[max(0, index - 2) : index]
    assert not any(seen.recent for seen, _ in demonstrate(TASKS[:1], UNRULY, history=0))


def test_an_oracle_that_fails_shows_nothing() -> None:
    want = Want(table="settings", id="nothing", fields={"such": "thing"})
    hopeless = msgspec.structs.replace(TASKS[0], goal=Goal(wants=(want,)))
    assert demonstrate([hopeless], UNRULY, history=6) == []
    assert demonstrate([hopeless, TASKS[1]], UNRULY, history=6) == demonstrate([TASKS[1]], UNRULY, history=6)


def test_demonstrations_come_from_training_tasks_and_the_seed_decides_which() -> None:
    config = Config(
        warm_start=WarmStartConfig(demonstrations=12), tasks=TasksConfig(suite="sim-shopping", max_oracle_steps=6)
    )
    tasks = demonstration_tasks(config)
    assert len(tasks) == 12
    assert {task.split for task in tasks} == {"train"}
    assert max(len(task.route) for task in tasks) <= 6
    assert tasks == demonstration_tasks(config)
    other = msgspec.structs.replace(config, run=msgspec.structs.replace(config.run, seed=1))
    assert tasks != demonstration_tasks(other)


def test_what_the_grammar_cannot_say_is_left_out_of_the_examples() -> None:
    policy = tiny_policy()
    pairs = demonstrate(TASKS[:1], UNRULY, history=6)
    unsaid = (pairs[0][0], Finish(answer="nothing on this screen says so"))
    assert len(examples_for(policy, [unsaid, *pairs])) == len(pairs)
