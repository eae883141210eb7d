"""MobileGym's side of the bridge: a program for the Python that has what `bench_env` needs, and nothing of distrl in it.

It reads one JSON object a line from stdin and answers on the file that stdout was; whatever the package prints goes to stderr.
Task classes, splits, set-up and judges are those of the user's clone. What they ask of their phone comes back as questions: to evaluate
a script in the page that distrl drives, and to open that page anew.

    python gym_bridge.py FOLDER

    in   {"do": "tasks" | "setup" | "moment" | "judge" | "forget", "to": 1, ...}     out  {"to": 1, "answer": ...} or {"to": 1, "error": "..."}
    out  {"ask": "evaluate" | "open", "for": 1, "number": 5, ...}         in   {"told": 5, "value": ...} or {"told": 5, "error": "..."}
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LONGEST_LINE = 256 * 2**20
READY_S, FILES_S, STATE_TRIES, POLL_S, OWNER_POLL_S = 45.0, 5.0, 5, 0.02, 0.5
MOST_WORDS, MOST_NAMED = 160, 6
MOST_FULFILLED = 4
SHARED_PAIRS = 2
"""Pairs of letters that a line has in common with a question, at least: a number alone answers too many."""
SEES_READY = "Boolean(globalThis.__SIM__?.getState && globalThis.__OS__?.openApp)"
SEES_FILES = "Boolean(globalThis.__SIM_FS__)"
GET_STATE = """() => {
  const state = globalThis.__SIM__?.getState?.();
  const plain = (key, value) => {
    if (typeof value === "function" || typeof value === "symbol" || value instanceof Node || value instanceof Window) return undefined;
    return value instanceof Error ? {name: value.name, message: value.message} : value;
  };
  return state ? JSON.stringify(state, plain) : null;
}"""
WARM = """async ({ids, wait_ms}) => {
  try { await globalThis.__SIM__?.preloadAppStores?.(ids); } catch {}
  for (const id of ids) {
    globalThis.__OS__.openApp(id);
    await new Promise((done) => setTimeout(done, wait_ms));
  }
  globalThis.__OS__.goHome?.();
}"""

Ask = Callable[..., Awaitable[Any]]


class Watch:
    """The stopwatch that tasks expect of a phone; nobody reads it here."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A part of a set-up."""
        yield

    def reset(self) -> None:
        """Begin again."""

    def summary(self) -> str:
        """Nothing was measured."""
        return ""


class Page:
    """What tasks use of a page of Playwright."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def evaluate(self, expression: str, arg: Any = None) -> Any:
        """The value of an expression, or of a function called with `arg`, in the page."""
        return await self._ask("evaluate", script=expression, argument=arg)


class Phone:
    """The part of MobileGym's environment that its tasks call, on a page that distrl drives."""

    supports_state_injection = True
    agent_answer: str | None = None
    agent_message: str | None = None

    def __init__(self, ask: Ask, observation: Any) -> None:
        self._ask, self._observation = ask, observation
        self.page, self.stopwatch = Page(ask), Watch()

    async def reset(self, app_ids: list[str] | None = None) -> None:
        """The first state of everything, in a page that was loaded anew."""
        try:
            await self.page.evaluate("async () => { await globalThis.__SIM__?.resetState?.(); }")
        except RuntimeError:
            traceback.print_exc()  # the page is loaded anew whatever became of it
        await self._ask("open")
        await self.wait_ready(app_ids)

    async def wait_ready(self, app_ids: list[str] | None = None, timeout_ms: int = 0) -> None:
        """Wait for the page's own functions, and for the data of these apps."""
        if not await self._until(SEES_READY, timeout_ms / 1000 or READY_S):
            raise RuntimeError("the page offers no __SIM__.getState and __OS__.openApp: is it MobileGym?")
        await self._until(SEES_FILES, FILES_S)
        await self.page.evaluate(
            "async (ids) => { await globalThis.__SIM__?.waitForData?.(ids || undefined); }", app_ids
        )

    async def _until(self, script: str, limit_s: float) -> bool:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while not (seen := bool(await self.page.evaluate(script))) and loop.time() < until_s:
            await asyncio.sleep(POLL_S)
        return seen

    async def get_state(self, *, required_apps: list[str] | None = None) -> dict[str, Any]:
        """The whole state; asked for again while it lacks one of these apps."""
        state: dict[str, Any] = {}
        for turn in range(STATE_TRIES):
            text = await self.page.evaluate(GET_STATE)
            state = json.loads(text) if text else {}
            if "os" in state and not set(required_apps or ()) - set(state.get("apps") or {}):
                return state
            await asyncio.sleep(0.5 + 0.3 * turn)
        if "os" not in state:
            raise RuntimeError("the page's state has no os in it")
        return state

    async def set_state(self, patch: dict[str, Any], *, deep: bool = True, reload: bool = False) -> None:
        """Merge a patch into the state."""
        await self.page.evaluate(
            "({patch, deep, reload}) => { globalThis.__SIM__.setState(patch, {deep, reload}); }",
            {"patch": patch, "deep": deep, "reload": reload},
        )
        if reload:
            await self.wait_ready()

    async def get_route(self) -> dict[str, Any]:
        """The app in front and where it is in it."""
        return await self.page.evaluate("globalThis.__OS__?.getAppRoute?.() || null") or {}

    async def open_app(self, app_name: str, timeout_ms: int = 8000, wait_stable: bool = False) -> None:
        """Bring an app to the front."""
        await self.page.evaluate("(id) => { globalThis.__OS__.openApp(id); }", app_name)
        await self._until("Boolean(globalThis.__OS__?.getAppRoute?.()?.app)", timeout_ms / 1000)
        if wait_stable:
            await asyncio.sleep(0.3)

    async def warm_apps(self, app_ids: list[str], settle_ms: int = 300) -> None:
        """Open each of these once, so that all have their data, and go home."""
        await self.page.evaluate(WARM, {"ids": app_ids, "wait_ms": settle_ms})
        await asyncio.sleep(0.3)

    async def go_home(self) -> None:
        """The home screen."""
        await self.page.evaluate("() => { globalThis.__OS__.goHome?.(); }")
        await asyncio.sleep(0.3)

    async def get_observation(self) -> Any:
        """State and route, as judges read them; pictures are distrl's affair."""
        return self._observation(state=await self.get_state(), route=await self.get_route())


class Other:
    """A training task that an episode of another one may fulfil on its way."""

    def __init__(self, name: str, seed: int, task: Any) -> None:
        self.name, self.seed, self.task = name, seed, task
        self.instruction, self.asks = str(task.description), bool(getattr(task, "answer_fields", None))


class Played:
    """One task under way on one phone."""

    def __init__(self, name: str, task: Any, first: Any, mode: str) -> None:
        self.name, self.task, self.first, self.mode = name, task, first, mode
        self.others: list[Other] | None = None
        """Training tasks that its moments are compared with; None: not drawn yet."""


class Bridge:
    """Answers requests about the tasks of one clone."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        from bench_env.config import RunnerConfig
        from bench_env.env.base import Observation
        from bench_env.runner.base import Controller, Evaluator
        from bench_env.splits import resolve_split
        from bench_env.task.judge import JudgeInput
        from bench_env.task.registry import TaskRegistry

        self._limits, self._observation, self._judged = RunnerConfig, Observation, JudgeInput
        self._controller, self._evaluator = Controller, Evaluator
        self._registry: Any = TaskRegistry()
        self._splits = {name: sorted(resolve_split(name)) for name in ("train", "test")}
        self._played: dict[str, Played] = {}
        self._broken: dict[str, str] = {}
        """Why the tasks of an app cannot be loaded, empty where they can: to try again with each of them would take minutes."""
        self._apps: dict[str, tuple[str, ...]] = {}
        self._times: Counter[str] = Counter()
        """How often a moment fulfilled each task: the rarest are told first."""

    # which tasks there are

    def tasks(self, answers: str, names: list[str], leave_out: list[str]) -> list[dict[str, Any]]:
        """Every task of both splits; those that are chosen with what they are, or why they cannot even be loaded.

        Nothing is loaded for the others: the modules of all apps take many seconds.
        """
        listed = ((name, split) for split, found in self._splits.items() for name in found)
        return [
            self._describe(name, split, answers)
            if (not names or is_named(name, names)) and not is_named(name, leave_out)
            else {"name": name, "split": split}
            for name, split in listed
        ]

    def _describe(self, name: str, split: str, answers: str) -> dict[str, Any]:
        app = name.partition(".")[0]
        facts: dict[str, Any] = {"name": name, "split": split}
        if app not in self._broken:
            with told_failure() as loaded:
                self._registry.list_tasks(app)
            self._broken[app] = loaded.why
        if self._broken[app]:
            return {**facts, "error": self._broken[app]}
        with told_failure() as made:
            task = self._registry.create_task(name, _seed=0)
            rule = SimpleNamespace(max_steps_explicit=False, max_steps=30, eval_mode=mode_of(answers))
            facts |= {
                "level": str(task.difficulty),
                "apps": list(task.apps),
                "max_steps": int(self._limits.get_max_steps(rule, task)),
                "asks": bool(getattr(task, "answer_fields", None)),
                "english": english_of(task) is not None,
            }
        return {**facts, "error": made.why} if made.why else facts

    # playing one

    async def setup(self, ask: Ask, asked: dict[str, Any]) -> dict[str, Any]:
        """Bring a phone to the start of a task, as its own runner does; the instruction."""
        phone, mode = Phone(ask, self._observation), mode_of(asked["answers"])
        task = self._make(asked["task"], asked["seed"], asked["language"])
        self._played.pop(asked["phone"], None)
        first, _ = await self._controller.setup(phone, task, eval_mode=mode)
        self._played[asked["phone"]] = Played(asked["task"], task, first, mode)
        return {"instruction": str(task.description)}

    def _make(self, name: str, seed: int, language: str) -> Any:
        random.seed(seed)  # some samplers draw from the module's own generator
        task = self._registry.create_task(name, _seed=seed)
        if language == "en" and (number := english_of(task)) is not None:
            task._template_index = number
        return task

    async def judge(self, ask: Ask, asked: dict[str, Any]) -> dict[str, Any]:
        """What its own judge says of a phone as it is, and which other training tasks its end fulfils where that is asked."""
        played = self._played.get(asked["phone"])
        if played is None:
            raise RuntimeError("no task was set up on this phone")
        last = await Phone(ask, self._observation).get_observation()
        found = await self._verdict(played.task, played.first, last, asked["answer"], played.mode)
        told = report_of(found)
        if asked["draws"] and not told["passed"]:
            told["fulfilled"] = await self._fulfilled(played, last, asked)
        return told

    async def moment(self, ask: Ask, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Training tasks of the same apps that the phone fulfils as it is, each once in an episode, the rarest first.

        A question is answered with one of `lines`, which stand on the screen: with the one that has most in common with it.
        """
        played = self._played.get(asked["phone"])
        if played is None:
            raise RuntimeError("no task was set up on this phone")
        if played.others is None:
            played.others = list(self._drawn(played, asked))
        last, found = await Phone(ask, self._observation).get_observation(), []
        for other in list(played.others):
            if other not in played.others:
                continue  # another draw of it was found just now
            with told_failure():
                answer = await self._holds(other, played, last, asked["lines"])
                if answer is not None:
                    played.others = [one for one in played.others if one.name != other.name]
                    self._times[other.name] += 1
                    told = {"task": other.name, "seed": other.seed, "instruction": other.instruction}
                    found.append({**told, "steps": asked["steps"], "answer": answer})
        return sorted(found, key=lambda each: self._times[each["task"]])

    def _drawn(self, played: Played, asked: dict[str, Any]) -> Iterator[Other]:
        """This task itself, and draws of the others, without those that hold at the start already."""
        yield Other(played.name, asked["seed"], played.task)
        instructions = {str(played.task.description)}
        for name in self._others(played):
            for seed in range(asked["seed"], asked["seed"] + asked["draws"]):
                with told_failure():
                    other = Other(name, seed, self._fitted(name, seed, played, asked["language"]))
                    if other.instruction not in instructions:
                        instructions.add(other.instruction)
                        yield other

    async def _holds(self, other: Other, played: Played, last: Any, lines: list[str]) -> str | None:
        """The answer with which a task is fulfilled, empty where it needs none; None: it is not."""
        if other.asks and other.name != played.name:
            return None  # a number on the screen answers some question of another task nearly always
        answers = _fitting_lines(other.instruction, lines) if other.asks else [""]
        for answer in answers:
            if not self._reached(other.task, played.first, last, answer):
                continue
            if not other.asks and self._reached(other.task, played.first, played.first, answer):
                return None
            found = await self._verdict(other.task, played.first, last, answer, "text")
            return answer if found.passed and not getattr(found, "judge_error", None) else None
        return None

    def _reached(self, task: Any, first: Any, last: Any, answer: str | None) -> bool:
        """Whether its goals hold, before two whole states are compared for what else changed."""
        checks = task.check_goals(self._judged(init_obs=first, last_obs=last, answer=answer or None))
        return bool(checks) and all(check.get("passed") for check in checks)

    def forget(self, phone: str) -> None:
        """Keep nothing of what was played on a phone."""
        self._played.pop(phone, None)

    async def _verdict(self, task: Any, first: Any, last: Any, answer: str | None, mode: str) -> Any:
        judge = self._evaluator(judge_mode="state", eval_mode=mode)
        return await judge.evaluate(task, first, last, SimpleNamespace(agent_answer=answer or None))

    async def _fulfilled(self, played: Played, last: Any, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Training tasks of the same apps that this end fulfils and its start did not, those with most conditions first."""
        found, instructions = [], set()
        for name in self._others(played):
            for seed in range(asked["seed"], asked["seed"] + asked["draws"]):
                fitting = await self._fits(name, seed, played, last, asked)
                if fitting is not None and fitting["instruction"] not in instructions:
                    instructions.add(fitting["instruction"])
                    found.append(fitting)
                    break
        return sorted(found, key=lambda each: -each["conditions"])[:MOST_FULFILLED]

    def _others(self, played: Played) -> Iterator[str]:
        """Training tasks of the suites of the same apps, none of which touches another app."""
        own = set(played.task.apps)
        near = {*own, played.name.partition(".")[0]}
        for name in self._splits["train"]:
            if name.partition(".")[0] in near and set(self._apps_of(name) or ("?",)) <= own:
                yield name

    def _apps_of(self, name: str) -> tuple[str, ...]:
        if name not in self._apps:
            self._apps[name] = tuple(self._describe(name, "train", "form").get("apps", ()))
        return self._apps[name]

    async def _fits(
        self, name: str, seed: int, played: Played, last: Any, asked: dict[str, Any]
    ) -> dict[str, Any] | None:
        """A draw of another task, where this end fulfils it; whatever it lacks without its own set-up, it is none then."""
        with told_failure():
            task = self._fitted(name, seed, played, asked["language"])
            if not self._could(task, played, last, asked["answer"]):
                return None
            answer, mode = asked["answer"], played.mode
            ends = [await self._verdict(task, played.first, end, answer, mode) for end in (last, played.first)]
            if any(getattr(found, "judge_error", None) for found in ends) or not ends[0].passed or ends[1].passed:
                return None
            told = {"task": name, "seed": seed, "instruction": str(task.description)}
            return {**told, "conditions": len(ends[0].issues)}
        return None

    def _fitted(self, name: str, seed: int, played: Played, language: str) -> Any:
        """A draw of a task for the state that an episode began with."""
        task = self._make(name, seed, language)
        task._env_state = played.first.state
        if task.sampler is not None:
            task.params.update(task.sampler.sample(played.first.state, task=task).params)
        return task

    def _could(self, task: Any, played: Played, last: Any, answer: str | None) -> bool:
        """Whether its goals hold, before two whole states are compared for what else changed."""
        if played.mode == "grounded" and getattr(task, "answer_fields", None):
            return bool(last.state.get("apps", {}).get("answer_sheet", {}).get("submitted"))
        return self._reached(task, played.first, last, answer)


def _fitting_lines(instruction: str, lines: list[str]) -> list[str]:
    """Lines that have something in common with what is asked, those with most of it first."""
    pairs = {instruction[at : at + 2] for at in range(len(instruction) - 1)}
    shared = {line: sum(line[at : at + 2] in pairs for at in range(len(line) - 1)) for line in lines}
    return sorted((line for line in lines if shared[line] >= SHARED_PAIRS), key=lambda line: -shared[line])


def is_named(name: str, names: list[str]) -> bool:
    """Whether a task is among these, by its name or by its app's."""
    return name in names or name.partition(".")[0] in names


def mode_of(answers: str) -> str:
    """MobileGym's own name for how questions are answered."""
    return "grounded" if answers == "form" else "text"


def english_of(task: Any) -> int | None:
    """Which of a task's wordings is English; None: none of them."""
    return next(
        (n for n, text in enumerate(task.templates or ()) if not any(letter >= "\u2e80" for letter in text)), None
    )


def report_of(found: Any) -> dict[str, Any]:
    """A verdict as it is told to the other side."""
    if getattr(found, "judge_error", None):
        raise RuntimeError(f"its judge failed: {found.judge_error}")
    missing = [str(one.get("field") or one.get("reason") or "?") for one in found.issues if not one.get("passed")]
    return {
        "passed": bool(found.passed),
        "success": bool(found.success),
        "progress": float(found.progress),
        "missing": [name[:MOST_WORDS] for name in missing[:MOST_NAMED]],
        "changes": [str(one.get("field"))[:MOST_WORDS] for one in found.warnings[:MOST_NAMED]],
    }


class Told:
    """Why some code of the package failed; empty: it did not."""

    why = ""


@contextmanager
def told_failure() -> Iterator[Told]:
    """Ends a block that calls code of the package where that raises, and says why."""
    told = Told()
    try:
        yield told
    except Exception as error:  # the package may raise anything, and whoever asked has to hear of it
        traceback.print_exc()
        told.why = " ".join(f"{type(error).__name__}: {error}".split())[:300] or "it failed"


class Lines:
    """The two pipes: requests in, answers and questions out."""

    def __init__(self, out: Any) -> None:
        self._out, self._number = out, 0
        self._asked: dict[int, asyncio.Future[Any]] = {}

    def say(self, told: dict[str, Any]) -> None:
        """One line."""
        self._out.write(json.dumps(told) + "\n")
        self._out.flush()

    async def ask(self, to: int, what: str, **more: Any) -> Any:
        """What the other side answers to a question; RuntimeError where that failed."""
        self._number += 1
        answer = self._asked[self._number] = asyncio.get_running_loop().create_future()
        self.say({"ask": what, "for": to, "number": self._number, **more})
        told = await answer
        if "error" in told:
            raise RuntimeError(str(told["error"]))
        return told.get("value")

    def hear(self, told: dict[str, Any]) -> None:
        """An answer of the other side."""
        answer = self._asked.pop(told["told"], None)
        if answer is not None and not answer.done():
            answer.set_result(told)


async def answer(bridge: Bridge, lines: Lines, asked: dict[str, Any]) -> Any:
    """What one request comes to."""
    to = asked["to"]

    async def ask(what: str, **more: Any) -> Any:
        return await lines.ask(to, what, **more)

    match asked["do"]:
        case "tasks":
            return bridge.tasks(asked["answers"], asked["names"], asked["leave_out"])
        case "setup":
            return await bridge.setup(ask, asked)
        case "moment":
            return await bridge.moment(ask, asked)
        case "judge":
            return await bridge.judge(ask, asked)
        case "forget":
            return bridge.forget(asked["phone"])
    raise ValueError(f"no request is called {asked['do']!r}")


async def attempt(bridge: Bridge, lines: Lines, asked: dict[str, Any]) -> None:
    """Answer one request; the package may raise anything, and whoever asked has to hear of it."""
    with told_failure() as failed:
        lines.say({"to": asked["to"], "answer": await answer(bridge, lines, asked)})
    if failed.why:
        lines.say({"to": asked["to"], "error": failed.why})


async def serve(bridge: Bridge, lines: Lines) -> None:
    """Answer until stdin ends."""
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        told = json.loads(line)
        if "told" in told:
            lines.hear(told)
        else:
            task = asyncio.create_task(attempt(bridge, lines, told))
            running.add(task)
            task.add_done_callback(running.discard)
    if running:  # what asks nothing of a phone can still be answered
        await asyncio.wait(running, timeout=1.0)


def end_with_owner() -> None:
    """End this process once its owner is gone, however that ended: a task's own code may be in an endless loop, which reads no stdin."""
    owner = os.getppid()
    while os.getppid() == owner:
        time.sleep(OWNER_POLL_S)
    os._exit(1)


def main() -> None:
    """Load the clone's package and serve."""
    threading.Thread(target=end_with_owner, daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # what the package prints must not get between the answers
        lines = Lines(out)
        with told_failure() as failed:
            bridge = Bridge(Path(sys.argv[1]))
        if failed.why:
            return lines.say({"ready": False, "error": failed.why})
        lines.say({"ready": True})
        asyncio.run(serve(bridge, lines))


if __name__ == "__main__":
    main()
