"""A few tasks on the one app of the page."""

from random import Random
from typing import Any

from bench_env.task.judge import JudgeInput, JudgeResult


class Drawn:
    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params


class Sampler:
    def __init__(self, values: dict[str, tuple[str, ...]], seed: int) -> None:
        self._values, self._random = values, Random(seed)

    def sample(self, state: dict[str, Any], task: Any) -> Drawn:
        assert set(state) >= {"apps", "os"}
        return Drawn({name: self._random.choice(values) for name, values in self._values.items()})


class Task:
    apps, difficulty, values, answer_fields, touches, suffix = ["demo"], "L1", {}, None, (), ""
    _template_index = 0

    def __init__(self, _seed: int) -> None:
        self.params: dict[str, Any] = {}
        self.sampler = Sampler(self.values, _seed)

    @property
    def description(self) -> str:
        return self.templates[self._template_index].format(**self.params) + self.suffix

    async def setup(self, env: Any) -> Any:
        with env.stopwatch.phase("all of it"):
            await env.reset(app_ids=self.apps)
            await env.open_app(self.apps[0], wait_stable=True)
            state = await env.get_state(required_apps=self.apps)
            self.params.update(self.sampler.sample(state, task=self).params)
            await self.prepare(env)
        return await env.get_observation()

    async def prepare(self, env: Any) -> None:
        pass

    def evaluate(self, judged: JudgeInput) -> JudgeResult:
        checks = self.check_goals(judged)
        first, last = judged.init_obs.state["apps"]["demo"], judged.last_obs.state["apps"]["demo"]
        changed = [name for name in last if last[name] != first.get(name) and name not in self.touched()]
        good = sum(check["passed"] for check in checks)
        return JudgeResult(
            good == len(checks), not changed, good / len(checks), checks, [{"field": name} for name in changed]
        )

    def touched(self) -> tuple[str, ...]:
        return self.touches


class TurnOn(Task):
    templates, values = ["打开{what}", "Turn {what} on"], {"what": ("wifi", "dark", "sound")}

    def check_goals(self, judged: JudgeInput) -> list[dict[str, Any]]:
        return [
            {"field": self.params["what"], "passed": judged.last_obs.state["apps"]["demo"][self.params["what"]] is True}
        ]

    def touched(self) -> tuple[str, ...]:
        return (self.params["what"],)


class SetName(Task):
    templates, difficulty, touches = ["把名字改成{name}"], "L2", ("name",)
    values = {"name": ("小明", "Ada")}

    def check_goals(self, judged: JudgeInput) -> list[dict[str, Any]]:
        return [{"field": "name", "passed": judged.last_obs.state["apps"]["demo"]["name"] == self.params["name"]}]


class CountNotes(Task):
    templates, answer_fields = ["有几条笔记？", "How many notes are there?"], [{"type": "number", "label": "notes"}]

    def check_goals(self, judged: JudgeInput) -> list[dict[str, Any]]:
        wanted = str(len(judged.init_obs.state["apps"]["demo"]["notes"]))
        return [{"field": "answer", "passed": judged.answer is not None and judged.answer.strip() == wanted}]


class Counts(CountNotes):
    async def prepare(self, env: Any) -> None:
        said = await env.page.evaluate(
            "(more) => { __SIM__.setState({apps: {demo: {notes: more}}}); return more.length; }", ["a", "b", "c"]
        )
        assert said == 3


class Raises(Task):
    templates = ["这个任务需要数据"]

    async def prepare(self, env: Any) -> None:
        raise FileNotFoundError("notes.json")


class Solved(TurnOn):
    templates = ["什么都不用做"]
    difficulty = "L2"

    async def prepare(self, env: Any) -> None:
        await env.set_state({"apps": {"demo": {self.params["what"]: True}}})


class StaysOff(TurnOn):
    """Holds at every start: in hindsight, it is no achievement."""

    templates = ["别打开{what}", "Leave {what} off"]

    def check_goals(self, judged: JudgeInput) -> list[dict[str, Any]]:
        what = self.params["what"]
        return [{"field": what, "passed": judged.last_obs.state["apps"]["demo"][what] is False}]


class ReadsName(Task):
    templates, answer_fields = ["名字现在写的是谁？", "Whose name is there?"], [{"type": "text", "label": "name"}]

    async def prepare(self, env: Any) -> None:
        await env.set_state({"apps": {"demo": {"notes": ["milk", "the name is nobody"]}}})

    def check_goals(self, judged: JudgeInput) -> list[dict[str, Any]]:
        return [{"field": "answer", "passed": "nobody" in (judged.answer or "")}]
