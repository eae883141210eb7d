"""For all tests: examples may take as long as a busy machine needs, because tests do not time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("distrl", deadline=None)
settings.load_profile("distrl")
