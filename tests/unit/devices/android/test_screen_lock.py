"""What `dumpsys window` says of the lock screen, in the words of several Androids."""

from __future__ import annotations

import pytest

from distrl.devices.android.phone import LOCKED

DELEGATE = """
    KeyguardServiceDelegate
      showing={showing}
      showingAndNotOccluded=true
      inputRestricted={showing}
      occluded=false
      secure=true
      dreaming=false
      deviceHasKeyguard=true
      KeyguardStateMonitor
        mIsShowing={showing}
"""


@pytest.mark.parametrize(
    "dump",
    [
        "    mShowingLockscreen=true mShowingDream=false mDreamingLockscreen=false mDreamingSleepToken=null",
        "    mShowingDream=false mDreamingLockscreen=true mDreamingSleepToken=null",
        "    isStatusBarKeyguard=true",
        DELEGATE.format(showing="true"),
        DELEGATE.format(showing="true").replace("\n", "\r\n"),
    ],
)
def test_a_lock_screen_is_seen_whatever_the_android(dump: str) -> None:
    assert LOCKED.search(f"WINDOW MANAGER POLICY STATE (dumpsys window policy)\n{dump}\n")
    assert not LOCKED.search(dump.replace("=true", "=false"))


def test_what_only_sounds_like_one_is_none() -> None:
    assert not LOCKED.search(DELEGATE.format(showing="false"))
    assert not LOCKED.search("  mCurrentFocus=Window{5d1c u0 com.keyguard.app/.Main}\n  notshowing=true\n")
