"""distrl: train agents that operate phones, with workers and a learner that never wait for each other.

Importing it is cheap: torch, numpy and Pillow are loaded by what needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.env import PhoneEnv, make_env

__all__ = ["PhoneEnv", "__version__", "make_env"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load the Gymnasium environment on first use."""
    if name in ("PhoneEnv", "make_env"):
        from distrl import env

        return getattr(env, name)
    raise AttributeError(f"module 'distrl' has no attribute {name!r}")
