"""Set-up and verdict, in both ways of answering a question."""

from typing import Any

from bench_env.task.judge import JudgeInput, JudgeResult


class Controller:
    @staticmethod
    async def setup(env: Any, task: Any, eval_mode: str) -> tuple[Any, dict[str, Any]]:
        first = await task.setup(env)
        if eval_mode == "grounded" and task.answer_fields:
            await env.set_state({"apps": {"sheet": {"fields": task.answer_fields, "submitted": False}}}, deep=True)
            task.suffix = " Then hand the answer in."
        return first, task.params


class Evaluator:
    def __init__(self, judge_mode: str, eval_mode: str) -> None:
        assert judge_mode == "state"
        self._eval_mode = eval_mode

    async def evaluate(self, task: Any, init_obs: Any, last_obs: Any, exec_result: Any) -> JudgeResult:
        print("a line that is none of the bridge's")
        return task.evaluate(JudgeInput(init_obs, last_obs, exec_result.agent_answer))
