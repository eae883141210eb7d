"""Agreement of worker and learner: on a few steps of every batch, what was recorded against what the learner recomputes.

A decision is recorded with its log-probability under the version that acted. The learner scores the same choice on the
same observation under the weights of that version, of which it keeps the newest. Without a fault both differ by rounding
alone; where a screenshot, the prompt's template or the adapters are others on one of the two sides, they do not, and every
importance ratio is wrong without any other sign. Reported for each batch, with r = log pi_learner - log pi_worker:

    agreement/kl      mean of e^r - 1 - r, at most `MOST` each: estimates KL(worker || learner) from the worker's samples
    agreement/ratio   mean of e^r

Raised as an alarm: the mean of the first over the last `WINDOW` steps is above `ALARM_KL`. Nothing is stopped by it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from math import exp, isfinite
from typing import Any

import torch
from torch import Tensor, nn

from distrl.algorithms.batch import Episode
from distrl.experience.replay import Sample
from distrl.policies.base import Policy
from distrl.policies.weights import swapped_weights

WINDOW = 64
"""Steps over which an alarm is decided."""
FEWEST = 12
"""Steps before the first alarm."""
ALARM_KL = 0.1
"""Rounding in bfloat16 gives 0.01 for answers of 24 tokens (docs/vlm.md)."""
MOST = 2.0
"""What one step counts at most, so that a single outlier raises no alarm."""
LARGEST_LOG_RATIO = 10.0
VERSIONS = 3
"""Published versions whose weights are kept."""
MOST_BYTES = 1_000_000_000
"""Of trained weights, beyond which no version is kept and nothing is checked: all weights of a large model."""

Row = tuple[Any, tuple[int, ...], float]
"""What the policy read, what it chose, and the log-probability that was recorded."""


class Agreement:
    """Compares some steps of every batch; `tell` hears when the two sides begin to disagree, and when they agree again."""

    def __init__(self, policy: Policy[Any], *, num_steps: int, tell: Callable[[str], None]) -> None:
        self._policy, self._num_steps, self._tell = policy, num_steps, tell
        trained = self._trained()
        fits = sum(one.numel() * one.element_size() for one in trained) <= MOST_BYTES
        self._versions: OrderedDict[int, list[Tensor]] = OrderedDict()
        self._keeps = VERSIONS if num_steps and fits else 0
        self._window: deque[float] = deque(maxlen=WINDOW)
        self.alarm = False
        """Whether the two sides disagree now."""

    def published(self, version: int) -> None:
        """Keep the present weights, which were published as `version`."""
        if not self._keeps:
            return
        self._versions[version] = [weights.detach().clone() for weights in self._trained()]
        while len(self._versions) > self._keeps:
            self._versions.popitem(last=False)

    def check(self, samples: Sequence[Sample[Episode]]) -> dict[str, float]:
        """The figures of a batch; empty where no step of it was played by a version that is kept."""
        version, rows = self._choose(samples)
        if not rows:
            return {}
        log_ratios = [found for found in self._log_ratios(version, rows) if isfinite(found)]
        if not log_ratios:  # the policy counts what is not finite
            return {}
        kl = [divergence(log_ratio) for log_ratio in log_ratios]
        self._window.extend(kl)
        self._decide(version)
        return {
            "agreement/kl": sum(kl) / len(kl),
            "agreement/ratio": sum(map(exp, log_ratios)) / len(log_ratios),
        }

    def _choose(self, samples: Sequence[Sample[Episode]]) -> tuple[int, list[Row]]:
        """Steps of one version, the most frequent one, evenly over the batch."""
        played = [
            (version, (encoded, choice, float(logp)))
            for episode in (sample.item for sample in samples if not sample.item.example)
            for version, encoded, choice, logp in zip(
                episode.versions, episode.encoded, episode.choices, episode.logp_T, strict=False
            )
            if choice and version in self._versions
        ]
        if not played:
            return -1, []
        version = Counter(version for version, _ in played).most_common(1)[0][0]
        rows = [row for its, row in played if its == version]
        return version, rows[:: max(1, len(rows) // self._num_steps)][: self._num_steps]

    @torch.no_grad()
    def _log_ratios(self, version: int, rows: Sequence[Row]) -> list[float]:
        with swapped_weights(self._trained(), self._versions[version]):
            scores = self._policy.score([row[0] for row in rows], [row[1] for row in rows])
        found: list[float] = (scores.logp_N.float().cpu() - torch.tensor([row[2] for row in rows])).tolist()
        return [min(max(one, -LARGEST_LOG_RATIO), LARGEST_LOG_RATIO) for one in found]

    def _decide(self, version: int) -> None:
        kl = sum(self._window) / len(self._window)
        if not self.alarm and len(self._window) >= FEWEST and kl > ALARM_KL:
            self.alarm = True
            self._tell(
                f"worker and learner disagree about decisions of version {version}: KL {kl:.2f} over the last "
                f"{len(self._window)} checked steps, expected below {ALARM_KL:g}; compare the screenshots, the model's folder "
                "with its chat template, and the adapters that both sides have"
            )
        elif self.alarm and kl < ALARM_KL / 2:
            self.alarm = False
            self._tell(f"worker and learner agree again about decisions, since version {version}")

    def _trained(self) -> list[nn.Parameter]:
        return [weights for weights in self._policy.network.parameters() if weights.requires_grad]


def divergence(log_ratio: float) -> float:
    """What a step adds to the estimate of the KL divergence: never negative, and `MOST` at most."""
    return min(MOST, exp(log_ratio) - 1.0 - log_ratio)
