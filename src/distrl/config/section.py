"""What sections of a configuration are made of: strict frozen structs, and numbers that know their limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, Meta(gt=0.0)]
NotNegative = Annotated[float, Meta(ge=0.0)]
Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]
# A pattern comes with a description, which is what people are shown of it.
Processor = Annotated[str, Meta(pattern=r"^(cpu|auto|cuda(:\d+)?)$", description='"cpu", "auto", "cuda" or "cuda:N"')]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a configuration: an unknown key is an error."""
