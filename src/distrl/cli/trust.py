"""`--trust-code`: the user's word that what a run folder names may run (`runtime.trust`)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distrl.config.schema import Config
    from distrl.runtime.run_folder import RunFolder


def add_trust_flag(parser: argparse.ArgumentParser) -> None:
    """Declare `--trust-code`."""
    text = "use what the run's config.toml names: plug-ins, code beside a model, programs, a judge's address; read it first"
    parser.add_argument("--trust-code", action="store_true", help=text)


def trusted_config(folder: RunFolder, *, trusted: bool) -> Config:
    """The settings of a run; `UsageError` where they name code and nobody said to trust it."""
    from distrl.runtime.trust import refuse_code

    config = folder.config()
    if not trusted:
        refuse_code(config, str(folder.config_file))
    return config


def trust_for(config: Config) -> str:
    """What a command on a run with these settings needs besides: the flag, or nothing."""
    from distrl.runtime.trust import FLAG, code_of

    return f" {FLAG}" if code_of(config) else ""
