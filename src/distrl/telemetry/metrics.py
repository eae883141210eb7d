"""Every metric, declared once: name, unit, meaning and the range in which a healthy run keeps it.

`docs/metrics.md` is what `reference()` returns; a test holds the two together.
"""

from __future__ import annotations

import sys

import msgspec


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A number that roles report under `<role>/<name>`."""

    name: str
    unit: str
    meaning: str
    healthy: str


def _metric(name: str, unit: str, meaning: str, healthy: str) -> Metric:
    return Metric(name=name, unit=unit, meaning=meaning, healthy=healthy)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _metric("worker/progress", "steps", "steps since the process started: what the supervisor takes as progress", "above 0 soon after a start"),
        _metric("worker/episodes", "episodes", "episodes played since the process started and acknowledged by the store", "rises steadily"),
        _metric("worker/success/recent", "share", "successes among the last training episodes, 200 at most; an unknown outcome counts as no success", "rises"),
        _metric("worker/recent", "episodes", "number of episodes behind `worker/success/recent`", "200 after a while"),
        _metric("worker/steps", "steps", "steps of these episodes", "rises steadily"),
        _metric("worker/invalid/share", "share", "steps that the device refused", "below 0.1, falling"),
        _metric("worker/losses", "count", "devices lost during an episode", "near 0 without faults"),
        _metric("worker/truncated", "episodes", "episodes that a limit on steps or time cut off; they are bootstrapped and used", "a small share of the episodes"),
        _metric("worker/unjudged", "episodes", "episodes whose judge failed or missed its deadline; they are stored, and nothing is learnt from them", "0"),
        _metric("worker/unjudged_in_a_row", "episodes", "of these, since the last claim with a verdict", "0; at runtime.no_verdicts the run ends"),
        _metric("worker/judging", "episodes", "episodes that wait for their verdict or for hindsight", "below judge.at_once; at that number new episodes wait"),
        _metric("worker/relabelled", "episodes", "failures stored once more as a success at another task, with data.hindsight", "rises, more slowly as success rises"),
        _metric("worker/unrelabelled", "episodes", "episodes for which the suite's hindsight failed or missed judge.deadline_s; they are stored as they are", "0"),
        _metric("worker/inexpressible", "episodes", "failures that fulfilled another task whose steps the policy cannot express", "well below worker/relabelled"),
        _metric("worker/judge/requests", "requests", "requests that a model as a judge was sent, repeated ones included", "one for each episode that was claimed to be done"),
        _metric("worker/judge/retries", "requests", "of these, repeated ones", "near 0"),
        _metric("worker/judge/cached", "verdicts", "verdicts that were known from an equal attempt", "any"),
        _metric("worker/judge/tokens_in", "tokens", "tokens of the requests, as the endpoint counts", "rises steadily"),
        _metric("worker/judge/tokens_out", "tokens", "tokens of the answers, as the endpoint counts", "rises steadily"),
        _metric("worker/judge/cost", "currency", "what these tokens cost at judge.model.price_in and price_out", "what you are ready to pay"),
        _metric("worker/decisions", "decisions", "decisions made for it since the process started, until it was told to stop", "rises steadily"),
        _metric("worker/busy_s", "s", "time inside calls to devices, summed over the devices of this worker", "rises by almost one second per device and second"),
        _metric("worker/device_s", "s", "time since the first call to a device, once for each device that this worker really has; worker/busy_s is a share of it", "rises by one second per device and second"),
        _metric("worker/batch/mean", "decisions", "decisions per batch", "above 2 with many devices"),
        _metric("worker/batch/halved", "count", "times that a batch ran out of memory (OOM) and the batch size was halved", "0"),
        _metric("worker/deciding", "share", "time since the process started in which the policy computed", "below 0.9; above, devices wait for decisions"),
        _metric("worker/at_once", "episodes", "most episodes that the worker plays at once: its devices, or what balance has made of it", "all devices"),
        _metric("worker/batch/wait_ms", "ms", "how long a decision may wait for others at present", "short beside a step of a device"),
        _metric("worker/version", "version", "policy version in use; -1: none yet", "follows learner/version within a second"),
        _metric("worker/healthy", "devices", "devices that play or can be leased", "all of them, short dips with faults"),
        _metric("worker/restarting", "devices", "devices that are being restarted or are in quarantine", "0, short peaks with faults"),
        _metric("worker/absent", "devices", "devices that are not connected; they are taken back once they are", "0, or what you have unplugged"),
        _metric("worker/storing", "episodes", "finished trajectories that wait to be stored", "near 0; at 64, new episodes wait for the store"),
        _metric("worker/spooled", "episodes", "trajectories on the worker's own disk because the store does not answer", "0; at rollout.spool_episodes or 2 GiB, devices wait"),
        _metric("worker/acknowledge_ms", "ms", "mean time from the hand-over of a trajectory until the store had it durably", "below 50"),
        _metric("worker/undecodable_frames", "screenshots", "screenshots that could not be decoded and were replaced by black ones; pixel policy and VLM", "0"),
        _metric("worker/skipped", "decisions", "decisions whose logits were NaN or infinite; they became invalid steps without a policy gradient; pixel policy and VLM", "0"),
        _metric("worker/decisions_repeated", "count", "tries that an inference actor did not answer, so that another one was asked; with rollout.decide = actors", "0; a few when an actor is lost"),
        _metric("inference/progress", "decisions", "decisions since the process started: what the supervisor takes as progress", "above 0 soon after a start"),
        _metric("inference/decisions", "decisions", "of these, for workers", "rises steadily, alike for all actors"),
        _metric("inference/pinned", "decisions", "of these, for the evaluator, by the version that it evaluates", "rises while it evaluates"),
        _metric("inference/queued", "decisions", "decisions that workers wait for", "about what fits into a batch; far more: add actors"),
        _metric("inference/dropped", "requests", "requests that were not answered within inference.deadline_s, so that nobody waited any more", "0"),
        _metric("inference/batch/mean", "decisions", "decisions per batch", "above that of workers that decide for themselves"),
        _metric("inference/batch/halved", "count", "times that a batch ran out of memory (OOM) and the batch size was halved", "0"),
        _metric("inference/deciding", "share", "time since the process started in which the policy computed", "below 0.9; above, add actors"),
        _metric("inference/version", "version", "policy version in use", "follows learner/version within a second"),
        _metric("inference/undecodable_frames", "screenshots", "screenshots that could not be decoded and were replaced by black ones; pixel policy and VLM", "0"),
        _metric("inference/skipped", "decisions", "decisions whose logits were NaN or infinite; they became invalid steps without a policy gradient; pixel policy and VLM", "0"),
        _metric("learner/progress", "count", "updates since the process started that a checkpoint holds: what the supervisor takes as progress", "above 0 once learner.checkpoint_every_s have passed"),
        _metric("learner/version", "version", "newest published policy version", "rises every learner.publish_every_s"),
        _metric("learner/updates", "count", "updates of the run, skipped ones included", "rises steadily"),
        _metric("learner/skipped_updates", "updates", "updates of the run that were skipped: loss or gradient NaN or infinite, or out of memory (OOM)", "0"),
        _metric("learner/episodes", "episodes", "played episodes read from the store", "follows the workers' sum"),
        _metric("learner/idle", "share", "time in which there was nothing to learn", "below 0.5; 0 means that updates lag behind"),
        _metric("learner/updates_per_episode", "updates", "updates that an arrived episode earns: learner.updates_per_episode, or what balance has made of it", "within its limits"),
        _metric("learner/intake", "share", "time in which trajectories were read from the store", "below 0.3"),
        _metric("learner/replay/steps", "steps", "steps in the replay", "at most replay.capacity_steps"),
        _metric("learner/replay/eligible", "episodes", "trajectories that may be sampled", "above learner.batch_trajectories"),
        _metric("learner/staleness/mean", "versions", "mean staleness of what was sampled, over the whole run, without what is kept", "below replay.max_staleness"),
        _metric("learner/staleness/max", "versions", "largest staleness that was ever sampled, without what is kept", "at most replay.max_staleness"),
        _metric("learner/staleness/kept", "share", "samples that were kept beyond replay.max_staleness: successes, and demonstrations of the warm start", "rises; 0 with replay.keep_successes and warm_start.keep off"),
        _metric("learner/data/noop_share", "share", "steps of successes that are masked as no-ops, with data.filter_noops", "falls"),
        _metric("learner/data/relabelled", "episodes", "relabelled failures read from the store, with data.hindsight", "follows the workers' sum"),
        _metric("learner/data/unjudged", "episodes", "episodes without a verdict, which stay out of the replay", "0"),
        _metric("learner/data/unreadable", "episodes", "episodes skipped since the process started: damaged or gone, or NaN in them; the learner's log names each", "0"),
        _metric("learner/undecodable_frames", "screenshots", "screenshots that could not be decoded since the process started and were replaced by black ones; pixel policy and VLM", "0"),
        _metric("learner/skipped", "answers", "answers whose log-probabilities were NaN or infinite; they were skipped in their update; VLM", "0"),
        _metric("learner/num_samples", "steps", "steps that went through the policy under gradient since the last line", "as many as the GPU or the cores allow"),
        _metric("learner/first_gradient_s", "s", "mean time from the end of an episode until the first update that it is in", "a few times the duration of an update"),
        _metric("learner/agreement/kl", "nats", "KL estimate between what workers recorded and what the learner recomputes with the same weights, over a few steps of each batch", "below 0.02 in bfloat16, 0.0001 in float32; an alarm above 0.1"),
        _metric("learner/agreement/ratio", "", "mean ratio of the recomputed probability of these steps to the recorded one", "0.9 to 1.1"),
        _metric("learner/agreement/alarm", "", "1 while workers and learner disagree: screenshots, templates or adapters are not the same on both sides", "0"),
        _metric("learner/loss/policy", "nats", "policy term of the loss", "small, either sign"),
        _metric("learner/loss/value", "nats", "cross-entropy of the critic", "falls, then level"),
        _metric("learner/loss/invalid", "nats", "unlikelihood term: mean of -log(1 - pi) over the sampled invalid steps, before its weight; A-RIDE", "falls"),
        _metric("learner/loss/instruction", "nats", "cross-entropy of the instruction critic; DigiRL", "falls, then level"),
        _metric("learner/loss/total", "nats", "what is minimised: all terms with their weights", "finite, no trend of its own"),
        _metric("learner/entropy", "nats", "exact entropy of the policy over the sampled steps", "falls slowly, not to 0"),
        _metric("learner/imitated_share", "share", "sampled steps that pass both filters; DigiRL", "above 0"),
        _metric("learner/compared_share", "share", "sampled steps of episodes whose group has successes and failures; GRPO", "above 0.1"),
        _metric("learner/trust_region_share", "share", "sampled steps inside the trust region around the policy that acted; PPO and GRPO", "1 without a trust region; lower with staler data"),
        _metric("learner/gradient_norm", "", "norm of the policy's gradient before clipping", "below 10"),
        _metric("evaluator/success", "share", "success on held-out tasks of the last pinned version", "rises"),
        _metric("evaluator/version", "version", "the version that was evaluated", "rises"),
        _metric("evaluator/n", "episodes", "held-out tasks of that evaluation", "evaluation.during_episodes, evaluation.episodes at start and end"),
        _metric("evaluator/unknown", "episodes", "those of them whose outcome is unknown (a fault, or a judge that failed); they count as no success", "0"),
        _metric("evaluator/needs_s", "s", "longest time that the present evaluation may take; in the heartbeat alone", "-"),
        _metric("evaluator/progress", "count", "1 once the process has finished what was due when it started", "1"),
        _metric("warm_start/samples", "steps", "demonstrated steps of behaviour cloning so far, each pass counted; queries of grounding pretraining", "rises steadily, to warm_start.samples or as far as warm_start.minutes allow"),
        _metric("warm_start/loss", "nats", "mean of -log pi over the last batches, before they were trained on", "falls"),
        _metric("warm_start/certain", "share", "demonstrated choices of the last batches that had more than half of the probability", "rises"),
        _metric("warm_start/skipped", "batches", "batches so far whose loss or gradient was NaN or infinite: no step was taken", "0"),
        _metric("warm_start/per_s", "steps/s", "steps or queries per second so far", "2,000 and more on a large GPU"),
        _metric("warm_start/drawn", "screens", "screens of a stream that have reached the learner", "rises steadily"),
        _metric("warm_start/drawn_per_s", "screens/s", "screens that came per second of grounding pretraining", "at least half as many as are trained on"),
        _metric("warm_start/pointing", "nats", "pointing loss: mean of -log pi of taps on what a query names", "falls"),
        _metric("warm_start/letters", "nats", "OCR loss: cross-entropy of the letters on squares", "falls below 0.3"),
        _metric("warm_start/names", "nats", "OCR loss: cross-entropy of the letters of the names of squares", "falls below 0.3"),
        _metric("warm_start/norm", "", "norm of the gradient before clipping", "below 10"),
        _metric("warm_start/kinds_known", "share", "next steps whose kind was right", "rises to 0.95"),
        _metric("warm_start/taps_known", "share", "next steps that are taps and hit what was to be hit", "rises to 0.9"),
        _metric("warm_start/steps_known", "share", "next steps that were right altogether", "rises to 0.9"),
        _metric("warm_start/points_known", "share", "things to point at that were hit", "rises to 0.9"),
        _metric("warm_start/hidden_known", "share", "queries for hidden things that were answered by scrolling", "rises to 0.9"),
        _metric("warm_start/letters_known", "share", "letters on squares that were predicted right", "rises to 0.95"),
        _metric("warm_start/names_known", "share", "names whose first 16 letters were all predicted right", "rises to 0.9"),
        _metric("gpu/utilisation", "share", "time of the last two seconds in which a GPU computed anything, as its driver says", "above 0.8 while training"),
        _metric("gpu/memory_mb", "MB", "memory in use on a GPU", "below what it has"),
    )
}  # fmt: skip
"""By name."""


# --- the page ---------------------------------------------------------------------------------------------------------


HEAD = """# Metrics

Made from `src/distrl/telemetry/metrics.py` by `make docs`; edit the text there.

Each role appends a line of JSON to `metrics.jsonl` in the run folder: `time_s`, `event` (the kind of role), `role` (its
name, such as `worker-1`) and the values below. A worker and an inference actor write every 20 turns of their loop (about five seconds), the
learner every 20 updates and at its end (every 25 batches of a streamed warm start), the evaluator after every evaluation, the
supervisor every two seconds where there is a GPU. The same values, without the part before the first
slash, are the `figures` of a role's heartbeat in `heartbeats/`.

What an algorithm measures (losses, `entropy`, shares, `gradient_norm`) is the mean over the updates since the line before; a
name that begins with `num_` is summed. An algorithm's metric may not have the name of one of the learner's own figures.

Counters of a worker start at 0 when its process does. Those of the learner are kept in its checkpoints.
"""


def reference() -> str:
    """The page, a table for each kind of role."""
    roles = dict.fromkeys(name.partition("/")[0] for name in METRICS)
    return "\n".join([HEAD, *(_table(role) for role in roles)])


def _table(role: str) -> str:
    rows = [_row(metric) for name, metric in METRICS.items() if name.startswith(f"{role}/")]
    return "\n".join([f"## {role}", "", "| metric | unit | meaning | healthy |", "|---|---|---|---|", *rows, ""])


def _row(metric: Metric) -> str:
    return f"| `{metric.name}` | {metric.unit} | {metric.meaning} | {metric.healthy} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
