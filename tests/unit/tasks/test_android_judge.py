"""The judge of Android phones goes by what the phone told, and says unknown where it told nothing."""

from __future__ import annotations

import asyncio

import pytest

from distrl.errors import TaskError
from distrl.tasks.android import compare, missing
from distrl.tasks.judges import Attempt, AutoJudge
from distrl.types import AndroidCheck, AndroidEnd, AndroidSetup, Ending, EndState, Finish, Task, Verdict

CHECK = AndroidCheck(
    settings={"global/airplane_mode_on": "1"},
    packages={"com.example.game": False},
    files={"/sdcard/a.txt": True},
    activity="com.android.settings",
)
DONE = AndroidEnd(
    settings={"global/airplane_mode_on": "1"},
    packages={"com.example.game": False},
    files={"/sdcard/a.txt": True},
    activity="com.android.settings/.Main",
)


def judged(end: AndroidEnd | None, *, claim: Finish | None = Finish(), check: AndroidCheck = CHECK) -> Verdict:  # noqa: B008
    task = Task(
        id="a/test/0", suite="a", template="t", split="test", instruction="x", setup=AndroidSetup(), check=check
    )
    attempt = Attempt(task=task, end=EndState(claim=claim, device=end), ending=Ending.FINISHED)
    return asyncio.run(AutoJudge().judge(attempt))


def test_all_conditions_and_the_claim_make_a_success() -> None:
    assert judged(DONE).success
    assert judged(DONE, claim=None).outcome == "failure"
    assert judged(DONE, claim=Finish("impossible")).outcome == "failure"


def test_each_condition_counts_and_is_named() -> None:
    for name, value in {
        "settings": {"global/airplane_mode_on": "0"},
        "packages": {"com.example.game": True},
        "files": {"/sdcard/a.txt": False},
        "activity": "com.android.launcher/.Home",
    }.items():
        left = AndroidEnd(**{**{f: getattr(DONE, f) for f in DONE.__struct_fields__}, name: value})
        verdict = judged(left)
        assert verdict.outcome == "failure"
        assert verdict.false_completion
        assert verdict.progress == 0.75
        assert verdict.reason


def test_a_named_activity_fits_in_both_spellings() -> None:
    for spelling in ("com.android.settings/.Main", "com.android.settings/com.android.settings.Main"):
        assert judged(DONE, check=AndroidCheck(activity=spelling)).success
    assert not judged(DONE, check=AndroidCheck(activity="com.android.settings/.Other")).success


def test_a_phone_that_did_not_tell_leaves_the_outcome_unknown() -> None:
    assert judged(None).outcome == "unknown"


@pytest.mark.parametrize(
    ("check", "untold"),
    [
        (AndroidCheck(settings={"global/x": "null"}), "global/x"),
        (AndroidCheck(packages={"com.a": False}), "package com.a"),
        (AndroidCheck(files={"/sdcard/x": False}), "file /sdcard/x"),
        (AndroidCheck(activity="com.a"), "what is in the foreground"),
    ],
    ids=["setting", "package", "file", "activity"],
)
def test_a_condition_of_which_the_phone_did_not_tell_leaves_the_outcome_unknown(
    check: AndroidCheck, untold: str
) -> None:
    assert judged(AndroidEnd(), check=check) == Verdict(outcome="unknown", reason=f"the phone did not tell of {untold}")


def test_a_check_without_conditions_is_refused() -> None:
    with pytest.raises(TaskError, match="nothing to check"):
        AndroidCheck()


def test_a_row_of_a_content_provider_is_asked_for_and_named_where_it_is_missing() -> None:
    check = AndroidCheck(rows={"content://sms/sent": {"address": "555", "body": "Hi"}})
    assert list(compare(check, AndroidEnd(rows={"content://sms/sent": True}))) == [""]
    assert list(compare(check, AndroidEnd(rows={"content://sms/sent": False}))) == [
        "content://sms/sent has no row with address = 555, body = Hi"
    ]
    assert list(missing(check, AndroidEnd())) == ["rows of content://sms/sent"]
