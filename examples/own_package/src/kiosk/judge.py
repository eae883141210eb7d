"""The judge: compares what the kiosk was left with against what the task asks for, and says what differs."""

from __future__ import annotations

import msgspec

from distrl.tasks.judges import Attempt, RewardJudge
from distrl.types import CustomCheck, CustomEnd, Verdict


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[judge.options]` of the judge."""

    ignore: tuple[str, ...] = ()
    """Parts of an order that do not count, such as "extra"."""


class KioskJudge:
    """`distrl.tasks.judges.Judge` of orders; prices are rewarded by the kiosk itself."""

    Settings = JudgeSettings

    def __init__(self, settings: JudgeSettings) -> None:
        self._ignore, self._reward = settings.ignore, RewardJudge()

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict, with a reason for people."""
        check, left = attempt.task.check, attempt.end.device
        if not isinstance(check, CustomCheck):
            return await self._reward.judge(attempt)
        if not isinstance(left, CustomEnd):
            return Verdict(outcome="unknown", reason="the kiosk did not say how it was left")
        wanted = {name: value for name, value in check.values.items() if name not in self._ignore}
        wrong = [name for name, value in wanted.items() if left.values.get(name) != value]
        said = [f"{name} is {left.values.get(name, 'not chosen')}, asked for {wanted[name]}" for name in wrong]
        return Verdict(
            outcome="failure" if wrong else "success",
            reason="; ".join(said) or "the order is as asked",
            progress=1.0 - len(wrong) / max(1, len(wanted)),
            false_completion=bool(wrong) and attempt.claim is not None,
        )
