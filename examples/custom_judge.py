"""A judge of your own: any program that reads an attempt as JSON and prints a verdict as JSON, such as one that asks a model.

    cd examples && distrl train --judge.kind custom_judge:ProgramJudge --judge.options.command '["python", "my_judge.py"]'

The program gets {"instruction", "claim", "reward", "ending", "screens": [[text, …], …]} on its standard input and prints
{"outcome": "success"}, or "failure" or "unknown", with a "reason" for people. Where it fails or takes longer than
judge.deadline_s, the outcome is unknown and nothing is learnt from the episode.
"""

from __future__ import annotations

import asyncio

import msgspec

from distrl.tasks.judges import Attempt
from distrl.types import Observation, Verdict


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[judge.options]` of the judge."""

    command: tuple[str, ...]
    """The program and its arguments."""


class ProgramJudge:
    """`distrl.tasks.judges.Judge`."""

    Settings = ProgramSettings

    def __init__(self, settings: ProgramSettings) -> None:
        self._command = settings.command

    async def judge(self, attempt: Attempt) -> Verdict:
        """What the program says; raising means that there is no verdict."""
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        try:
            said, _ = await program.communicate(msgspec.json.encode(_question(attempt)))
        finally:
            if program.returncode is None:  # the deadline has passed
                program.kill()
        return msgspec.json.decode(said, type=Verdict)


def _question(attempt: Attempt) -> dict[str, object]:
    screens = [_texts(screen) for screen in attempt.screens]
    end = {"claim": attempt.claim, "reward": attempt.end.reward, "ending": attempt.ending}
    return {"instruction": attempt.task.instruction, **end, "screens": screens}


def _texts(screen: Observation) -> list[str]:
    return [element.text or element.description for element in screen.elements]
