"""Several judges that vote on each attempt, and what their votes come to.

| rule | success | failure |
|---|---|---|
| all | all say success | one says failure |
| majority | more than half say success | more than half say failure |
| any | one says success | all say failure |

Whatever is neither is unknown. A judge without a verdict counts, with `unknown = "keep"`, as a vote that may have been
either: the outcome is known only where it could not have changed it. With "leave_out" the other judges decide alone; without
any known vote, and in a tie, the outcome is unknown. A judge that raises or is late has no verdict, and costs nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from distrl.config.schema import EnsembleConfig, JudgeConfig
from distrl.errors import ConfigError, closest
from distrl.plugins import BUILT_IN
from distrl.tasks.judges import Attempt, Judge, judge_attempt, make_judge
from distrl.types import Outcome, Verdict

DEADLINE_SHARE = 0.95
"""Of `judge.deadline_s`: one judge that is late leaves the others their say."""


class Ensemble:
    """Judges by name, a rule and the time that each of them has: for judges of your own too."""

    def __init__(self, judges: Mapping[str, Judge], rule: EnsembleConfig, *, deadline_s: float = 60.0) -> None:
        self._judges, self._rule, self._deadline_s = dict(judges), rule, deadline_s

    async def judge(self, attempt: Attempt) -> Verdict:
        """What the votes come to; the reason has those of all judges."""
        asked = (judge_attempt(judge, attempt, deadline_s=self._deadline_s) for judge in self._judges.values())
        votes = dict(zip(self._judges, await asyncio.gather(*asked), strict=True))
        outcome = decide([vote.outcome for vote in votes.values()], self._rule)
        agreeing = [vote for vote in votes.values() if vote.outcome == outcome]
        said = (f"{name}: {vote.outcome}{vote.reason and f' ({vote.reason})'}" for name, vote in votes.items())
        return Verdict(
            outcome=outcome,
            reason=f"{self._rule.rule} of {len(votes)}: {'; '.join(said)}"[:1000],
            progress=max((vote.progress for vote in agreeing), default=0.0),
            false_completion=any(vote.false_completion for vote in agreeing),
            side_effects=tuple(dict.fromkeys(effect for vote in agreeing for effect in vote.side_effects)),
        )

    def counters(self) -> dict[str, float]:
        """What those of the judges that count have counted, under their names."""
        counting = {name: getattr(judge, "counters", dict[str, float]) for name, judge in self._judges.items()}
        return {f"{name}/{key}": value for name, counters in counting.items() for key, value in counters().items()}


class EnsembleJudge(Ensemble):
    """The ensemble of `[judge.ensemble]`; its judges are built in."""

    def __init__(self, settings: JudgeConfig | None = None) -> None:
        config = settings or JudgeConfig()
        _check(config.ensemble.judges)
        judges = {name: make_judge(name, config) for name in config.ensemble.judges}
        super().__init__(judges, config.ensemble, deadline_s=DEADLINE_SHARE * config.deadline_s)


def decide(votes: Sequence[Outcome], rule: EnsembleConfig) -> Outcome:
    """What the votes come to by the rule (see the module)."""
    counted = [vote for vote in votes if vote != "unknown"] if rule.unknown == "leave_out" else list(votes)
    if not counted:
        return "unknown"
    most = len(counted) // 2 + 1
    needed, against = {"all": (len(counted), 1), "majority": (most, most), "any": (1, len(counted))}[rule.rule]
    if counted.count("success") >= needed:
        return "success"
    return "failure" if counted.count("failure") >= against else "unknown"


def _check(names: Sequence[str]) -> None:
    """Raise where these are no ensemble. Code of someone else is named by `judge.kind` alone, where it can be refused."""
    known = [name for name in BUILT_IN["judges"] if name != "ensemble"]
    wrong = next((name for name in names if name not in known), "")
    if wrong:
        raise ConfigError(
            f"judge.ensemble.judges names {wrong!r}, which is no built-in judge",
            expected=closest(wrong, known),
            fix="built-in names; for judges of your own, name a class as judge.kind that makes a distrl.tasks.ensemble.Ensemble",
        )
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(
            f"judge.ensemble.judges = {list(names)} is no ensemble",
            expected="two judges or more, each once",
            fix='--judge.ensemble.judges android,model, or judge.kind = "model" for one alone',
        )
