"""Android's SDK as far as emulators need it: its programs, KVM, system images and virtual devices (AVDs).

Programs are found in the folder that the settings name, in ANDROID_HOME or ANDROID_SDK_ROOT, in the usual place of Android
Studio, or on the path. Whether they work is tried by running them, each with a deadline.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from distrl.config.kinds import EmulatorConfig
from distrl.errors import DeviceError

KVM = Path("/dev/kvm")
LIST_S, CREATE_S, VERSION_S = 30.0, 120.0, 20.0
NO_ACCELERATION = ("-no-accel", "-accel")
"""Arguments of the emulator that say what to do without KVM."""
GET_SDK = (
    "unpack Android's command-line tools into SDK/cmdline-tools/latest, run `sdkmanager emulator platform-tools "
    "'system-images;android-34;google_apis;x86_64'`, and set ANDROID_HOME or devices.android.emulator.sdk to SDK"
)


class Sdk(msgspec.Struct, frozen=True, kw_only=True):
    """Where the programs are."""

    root: Path
    emulator: str
    avdmanager: str
    """Empty where there is none: existing AVDs can be started all the same."""

    @property
    def environment(self) -> dict[str, str]:
        """What its programs see: both names of the SDK, for each of them reads another one."""
        return {**os.environ, "ANDROID_HOME": str(self.root), "ANDROID_SDK_ROOT": str(self.root)}

    def images(self) -> list[str]:
        """The system images that are installed, as sdkmanager names them."""
        found = (self.root / "system-images").glob("*/*/*")
        return sorted(";".join(path.relative_to(self.root).parts) for path in found if path.is_dir())

    async def version(self) -> str:
        """What the emulator program says of itself; `DeviceError` where it does not run."""
        code, said = await _run(self, self.emulator, "-version", deadline_s=VERSION_S)
        lines = [line.strip() for line in said.splitlines() if "version" in line.lower()]
        if code or not lines:
            raise DeviceError(f"`{self.emulator} -version` ended with {code}: {said.strip()[-200:]}", fix=GET_SDK)
        return lines[0].removeprefix("INFO    |").strip()

    async def avds(self) -> list[str]:
        """The AVDs that the emulator program can start."""
        code, said = await _run(self, self.emulator, "-list-avds", deadline_s=LIST_S)
        if code:
            raise DeviceError(f"`emulator -list-avds` ended with {code}: {said.strip()[-200:]}", fix=GET_SDK)
        return [line.strip() for line in said.splitlines() if line.strip() and " " not in line.strip()]

    async def create(self, avd: str, settings: EmulatorConfig) -> None:
        """Make an AVD from the system image of the settings, and see that the emulator knows it."""
        self.check_image(settings.image)
        if not self.avdmanager:
            raise DeviceError(f"there is no program 'avdmanager' in {self.root}", fix=GET_SDK)
        words = ["create", "avd", "--name", avd, "--package", settings.image]
        words += ["--device", settings.device] if settings.device else []
        # It asks whether to make a hardware profile of one's own.
        code, said = await _run(self, self.avdmanager, *words, deadline_s=CREATE_S, answer=b"no\n")
        if code or avd not in await self.avds():
            raise DeviceError(
                f"avdmanager did not create {avd} (exit code {code}): {' '.join(said.split())[-300:]}",
                expected="an AVD that `emulator -list-avds` shows",
                fix=f"{self.avdmanager} {' '.join(words[:4])} --package '{settings.image}'; see `avdmanager list device`",
            )

    def check_image(self, image: str) -> None:
        """`DeviceError` where a system image is not installed."""
        installed = self.images()
        if image not in installed:
            raise DeviceError(
                f"there is no system image {image!r} in {self.root}",
                expected=f"one of {', '.join(installed)}" if installed else "an installed system image",
                fix=f"sdkmanager '{image or 'system-images;android-34;google_apis;x86_64'}'",
            )


def find_sdk(settings: EmulatorConfig) -> Sdk:
    """The SDK, or `DeviceError` with how to get one."""
    for root in _roots(settings):
        if os.access(program := root / "emulator" / "emulator", os.X_OK):
            return Sdk(root=root, emulator=str(program), avdmanager=_avdmanager(root))
    on_path = "" if settings.sdk else shutil.which("emulator")
    if not on_path:
        looked = ", ".join(str(root / "emulator" / "emulator") for root in _roots(settings))
        raise DeviceError(
            f"there is no program 'emulator': looked for {looked}{' and on the path' * (not settings.sdk)}",
            expected="the emulator of Android's SDK",
            fix=GET_SDK,
        )
    root = Path(on_path).resolve().parent.parent
    return Sdk(root=root, emulator=on_path, avdmanager=_avdmanager(root))


def _roots(settings: EmulatorConfig) -> Iterator[Path]:
    if settings.sdk:
        yield Path(settings.sdk).expanduser()
        return
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        if root := os.environ.get(variable):
            yield Path(root)
    yield Path.home() / "Android" / "Sdk"


def _avdmanager(root: Path) -> str:
    folders = [root / "cmdline-tools/latest/bin", *sorted(root.glob("cmdline-tools/*/bin"), reverse=True)]
    for folder in [*folders, root / "tools/bin"]:
        if os.access(folder / "avdmanager", os.X_OK):
            return str(folder / "avdmanager")
    return shutil.which("avdmanager") or ""


def check_kvm(path: Path = KVM) -> str:
    """That KVM can be used, by opening it; `DeviceError` with the fix where it cannot."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        there = path.exists()
        raise DeviceError(
            f"{path} cannot be opened: {error.strerror}",
            expected="KVM, without which an emulator takes minutes for a screen",
            fix="add yourself to its group: sudo gpasswd -a $USER kvm, then log in again"
            if there
            else "turn virtualisation on (BIOS, or nested for a virtual machine); in a container give --device /dev/kvm",
        ) from None
    return f"{path} opens for reading and writing"


async def _run(sdk: Sdk, program: str, *words: str, deadline_s: float, answer: bytes | None = None) -> tuple[int, str]:
    """Exit code and output of one of the SDK's programs."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *words,
            stdin=asyncio.subprocess.DEVNULL if answer is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=sdk.environment,
        )
    except OSError as error:
        raise DeviceError(f"{program} does not run: {error.strerror or error}", fix=GET_SDK) from None
    try:
        async with asyncio.timeout(deadline_s):
            said, _ = await process.communicate(answer)
    except TimeoutError:
        raise DeviceError(f"`{program} {words[0]}` took over {deadline_s:g} s", fix="run it yourself") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode(errors="replace")
