"""What judges take and give."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class JudgeInput:
    init_obs: Any
    last_obs: Any
    answer: str | None = None


@dataclass
class JudgeResult:
    success: bool
    clean: bool
    progress: float
    issues: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    judge_error: str | None = None

    @property
    def passed(self) -> bool:
        return self.success and self.clean
