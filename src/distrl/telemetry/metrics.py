"""Every metric, declared once: name, unit, meaning and the range in which a healthy run keeps it."""

from __future__ import annotations

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
        _metric("worker/progress", "steps", "steps of this life of the process: what the supervisor takes as progress", "above 0 soon after a start"),
        _metric("worker/episodes", "episodes", "played in this life of the process and acknowledged by the store", "rises steadily"),
        _metric("worker/success/recent", "share", "successes among the last training episodes, 200 at most", "rises"),
        _metric("worker/recent", "episodes", "how many episodes `worker/success/recent` looks at", "200 after a while"),
        _metric("worker/steps", "steps", "steps of these episodes", "rises steadily"),
        _metric("worker/invalid/share", "share", "steps that the device refused", "below 0.1, falling"),
        _metric("worker/losses", "count", "devices lost in the middle of an episode", "near 0 without faults"),
        _metric("worker/cut", "count", "episodes cut off by time or a lost device, bootstrapped and used", "a small share of episodes"),
        _metric("worker/busy_s", "s", "time that the devices themselves needed, summed over the devices of this worker", "rises by almost one second per device and second"),
        _metric("worker/batch/mean", "decisions", "decisions made at once", "above 2 with many devices"),
        _metric("worker/batch/halved", "count", "times that decisions did not fit into memory; batches are half as large since", "0"),
        _metric("worker/version", "version", "policy version in use; -1: none yet", "follows learner/version within a second"),
        _metric("worker/healthy", "devices", "devices that play or can be leased", "all of them, short dips with faults"),
        _metric("worker/restarting", "devices", "devices that are being restarted or are in quarantine", "0, short peaks with faults"),
        _metric("worker/storing", "episodes", "finished trajectories that wait to be stored", "near 0; at 64, the lanes wait for the store"),
        _metric("worker/acknowledge_ms", "ms", "mean time from the end of an episode until the store had it durably", "below 50"),
        _metric("worker/dark", "pictures", "pictures that could not be decoded, and were seen as black ones; pixel policy", "0"),
        _metric("worker/skipped", "answers", "answers of the model that were no numbers, and became invalid steps that teach nothing; VLM", "0"),
        _metric("learner/progress", "count", "gradient steps of this life of the process: what the supervisor takes as progress", "above 0 soon after a start"),
        _metric("learner/version", "version", "newest published policy version", "rises every publish_every_s"),
        _metric("learner/updates", "count", "gradient steps of the run, those left out among them", "rises steadily"),
        _metric("learner/left_out", "updates", "updates of the run whose loss or gradient was no number, or that did not fit into memory: nothing was learnt from them", "0"),
        _metric("learner/episodes", "episodes", "taken in from the store", "follows the workers' sum"),
        _metric("learner/idle", "share", "time in which there was nothing to learn", "below 0.5; 0 means that updates lag behind"),
        _metric("learner/intake", "share", "time in which episodes were taken in from the store", "below 0.3"),
        _metric("learner/replay/steps", "steps", "steps in memory", "at most replay.capacity_steps"),
        _metric("learner/replay/eligible", "episodes", "trajectories that may be sampled", "above batch_trajectories"),
        _metric("learner/staleness/mean", "versions", "age of what was sampled, over the whole run, without kept successes", "below replay.max_staleness"),
        _metric("learner/staleness/max", "versions", "oldest that was ever sampled, without kept successes", "at most replay.max_staleness"),
        _metric("learner/staleness/kept", "share", "draws of successes kept beyond replay.max_staleness", "rises; 0 with replay.keep_successes off"),
        _metric("learner/data/cut", "share", "steps of successes that are left out of imitation, with data.cut", "falls"),
        _metric("learner/data/relabelled", "episodes", "failures that were also taken in as another task, with data.hindsight", "rises, ever more slowly"),
        _metric("learner/data/unsayable", "episodes", "failures that fulfilled another task in words that the policy could not have acted on", "well below learner/data/relabelled"),
        _metric("learner/dark", "pictures", "pictures that could not be decoded in this life of the process, and were seen as black ones; pixel policy", "0"),
        _metric("learner/skipped", "answers", "answers whose log-probabilities were no numbers, and were left out of their update; VLM", "0"),
        _metric("learner/loss/policy", "nats", "policy term of the loss", "small, either sign"),
        _metric("learner/loss/value", "nats", "critic's cross-entropy", "falls, then level"),
        _metric("learner/loss/invalid", "nats", "mean of -log(1 - pi) over the sampled invalid steps, before its weight", "falls"),
        _metric("learner/loss/total", "nats", "what is descended: all terms with their weights", "finite, no trend of its own"),
        _metric("learner/entropy", "nats", "exact entropy of the policy over the sampled steps", "falls slowly, not to 0"),
        _metric("learner/near", "share", "sampled steps that are within algorithm.proximal.reach of the policy that acted; PPO and GRPO", "1 without a reach; the older the data, the lower"),
        _metric("learner/gradient_norm", "", "before clipping", "below 10"),
        _metric("evaluator/success", "share", "success on held-out tasks of the last pinned version", "rises"),
        _metric("evaluator/version", "version", "the version that was evaluated", "rises"),
        _metric("evaluator/n", "episodes", "held-out tasks of that evaluation", "evaluation.during_episodes, evaluation.episodes at start and end"),
        _metric("evaluator/progress", "count", "1 once this life of the process has finished what was due when it began", "1"),
        _metric("warm_start/samples", "steps", "demonstrated steps that have been cloned, each pass counted", "rises steadily, to warm_start.samples or as far as warm_start.minutes allow"),
        _metric("warm_start/loss", "nats", "mean of -log pi over the last batches, before they were learnt", "falls"),
        _metric("warm_start/certain", "share", "demonstrated choices of the last batches that had more than half of the probability", "rises"),
        _metric("warm_start/left_out", "batches", "batches so far whose loss or gradient was no number: nothing was learnt from them", "0"),
        _metric("warm_start/per_s", "steps/s", "steps cloned per second so far", "2,000 and more on a large GPU"),
        _metric("warm_start/drawn", "screens", "screens of a stream that have come to the learner", "rises steadily"),
        _metric("warm_start/drawn_per_s", "screens/s", "screens that came per second of cloning", "at least half as many as are looked at"),
        _metric("warm_start/pointing", "nats", "mean of -log pi of taps on what a question names", "falls"),
        _metric("warm_start/letters", "nats", "cross-entropy of the letters on squares", "falls below 0.3"),
        _metric("warm_start/names", "nats", "cross-entropy of the letters of names that squares go by", "falls below 0.3"),
        _metric("warm_start/norm", "", "of the gradient, before clipping", "below 10"),
        _metric("warm_start/kinds_known", "share", "next steps whose kind was right", "rises to 0.95"),
        _metric("warm_start/taps_known", "share", "next steps that are taps and hit what was to be hit", "rises to 0.9"),
        _metric("warm_start/steps_known", "share", "next steps that were right altogether", "rises to 0.9"),
        _metric("warm_start/points_known", "share", "things to point at that were hit", "rises to 0.9"),
        _metric("warm_start/hidden_known", "share", "things out of sight for which the list was scrolled", "rises to 0.9"),
        _metric("warm_start/letters_known", "share", "letters on squares that were told right", "rises to 0.95"),
        _metric("warm_start/names_known", "share", "names that were told right to the last of their first 16 letters", "rises to 0.9"),
        _metric("gpu/utilisation", "share", "time of the last two seconds in which a GPU computed anything, as its driver says", "above 0.8 while training"),
        _metric("gpu/memory_mb", "MB", "memory in use on a GPU", "below what it has"),
    )
}  # fmt: skip
"""By name."""
