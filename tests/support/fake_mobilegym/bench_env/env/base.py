"""What a judge is given of one moment."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Observation:
    state: dict[str, Any] = field(default_factory=dict)
    route: dict[str, Any] = field(default_factory=dict)
