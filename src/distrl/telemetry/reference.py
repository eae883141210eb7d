"""The metrics as a page of Markdown, made from where they are declared.

`docs/metrics.md` is what `reference()` returns; a test holds the two together.
"""

from __future__ import annotations

import sys

from distrl.telemetry.metrics import METRICS, Metric

HEAD = """# Metrics

Made from `src/distrl/telemetry/metrics.py` by `make docs`; edit the text there.

Each role appends a line of JSON to `metrics.jsonl` in the run folder: `time_s`, `event` (the kind of role), `role` (its
name, such as `worker-1`) and the values below. A worker writes every 20 turns of its loop (about five seconds), the
learner every 20 updates (every 25 batches of a streamed warm start), the evaluator after every evaluation, the
supervisor every two seconds where there is a GPU. The same values, without the part before the first
slash, are the `figures` of a role's heartbeat in `pulses/`.

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
