"""A page that is MobileGym's phone: its own classes set a task up and judge it, through the functions that the page offers."""

from __future__ import annotations

from functools import partial

import msgspec

from distrl.config.schema import PhonePageConfig
from distrl.devices.web.gym import Gym, GymVerdict, Question
from distrl.devices.web.pages import READY_S, PhonePage
from distrl.devices.web.tab import Tab, origin_of
from distrl.errors import ConfigError
from distrl.lines import lines_of
from distrl.types import Action, Finish, TypeText, UiElement, WebEnd, WebSetup, WebTask


class GymPage(PhonePage):
    """One task on such a page. Gestures are those of any page that is a phone."""

    def __init__(self, names: PhonePageConfig, gym: Gym, *, phone: str, load_s: float) -> None:
        super().__init__(names, load_s=load_s)
        self._gym, self._phone = gym, phone
        self._setup: WebSetup | None = None
        self._verdict: GymVerdict | None = None
        self._steps, self._moments = 0, ()  # type: int, tuple[WebTask, ...]
        self.instruction = ""
        """What the task asks for, with the parameters that its set-up drew."""

    async def start(self, tab: Tab, setup: WebSetup) -> None:
        """Open the page, and let the task's own class set the phone up."""
        self._setup, self._verdict, self._steps, self._moments = setup, None, 0, ()
        if origin_of(tab.url) != origin_of(setup.url):
            await tab.go(setup.url)
        await self._check(tab)
        self.instruction = await self._gym.set_up(
            self._phone, partial(self._serve, tab, setup.url), task=setup.task, seed=setup.seed,
            language=setup.language, answers=setup.answers,
        )  # fmt: skip

    async def perform(self, tab: Tab, action: Action) -> str | None:
        """As any page that is a phone; what is typed replaces what the field held, as on every device here."""
        if isinstance(action, TypeText) and self._names.type:
            return await self._input(tab, self._names.type, action.text, {"clear": True})
        return await super().perform(tab, action)

    async def look_back(self, tab: Tab, elements: tuple[UiElement, ...], *, changed: bool) -> None:
        """After each step of a training episode: which training tasks are fulfilled at this moment, for hindsight."""
        assert self._setup is not None
        setup, self._steps = self._setup, self._steps + 1
        if setup.draws and changed:
            self._moments += await self._gym.moment(
                self._phone, partial(self._serve, tab, setup.url), steps=self._steps, lines=lines_of(elements),
                draws=setup.draws, seed=setup.seed, language=setup.language,
            )  # fmt: skip

    async def claim(self, tab: Tab, claim: Finish) -> float:
        """Have the task judged; 1 where the agent says that it is done, the goal is reached and nothing else has changed."""
        assert self._setup is not None
        if claim.status != "complete":
            return 0.0
        setup = self._setup
        self._verdict = await self._gym.judge(
            self._phone, partial(self._serve, tab, setup.url), answer=claim.answer, draws=setup.draws,
            seed=setup.seed, language=setup.language,
        )  # fmt: skip
        return float(self._verdict.passed)

    def end(self, url: str, title: str) -> WebEnd:
        """How the phone was left, with what the judge said where there was a claim."""
        verdict = self._verdict
        if verdict is None:
            return WebEnd(url=url, title=title, fulfilled=self._moments)
        return WebEnd(
            url=url, title=title, reason=_reason(verdict), progress=verdict.progress, changes=verdict.changes,
            fulfilled=() if verdict.passed else self._fulfilled(verdict),
        )  # fmt: skip

    def _fulfilled(self, verdict: GymVerdict) -> tuple[WebTask, ...]:
        known = {(one.task, one.instruction) for one in self._moments}
        return (*self._moments, *(one for one in verdict.fulfilled if (one.task, one.instruction) not in known))

    async def _serve(self, tab: Tab, url: str, question: Question) -> msgspec.Raw:
        """What a task asks of its phone: the page is opened anew, or a script evaluated in it."""
        if question.ask == "open":
            await tab.go(url)
            return msgspec.Raw(b"null")
        return await tab.evaluate(_call(question), msgspec.Raw, deadline_s=READY_S)


def _call(question: Question) -> str:
    """As Playwright evaluates: a function is called with the argument, any other expression is its value."""
    argument = bytes(question.argument).decode()
    return (
        f"(async () => {{ const it = ({question.script.strip().rstrip(';')}); "
        f"const given = typeof it === 'function' ? await it({argument}) : await it; return given === undefined ? null : given; }})()"
    )


def _reason(verdict: GymVerdict) -> str:
    if verdict.passed:
        return "the goal is reached, and nothing else has changed"
    if verdict.success:
        return f"the goal is reached, and besides: {', '.join(verdict.changes)}"[:300]
    return f"missing: {', '.join(verdict.missing)}"[:300]


def no_gym() -> ConfigError:
    """The refusal of a task of MobileGym on phones that were not told where it is."""
    return ConfigError(
        "devices.web.gym_folder is empty, and the task is one of MobileGym",
        expected="the folder of your clone, whose bench_env sets up and judges",
        fix="--tasks.mobilegym.folder PATH, or --devices.web.gym_folder PATH",
    )
