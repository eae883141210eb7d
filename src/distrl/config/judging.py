"""Settings of task lists, other people's tasks and judges: `[tasks.list]`, `[tasks.android_world]`, `[tasks.mobilegym]`, `[judge.model]`, `[judge.ensemble]`."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from distrl.config.kinds import Few, NotNegative, Seconds, Section, Some, SomeOrNone
from distrl.errors import ConfigError


class ListConfig(Section, frozen=True):
    """Tasks from files of instructions: `[tasks.list]`."""

    path: str = ""
    """File of instructions, one a line: the training tasks where `test_path` is given, else the tasks of all splits."""
    test_path: str = ""
    """File of test instructions; empty: the text of an instruction decides its split."""
    tune_path: str = ""
    """File of instructions for evaluations on the way; empty: with `test_path`, a tenth of the training file, chosen by the text."""
    format: Literal["auto", "txt", "jsonl"] = "auto"
    """Plain text, or a JSON object a line (`instruction`, and `criterion`, `template`, `setup`, `check`, `max_steps` as wanted); auto: by the name of the file."""
    overlap: Literal["refuse", "leave_out", "allow"] = "refuse"
    """Where files share instructions: refuse them, leave out of training and tuning what is tested, or allow it."""
    stop: tuple[str, ...] = ()
    """Android packages that are stopped before each task."""
    clear: tuple[str, ...] = ()
    """Android packages whose data are deleted before each task."""
    settings: tuple[str, ...] = ()
    """Android settings before each task, such as global/airplane_mode_on=0."""
    open: str = ""
    """Package, package/activity or URL that is opened last before each task; empty: the home screen."""
    criterion: str = ""
    """What the model that judges must see at the end, in words; empty: the instruction says it."""
    max_steps: Few = 20
    """Steps that an attempt may take."""


class AndroidWorldConfig(Section, frozen=True):
    """AndroidWorld's tasks: `[tasks.android_world]`."""

    python: str = ""
    """The Python that has AndroidWorld's package, such as that of its own environment; empty: the one that runs distrl."""
    names: tuple[str, ...] = ()
    """Tasks by name, such as ContactsAddContact; empty: all of them."""
    instances: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Instances of each task and split; their parameters are drawn."""
    seed: SomeOrNone = 30
    """Of the test tasks, as AndroidWorld's own runner has it; training and tuning tasks are of the next two."""


class MiniWobConfig(Section, frozen=True):
    """Tasks of MiniWoB++: `[tasks.miniwob]`."""

    tasks: tuple[str, ...] = ()
    """Names of its pages, such as click-tab; empty: all that a phone's gestures can express."""
    train_seeds: Annotated[int, Meta(ge=1, le=100_000)] = 500
    """Instances of each to train on."""
    test_seeds: Annotated[int, Meta(ge=1, le=10_000)] = 50
    """Instances of each that are held out: as many to tune by, and as many to test on."""


class MobileGymConfig(Section, frozen=True):
    """MobileGym's tasks: `[tasks.mobilegym]`."""

    url: str = ""
    """Address of MobileGym's page as you serve it, such as http://127.0.0.1:4173/; phones may go to its origin."""
    folder: str = ""
    """Folder of your clone, with bench_env in it, whose Python code is run."""
    python: str = ""
    """The Python that has what bench_env/requirements.txt names; empty: the one that runs distrl."""
    names: tuple[str, ...] = ()
    """Tasks by name, such as alipay.EnableDarkMode, or by app, such as alipay; empty: all of both splits."""
    levels: tuple[Literal["L1", "L2", "L3", "L4"], ...] = ()
    """Levels that are kept; empty: all."""
    leave_out: tuple[str, ...] = ()
    """Tasks that are left out by name, such as those that `distrl tasks check` finds."""
    language: Literal["zh", "en"] = "zh"
    """Wording; where a task has no English one, Chinese."""
    answers: Literal["form", "action"] = "form"
    """How questions are answered: in the form of an app on the phone, as MobileGym's own runner has it, or with the claim that ends an episode."""
    instances: Annotated[int, Meta(ge=1, le=1000)] = 20
    """Draws of each training task's parameters; a test task is drawn once."""
    seed: SomeOrNone = 0
    """Decides the parameters of test tasks as MobileGym's own loader does; training and tuning tasks are of other draws."""
    hindsight_draws: Annotated[int, Meta(ge=0, le=64)] = 4
    """Draws of each other training task of the app that the end of a failure is tried as, with `data.hindsight`; 0: none."""

    def __post_init__(self) -> None:
        if self.url and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", self.url):
            raise ConfigError(
                f"tasks.mobilegym.url = {self.url[:120]!r} is no address",
                expected="http:// or https://, a host and a port",
                fix="--tasks.mobilegym.url http://127.0.0.1:4173/",
            )


class WebAppsConfig(Section, frozen=True):
    """Tasks on web apps by others: `[tasks.webapps]`."""

    templates: tuple[str, ...] = ()
    """Templates by name, such as wiki.create, or by app, such as wiki; empty: all of them."""
    train_seeds: Annotated[int, Meta(ge=1, le=100_000)] = 200
    """Instances of each to train on."""
    test_seeds: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """Instances of each that are held out: as many to tune by, and as many to test on."""


ENV_NAME = re.compile(r"(?=.{1,16}$|.*_)[A-Z_][A-Z0-9_]{0,80}")
"""A long one without _ is more likely a key: some are of capitals and digits alone."""


class ModelJudgeConfig(Section, frozen=True):
    """A vision-language model as the judge: `[judge.model]`."""

    url: str = ""
    """Address of an OpenAI-compatible API, such as http://127.0.0.1:8000/v1; empty: there is none."""
    model: str = ""
    """Name of the model at that address."""
    key_env: str = "DISTRL_JUDGE_KEY"
    """Environment variable that holds the API key; empty: the endpoint takes none. The key itself is written nowhere."""
    screens: Annotated[int, Meta(ge=1, le=4)] = 2
    """Last screens that the model is shown."""
    pictures: bool = True
    """Show the screenshots of these screens, where the run keeps them (`rollout.keep_screenshots`)."""
    elements: bool = True
    """Show the text of their UI elements."""
    needs_claim: bool = True
    """An attempt that ends without a claim has failed, and costs no request; false: the model goes by its last screens, as DigiRL's and DistRL's judges do."""
    request_s: Seconds = 30.0
    """A request that takes longer has failed."""
    retries: Annotated[int, Meta(ge=0, le=20)] = 4
    """Further requests after one that failed, within `judge.deadline_s`; 0: none."""
    backoff_s: Seconds = 1.0
    """Wait before the first retry, about; doubles with each, and is longer where the endpoint asks for it (Retry-After)."""
    per_minute: SomeOrNone = 0
    """Most requests a minute of one process (each worker and the evaluator are one), evenly spaced; 0: no limit."""
    cache: SomeOrNone = 1024
    """Verdicts that a process remembers by task, claim and screens, so that it asks once; 0: none."""
    answer_tokens: Some = 300
    """Longest answer."""
    body: str = ""
    """JSON object with further fields of every request, such as {"seed": 1}; null removes one: {"max_tokens": null, "max_completion_tokens": 300}."""
    price_in: NotNegative = 0.0
    """Price of a million tokens that are read, in any currency, for the cost counter."""
    price_out: NotNegative = 0.0
    """Price of a million tokens that are written."""

    def __post_init__(self) -> None:
        _check_key_env(self.key_env)
        _check_url(self.url)
        _check_body(self.body)
        if not (self.pictures or self.elements):
            raise ConfigError(
                "judge.model shows the model neither screenshots nor elements",
                expected="one of them at least",
                fix="--judge.model.elements true, or --judge.model.pictures true",
            )


def _check_key_env(name: str) -> None:
    """Raise where the key itself was given by mistake; it is not repeated, since messages end up in logs."""
    if name and not ENV_NAME.fullmatch(name):
        raise ConfigError(
            f"judge.model.key_env is no name of an environment variable ({len(name)} characters, not shown)",
            expected="capital letters and digits in words joined by _, such as DISTRL_JUDGE_KEY; never the key itself",
            fix="export DISTRL_JUDGE_KEY=..., and leave key_env out",
        )


def _check_url(url: str) -> None:
    """Raise where an address is none, or could hold a secret, which `config.toml` would keep."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        plain = url.isascii() and url.isprintable() and " " not in url
        secret = parts.username is not None or bool(parts.query or parts.fragment)
    except ValueError:
        known = plain = secret = False
    if not (known and plain) or secret:
        what = "may hold a secret (user, query or fragment)" if secret else "is no address of an API"
        raise ConfigError(
            f"judge.model.url {what} ({len(url)} characters, not shown)",
            expected="http:// or https://, a host and a path, such as http://127.0.0.1:8000/v1",
            fix="leave user, query and fragment out; a key goes into the environment variable of judge.model.key_env",
        )


def _check_body(body: str) -> None:
    try:
        fits = not body or isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        fits = False
    if not fits:
        raise ConfigError(
            f"judge.model.body is no JSON object ({len(body)} characters)",
            expected="further fields of every request",
            fix="""judge.model.body = '{"seed": 1}'""",
        )


class EnsembleConfig(Section, frozen=True):
    """Several judges that vote: `[judge.ensemble]`."""

    judges: tuple[str, ...] = ()
    """Built-in judges, two or more, such as android and model."""
    rule: Literal["all", "majority", "any"] = "majority"
    """How many of them must say success: all, more than half, or one."""
    unknown: Literal["keep", "leave_out"] = "keep"
    """A judge without a verdict: keep it as a vote that may have been either, so that the outcome is unknown where it could have decided; or leave it out, so that the others decide."""
