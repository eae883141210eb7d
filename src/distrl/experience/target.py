"""A second place for episodes and pictures: a folder on a network disk, or any file system of fsspec (S3, GCS, SFTP, …).

    <target>/<run>/episodes/<id>.ep · <target>/<run>/frames/<hash>.jpg or .png

The run folder keeps the index and its own copies; what is acknowledged is durable here first. Files are written once, whole, under a name that
says what they are, so nothing needs a database, a lock or a hard link there. A file that broke off is written again before its
episode is acknowledged, and its checksum tells it from a whole one.

On a mounted disk a file is written beside its name, synced and renamed. Elsewhere it is put in one call, and has to have its size after.
A target that does not answer is a `StoreBusy`: whoever stores tries again. One that refuses is a `StoreError` with the fix.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from distrl.errors import ConfigError, StoreBusy, StoreError, raised_as
from distrl.experience.durable import replace
from distrl.threads import in_thread

CHECK_S = 25.0
"""How long a target may take to take a file, give it back and remove it, before a run begins."""
AT_ONCE = 8
"""Files that are on their way at the same time."""
MOUNTED = ("", "file", "local")


class Target:
    """Immutable files by name at one place."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        scheme, _, rest = self.url.rpartition("://")
        self._folder = Path(rest) if scheme in MOUNTED else None
        self._made: set[str] = set()

    def below(self, name: str) -> Target:
        """The place of this name inside it."""
        return Target(f"{self.url}/{name}")

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """The file system of fsspec, and the path in it."""
        try:
            core: Any = importlib.import_module("fsspec.core")
            system, path = core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"run.storage = {self.url}: {str(error)[:300]}",
                expected="a folder, or a URL of a file system that fsspec knows here",
                fix="pip install the package that it names (s3fs for s3://, gcsfs for gs://, paramiko for sftp://)",
            ) from error
        return system, str(path)

    def put_all(self, files: Mapping[str, bytes]) -> None:
        """Have these files there, durably."""
        if len(files) <= 1:
            for name, content in files.items():
                self._put(name, content)
            return
        with ThreadPoolExecutor(min(AT_ONCE, len(files)), thread_name_prefix="target") as pool:
            list(pool.map(self._put, files.keys(), files.values()))

    def _put(self, name: str, content: bytes) -> None:
        with raised_as(lambda error: self._failure(error, f"write {name}")):
            if self._folder is not None:
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                replace(path, content)
                return
            system, root = self._system
            there = f"{root}/{name}"
            self._make_parent(system, there.rpartition("/")[0])
            system.pipe_file(there, content)
            size = int(system.info(there)["size"])
        if size != len(content):
            raise StoreBusy(f"{self.url}/{name} has {size} bytes of {len(content)}", fix="look at the target's disk")

    def _make_parent(self, system: Any, parent: str) -> None:
        if parent not in self._made:
            system.makedirs(parent, exist_ok=True)
            self._made.add(parent)

    def get(self, name: str) -> bytes:
        """A file's content; `StoreError` where it is not there."""
        with raised_as(lambda error: self._failure(error, f"read {name}")):
            if self._folder is not None:
                return (self._folder / name).read_bytes()
            system, root = self._system
            return bytes(system.cat_file(f"{root}/{name}"))

    def names(self, folder: str) -> list[str]:
        """The files in one of its folders, in order; none where there is no such folder."""
        with raised_as(lambda error: self._failure(error, f"list {folder}")):
            if self._folder is not None:
                return sorted(path.name for path in (self._folder / folder).glob("[!.]*"))
            system, root = self._system
            system.invalidate_cache()
            if not system.exists(f"{root}/{folder}"):
                return []
            return sorted(str(path).rpartition("/")[2] for path in system.find(f"{root}/{folder}"))

    def remove(self, name: str) -> None:
        """Forget a file."""
        with raised_as(lambda error: self._failure(error, f"remove {name}")):
            if self._folder is not None:
                (self._folder / name).unlink(missing_ok=True)
                return
            system, root = self._system
            system.rm_file(f"{root}/{name}")

    def _failure(self, error: BaseException, what: str) -> StoreError:
        """What the target said: that it refuses, or that it did not answer."""
        said = f"run.storage: cannot {what} at {self.url}: {type(error).__name__}: {str(error)[:300]}"
        if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
            return StoreError(said, expected="the right to write there", fix=_CREDENTIALS)
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | FileExistsError):
            return StoreError(
                said, expected="a bucket or folder that is there", fix="make it, or choose another --run.storage"
            )
        return StoreBusy(
            said,
            expected="a target that answers",
            fix="look at the network and at the target; or --run.storage for another",
        )


_CREDENTIALS = "give this machine its credentials in the environment (AWS_ACCESS_KEY_ID and so on), or choose another --run.storage"


def check_target(url: str, *, deadline_s: float = CHECK_S) -> None:
    """Write a file there, read it back and remove it; `ConfigError` with the fix where that fails or takes too long."""
    refuse_address(url)
    try:
        in_thread(lambda: _try(Target(url)), name="check-storage").result(timeout=deadline_s)
    except TimeoutError:
        raise ConfigError(
            f"run.storage = {url} did not answer within {deadline_s:g} s",
            expected="a place that takes a file, gives it back and removes it",
            fix="look at the network and at the target; or leave run.storage empty, which keeps episodes in the run folder",
        ) from None
    except StoreError as error:
        raise ConfigError(error.seen, expected=error.expected, fix=error.fix) from error


def refuse_address(url: str) -> None:
    """Raise where an address holds a password, which would stand in the run folder, or depends on where a process was started."""
    scheme, _, rest = url.rpartition("://")
    if scheme in MOUNTED and not rest.startswith("/"):
        raise ConfigError(
            f"run.storage = {url} depends on the folder that a process was started in",
            expected="a path from the root, or a URL",
            fix=f"--run.storage {Path(rest).resolve()}",
        )
    if urlsplit(url).password is not None:
        raise ConfigError(
            "run.storage holds a password", expected="an address without one", fix="give credentials in the environment"
        )


def _try(target: Target) -> None:
    name, content = f"probe-{uuid4().hex}", os.urandom(32)
    target.put_all({name: content})
    found = target.get(name)
    target.remove(name)
    if found != content:
        raise StoreError(f"{target.url} gave back other bytes than were written", expected="a file as it was written")


def verified(reference: str, picture: bytes) -> bool:
    """Whether a picture is the one that its reference names."""
    return reference == f"sha256:{sha256(picture).hexdigest()}"
