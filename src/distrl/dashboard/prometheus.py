"""The newest figures of the live runs in Prometheus' text format; of a stored run there is nothing to scrape."""

from __future__ import annotations

import re

from distrl.dashboard.run_list import RunList
from distrl.telemetry.metrics import METRICS

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


def exposition(runs: RunList) -> str:
    """One gauge per metric, with a sample for each run and role."""
    samples: dict[str, list[str]] = {}
    for card in runs.cards():
        if card.state != "live":
            continue
        opened = runs.open(card.name)
        with opened.lock:
            opened.refresh()
            for role, figures in opened.metrics.last.items():
                labels = f'{{run="{_escaped(card.name)}",role="{_escaped(role)}"}}'
                for name, value in figures.items():
                    samples.setdefault(name, []).append(f"{metric_name(name)}{labels} {value:.10g}")
    lines = []
    for name, found in sorted(samples.items()):
        meaning = METRICS[name].meaning if name in METRICS else name
        lines += [f"# HELP {metric_name(name)} {_one_line(meaning)}", f"# TYPE {metric_name(name)} gauge", *found]
    return "\n".join([*lines, ""])


def metric_name(name: str) -> str:
    """The name of a metric as Prometheus allows it."""
    return "distrl_" + _NOT_IN_NAMES.sub("_", name)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\")
