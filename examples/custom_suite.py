"""A task suite of your own on the simulated phones: templates that say what is asked, what must hold, and how it is done.

    cd examples && distrl train --tasks.suite custom_suite:sounds --run.minutes 1

A template is a function that drafts one task; wordings, phones and splits are drawn from it. The oracle plays the route, so warm
start and hindsight work as with the built-in suites. docs/tasks.md explains the words of a draft.
"""

from __future__ import annotations

from distrl.devices.sim.apps.settings import CHOICES, PREFS
from distrl.tasks.sim.templates import Draft, SimSuite, Templates, open_app, tap

templates = Templates()


@templates.add
def ringtone(t: Draft) -> None:
    """Choose a ringtone."""
    melody, other = t.random.sample(CHOICES["sound"]["ringtone"][1], 2)
    t.say(
        f"Set the ringtone to {melody}",
        f"Use {melody} as the call melody",
        f"When someone calls, play {melody}",
        f"I want to hear {melody} when the phone rings",
        f"Ring with {melody} from now on",
    )
    t.given(PREFS, "ringtone", choice=other)
    t.want(PREFS, "ringtone", choice=melody)
    t.route(open_app("settings"), tap("section:sound"), tap("ringtone"), tap(f"option:{melody}"))


def sounds(_settings: None) -> SimSuite:
    """What `tasks.suite` names: called once in each process."""
    return SimSuite("sounds", templates, sizes={"train": 60, "tune": 10, "test": 20})
