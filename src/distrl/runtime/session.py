"""A training run from start to summary: place the roles, supervise them, stop when the budget is used, sum up.

Which runtime places the roles is the caller's choice: a session depends on the `Runtime` protocol alone, and reaches
episodes, weights, claims and the budget through its transport. The folder has the lock, the settings and the summary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property

import msgspec

from distrl.config.load import config_of, worker_configs
from distrl.config.schema import Config, RunConfig
from distrl.devices.base import Clock
from distrl.errors import DeviceError, DistrlError, JudgeError
from distrl.evaluation.report import rate_of
from distrl.rollout.deadlines import verdicts_of_worker_s
from distrl.runtime.base import RoleStatus, Runtime, inference_names, role_names, worker_names
from distrl.runtime.placement import uses_gpu
from distrl.runtime.resume import adopt
from distrl.runtime.run_folder import RunFolder, disk_errors, take
from distrl.runtime.summary import Summary, last_lost, last_unjudged, summarise
from distrl.telemetry.events import EventLog
from distrl.telemetry.gpu import GpuMeter, GpuReading
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.base import BudgetUsed, StoreStats

SUPERVISE_S = 0.1
COUNT_EVERY_S = 1.0
WORKER_END_S = 120.0
"""Long enough for what waits to be stored on a slow disk; one that hangs falls silent and is noticed before."""
EVALUATOR_START_S = 300.0
"""Until an evaluation has begun; from then on it says itself how long it may take."""
LEARNER_END_S = 60.0
"""To take in what is left and to save; at least twice as long as a role may be silent, which an update may take."""
EVALUATIONS_AT_END = 2
"""That an evaluator may have to make once it is asked to finish: the one that is under way, and the last."""
INFERENCE_END_S = 15.0
"""An actor that decides for workers has nothing left to do once they have ended."""
NEEDED = ("learner", "evaluator")
"""Roles without whose good end something of the result is missing; what a worker has not stored is counted."""
LOCK_WAIT_S = 1.0
"""Enough for `distrl status` to have had its look at the lock."""


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment, for whoever watches."""

    run: RunFolder
    config: Config
    phase: str
    budget: BudgetUsed
    roles: list[RoleStatus]
    stats: StoreStats


Watch = Callable[[RunSnapshot], None]


class Session:
    """One sitting of a run: from start or resume to its end or interruption."""

    def __init__(
        self,
        run: RunFolder,
        config: Config,
        runtime: Runtime,
        watch: Watch,
        *,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run, self._config, self._runtime, self._watch = run, config, runtime, watch
        self._clock, self._sleep = clock, sleep
        self._transport = runtime.transport
        self._before = self._transport.budget.read()
        self._started_s = self._clock()
        self._collect_s = 0.0
        self._collecting_since_s: float | None = None
        self._lacking_since_s: float | None = None
        """Since when no worker has a device; None: one has, or nobody knows yet."""
        self._given_up: DistrlError | None = None
        """Why collecting ended before its budget was used up."""
        self._device_times_s: tuple[float, float] | None = None
        self._phase = "starting"
        self._saved_s = self._counted_s = 0.0
        self._counted: StoreStats | None = None
        self._cut_off: dict[str, str] = {}
        """Roles that did not come to a good end, and why."""
        self._gpu: GpuMeter | None = None
        self._gpu_utilisation: float | None = None
        self.interrupted = False
        """Set from outside to finish and save before the budget is spent."""

    def train(self) -> Summary:
        """Run to the end of the budget, or until `interrupted`, and sum up."""
        lock = take(self._run.lock("supervisor"), wait_s=LOCK_WAIT_S, what=f"{self._run.path}")
        try:
            with ExitStack() as ending, disk_errors(self._run.path):
                ending.push(self._note_error)
                self._check_report()
                adopt(self._run, self._config)
                self._log.write("session")
                self._gpu = GpuMeter(self._note_gpu) if uses_gpu(self._config) else None
                self._run_roles()
                summary = summarise(
                    self._run,
                    self._config,
                    self.budget(),
                    self._transport,
                    interrupted=self.interrupted,
                    cut_off=self._missing(),
                    gpu_utilisation=self._gpu_utilisation,
                )
                if self._given_up is not None:
                    raise self._given_up
                return summary
        finally:
            if self._gpu is not None:
                self._gpu.close()
            self._transport.close()
            lock.release()

    @cached_property
    def _log(self) -> EventLog:
        """Opened on first use, with the run's lock."""
        return EventLog(self._run.log("supervisor"))

    @cached_property
    def _metrics(self) -> EventLog:
        return EventLog(self._run.metrics)

    def _check_report(self) -> None:
        """Raise now where the figure to compare with is damaged, and not after hours of training."""
        before = self._transport.reports.read("before")
        if before is not None:
            rate_of(before, source=str(self._run.evaluations / "before.json"))

    def _note_error(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Write down why the session ended, for `distrl status`; on a full disk, as far as that is possible."""
        if not isinstance(error, Exception | KeyboardInterrupt):
            return
        words = str(error) if isinstance(error, DistrlError) else f"{type(error).__name__}: {error}"
        why = "Ctrl-C, twice" if isinstance(error, KeyboardInterrupt) else words.splitlines()[0]
        with suppress(OSError):
            self._log.write("ended", why=why)

    def _missing(self) -> str:
        """What does not belong to the end of a run as it should, and why; empty: all is there."""
        found = [f"the {role} was cut off: {why}" for role, why in self._cut_off.items()]
        if not found and not self.interrupted and self._has_weights() and not self._transport.reports.has("after"):
            found = ["the evaluator ended without its last report: read logs/evaluator.jsonl"]
        return "; ".join(found)

    def _run_roles(self) -> None:
        workers = worker_names(self._config)
        self._transport.episodes.recover()
        self._transport.forget_claims()  # of an earlier session
        try:
            self._runtime.start(role_names(self._config))
            self._collect()
            self._wind_down(workers)
        finally:
            self._runtime.stop()
            self._save()

    def _note_gpu(self, reading: GpuReading) -> None:
        figures = {"gpu/utilisation": reading.utilisation, "gpu/memory_mb": reading.memory_mb}
        self._metrics.write("gpu", role="supervisor", **figures)

    def budget(self) -> BudgetUsed:
        """What the run has used, earlier sessions included."""
        busy_s, device_s = self._device_times_s or self._device_times()
        collected_s = self._collected_s()
        return BudgetUsed(
            wall_s=self._before.wall_s + self._clock() - self._started_s,
            collect_s=self._before.collect_s + collected_s,
            busy_s=self._before.busy_s + busy_s,
            device_s=self._before.device_s + device_s,
            restarts=self._before.restarts + self._runtime.restarts(),
        )

    def _device_times(self) -> tuple[float, float]:
        """For how long devices were busy, and were there: as many as were asked for, where no worker says how many it has."""
        return self._runtime.busy_s(), self._runtime.device_s() or self._num_devices * self._collected_s()

    @cached_property
    def _num_devices(self) -> int:
        config = self._config
        return sum(config_of(config, worker).devices.per_worker for worker in worker_names(config))

    def _collected_s(self) -> float:
        since = self._collecting_since_s
        return self._collect_s + (self._clock() - since if since is not None else 0.0)

    def _collect(self) -> None:
        self._phase = "warming up"
        while not self.interrupted and not self._over() and self._given_up is None:
            self._count_time()
            self._given_up = self._waited_too_long() or self._lacks_verdicts()
            self._turn()
        self._device_times_s = self._device_times()
        self._gpu_utilisation = self._gpu.mean() if self._gpu is not None else None
        self._collect_s, self._collecting_since_s = self._collected_s(), None
        self._log.write("collected", collect_s=round(self._collect_s, 2))

    def _count_time(self) -> None:
        """Have the time of collecting pass from when a worker first plays, and stand still while no worker has a device."""
        if self._collecting_since_s is None and self._has_weights() and self._playing():
            if self._phase == "warming up":
                self._replace_results()
            self._collecting_since_s, self._phase = self._clock(), "training"
        elif self._collecting_since_s is not None and self._all_lack_devices():
            self._collect_s, self._collecting_since_s = self._collected_s(), None
            self._phase = "waiting for devices"

    def _waited_too_long(self) -> DeviceError | None:
        """The error of a run whose workers have had no device for `runtime.no_devices_s`; None: there is none."""
        limit_s, lacking = self._config.runtime.no_devices_s, self._all_lack_devices()
        self._lacking_since_s = (self._lacking_since_s or self._clock()) if lacking else None
        if not limit_s or self._lacking_since_s is None or self._clock() - self._lacking_since_s <= limit_s:
            return None
        lost = last_lost(self._run)
        return DeviceError(
            f"no worker has had a device for {limit_s:g} s (runtime.no_devices_s){lost and f'; the last was lost: {lost}'}",
            expected="at least one device that answers",
            fix=f"read {self._run.logs}/worker-0.jsonl, bring the devices back, then `distrl train --resume {self._run.path}`",
        )

    def _replace_results(self) -> None:
        """Remove what an earlier session came to: from now on it is out of date."""
        self._run.summary.unlink(missing_ok=True)
        self._transport.reports.remove("after")
        if self._gpu is not None:
            self._gpu.reset()

    def _lacks_verdicts(self) -> JudgeError | None:
        """The error of a run of which nothing is learnt, since its judge gives no verdicts (`runtime.no_verdicts`); None: it does."""
        most = self._config.runtime.no_verdicts
        in_a_row = [int(beat.figures.get("unjudged_in_a_row", 0.0)) for beat in self._worker_beats()]
        if not most or not in_a_row or min(in_a_row) < most:
            return None
        return JudgeError(
            f"the judge left the last {sum(in_a_row)} claims without a verdict (runtime.no_verdicts): {last_unjudged(self._run)}",
            expected="verdicts, without which nothing is learnt",
            fix=f"mend the judge, then `distrl train --resume {self._run.path}`",
        )

    def _has_weights(self) -> bool:
        return self._transport.weights.latest() is not None

    def _playing(self) -> bool:
        """Whether a worker plays, or has played and waits for anything but devices: at first it has to load its libraries."""
        return any(
            beat.phase == "doing" or (beat.figures.get("steps", 0.0) > 0 and not _lacks_devices(beat))
            for beat in self._worker_beats()
        )

    def _all_lack_devices(self) -> bool:
        beats = self._worker_beats()
        return bool(beats) and all(map(_lacks_devices, beats))

    def _worker_beats(self) -> list[Heartbeat]:
        beats = [status.heartbeat for status in self._runtime.status() if status.alive]
        return [beat for beat in beats if beat is not None and beat.role.startswith("worker")]

    def _over(self) -> bool:
        return is_over(self._config.run, self.budget(), self._stats().episodes)

    def _wind_down(self, workers: tuple[str, ...]) -> None:
        """Workers first, then the learner with what they left, then the last evaluation, then the actors that decide.

        A run that gave up is not evaluated: it is resumed.
        """
        self._phase = "finishing"
        for worker in workers:
            self._runtime.ask_to_finish(worker, needed=False)
        until_s = self._clock() + self._worker_end_s()
        for worker in workers:
            self._await(worker, until_s)
        self._transport.episodes.recover()  # what a worker that was killed just now had written and not yet entered
        self._runtime.ask_to_finish("learner", needed=self._has_weights())
        self._await("learner", self._clock() + max(LEARNER_END_S, 2 * self._config.runtime.silent_after_s))
        self._phase = "evaluating"
        self._runtime.ask_to_finish("evaluator", needed=self._has_weights())
        self._await("evaluator", self._clock() + EVALUATOR_START_S, unless=lambda: self._is_cut_short)
        for actor in inference_names(self._config):  # they decide for the evaluator too
            self._runtime.ask_to_finish(actor, needed=False)
        for actor in inference_names(self._config):
            self._await(actor, self._clock() + INFERENCE_END_S)

    @property
    def _is_cut_short(self) -> bool:
        return self.interrupted or self._given_up is not None

    def _await(self, role: str, until_s: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        prolonged: set[str] = set()
        while not self._runtime.ended(role) and self._clock() < until_s and not unless():
            self._turn()
            work, needs_s = self._work_of(role)
            # Counted from when it begins: it may have had something else to finish first. Not once more after a restart:
            # a role that keeps dying at its work would be waited for without end.
            if needs_s and work not in prolonged and len(prolonged) < EVALUATIONS_AT_END:
                prolonged.add(work)
                until_s = max(until_s, self._clock() + needs_s)
        if not self._runtime.ended(role) and not unless() and role in NEEDED and not self._has_finished(role):
            self._cut_off[role] = f"it did not end in time, while {self._work_of(role)[0] or 'starting'}"
        self._runtime.kill(role, "the run is being stopped" if unless() else "it did not end in time")

    def _worker_end_s(self) -> float:
        """What a worker may need to end: running episodes, their verdicts, and what waits to be stored."""
        return WORKER_END_S + max(
            own.rollout.drain_s + verdicts_of_worker_s(own, own.devices.per_worker)
            for own in worker_configs(self._config)
        )

    def _work_of(self, role: str) -> tuple[str, float]:
        """What a role is at, such as an evaluation, and how long it says that this may take; 0: it does not say."""
        for status in self._runtime.status():
            if status.role == role and (beat := status.heartbeat) is not None:
                needs_s = beat.figures.get("needs_s", 0.0) if beat.phase == "doing" else 0.0
                return beat.what.partition(":")[0], needs_s
        return "", 0.0

    def _has_finished(self, role: str) -> bool:
        """Whether a role has said that it is finished, though its process is still there."""
        beats = [status.heartbeat for status in self._runtime.status() if status.role == role and status.alive]
        return any(beat is not None and beat.phase == "stopped" for beat in beats)

    def _turn(self) -> None:
        self._runtime.supervise()
        moment = RunSnapshot(
            run=self._run, config=self._config, phase=self._phase, budget=self.budget(),
            roles=self._runtime.status(), stats=self._stats(),
        )  # fmt: skip
        self._watch(moment)
        self._save_now_and_then()
        self._sleep(SUPERVISE_S)

    def _stats(self) -> StoreStats:
        """The store's totals, asked for once a second: summing a long table up is not free."""
        if self._counted is None or self._clock() - self._counted_s >= COUNT_EVERY_S:
            self._counted, self._counted_s = self._transport.episodes.stats(), self._clock()
        return self._counted

    def _save_now_and_then(self) -> None:
        if self._clock() - self._saved_s > 2.0:
            self._save()

    def _save(self) -> None:
        self._saved_s = self._clock()
        self._transport.budget.write(self.budget())


def _lacks_devices(beat: Heartbeat) -> bool:
    """Whether a worker waits, and none of its devices is up."""
    return beat.phase == "waiting" and beat.figures.get("healthy", 1.0) == 0


def is_over(limits: RunConfig, used: BudgetUsed, episodes: int) -> bool:
    """Whether a run has used up its budget."""
    late = limits.minutes > 0 and used.collect_s >= 60 * limits.minutes
    return late or 0 < limits.episodes <= episodes
