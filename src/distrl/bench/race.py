"""Time to a target: when each seed fulfils most of what a rival comes to, and how many times sooner one method does.

Every seed has a target of its own, since all methods of a seed begin with the same policy: most of the way from there to
where the rival's curve of that seed ends. It is reached at the first moment at which the smoothed curve is there; nothing is
read between two moments, so a time is as coarse as they are. A seed that does not get there within the budget is
*censored*: its time is the budget, or any longer. In the bootstrap over seeds the low end of a speed-up takes censored times
of the other method as the budget and ours as endless, the high end the other way round. Pure numpy.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from distrl.bench.statistics import DRAWS, LEVEL, Floats, Interval, iqm

TARGET_SHARE = 0.9
"""Of the rival's gain: its very last point is reached by half of its seeds, and by chance."""
LEAST_GAIN = 0.02
"""The target lies at least this far above the start, also where the rival learned nothing."""

Bound = Literal["exact", "lower", "upper", "unknown"]


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When each seed reached its target, twice: censored ones at the budget, and as endless."""

    least_S: Floats
    most_S: Floats

    @property
    def censored(self) -> int:
        """Seeds that did not reach it within the budget."""
        return int(np.isinf(self.most_S).sum())


def smooth(curve_SK: Floats) -> Floats:
    """Each point averaged with its neighbours; the first, which nothing has been learned before, as it is."""
    padded = np.pad(curve_SK, [(0, 0), (1, 1)], constant_values=np.nan)
    mean_SK = np.nanmean(np.stack([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]]), axis=0)
    return np.concatenate([curve_SK[:, :1], mean_SK[:, 1:]], axis=1)


def targets(rival_SK: Floats, share: float = TARGET_SHARE) -> Floats:
    """Of each seed, most of the way from where the rival began to where its smoothed curve ends."""
    start_S, end_S = rival_SK[:, 0], smooth(rival_SK)[:, -1]
    return np.asarray(start_S + np.maximum(LEAST_GAIN, share * (end_S - start_S)))


def times_to(target_S: Floats, wall_s_K: Floats, curve_SK: Floats) -> Times:
    """The first moment at which each smoothed curve is at its target; the last moment is the end of the budget."""
    there_SK = smooth(curve_SK) >= target_S[:, None]
    reached_S, first_S = there_SK.any(axis=1), wall_s_K[there_SK.argmax(axis=1)]
    return Times(
        least_S=np.where(reached_S, first_S, wall_s_K[-1]),
        most_S=np.where(reached_S, first_S, np.inf),
    )


def speedup(ours: Times, theirs: Times, random: np.random.Generator) -> tuple[Interval, Bound]:
    """Their time over ours (IQMs over the same seeds), and what censored seeds make of it; an open end is None."""
    num = len(ours.least_S)
    seeds_DS = random.integers(num, size=(DRAWS, num))
    low_D = iqm(theirs.least_S[seeds_DS]) / iqm(ours.most_S[seeds_DS])
    high_D = iqm(theirs.most_S[seeds_DS]) / iqm(ours.least_S[seeds_DS])
    # Between two real draws, not between a number and infinity, which is no number.
    low = np.quantile(low_D, (1 - LEVEL) / 2, method="inverted_cdf")
    high = np.quantile(high_D, (1 + LEVEL) / 2, method="inverted_cdf")
    value = float(iqm(theirs.least_S) / iqm(ours.least_S))
    found = Interval(value=value, low=float(low), high=float(high) if np.isfinite(high) else None)
    return found, _bound(bool(np.isinf(iqm(ours.most_S))), bool(np.isinf(iqm(theirs.most_S))))


def _bound(ours_open: bool, theirs_open: bool) -> Bound:
    if ours_open and theirs_open:
        return "unknown"
    return "upper" if ours_open else "lower" if theirs_open else "exact"
