"""From an estimate to a verdict.

To be called regressed, a harm must be both sure (its lower bound lies above 0) and as large as the allowed
change; to be called unchanged, its upper bound must lie below the allowed change. Everything between is
inconclusive, and says what would decide it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_rlserve.gate.statistics import Estimate, Noise, quantile, to_change, to_harm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_rlserve.metrics import Better

Decision = Literal["regressed", "improved", "unchanged", "inconclusive"]

ALPHA = 0.05
"""One-sided error of every bound; a declared extra look halves it for each look."""
POWER = 0.80
PRIMARY_SHARE = 0.8
"""Part of the error that is the primary's own where others are gated beside it, so that all together keep ALPHA."""
SINGLE_JOB = 0.15
"""Change that one job may prove under an assumed noise: this, or three times the allowed one if that is more."""
_MOST = 50
"""Jobs beyond which nobody will wait for a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A verdict and what it rests on. Changes are relative for positive scales, differences for fractions."""

    verdict: Decision
    baseline: float
    current: float
    delta: float | None
    """current against baseline; None where the baseline is 0 and no ratio exists."""
    error: float = 0.0
    """Standard error of the change, on the scale it was compared on; 0 where the comparison is exact."""
    bound: tuple[float, float] | None = None
    """Lower and upper one-sided bound of the change for the worse."""
    detectable: float | None = None
    """Smallest change for the worse that would have been called a regression with a power of 80 %."""
    noise: Noise | None = None
    needed: int | None = 0
    """Current jobs (runs of one job, or pairs) that would decide, if the change stays what it is; None if no number
    within reason would."""
    to_decide: str | None = None
    """The same in words, for an inconclusive comparison."""
    single_job: bool = False
    suspect: bool = False
    """Inconclusive although the change is as large as the allowed one."""


def decide(
    found: Estimate, *, better: Better, allowed: float, linear: bool, alpha: float = ALPHA, level: float | None = None
) -> Result:
    """Decide on an estimate.

    Args:
        found: the estimated harm.
        better: direction of an improvement.
        allowed: smallest change for the worse that matters.
        linear: whether changes are differences (fractions) or ratios.
        alpha: one-sided error of the bounds.
        level: error at which a harm counts as sure, where several metrics share `alpha` (see `holm`).
    """
    matters = to_harm(allowed, better, linear=linear)
    own = alpha if level is None else level
    low = found.harm - found.bound(own)
    high = found.harm + found.bound(alpha)
    single = found.noise.origin == "assumed" and found.jobs[1] == 1
    enough = to_harm(max(SINGLE_JOB, 3 * allowed), better, linear=linear) if single else matters
    if low > 0 and found.harm >= enough:
        verdict: Decision = "regressed"
    elif high < 0 and found.harm <= -matters:
        verdict = "improved"
    else:
        verdict = "unchanged" if high < matters else "inconclusive"
    suspect = verdict == "inconclusive" and found.harm >= matters
    needed = _needed(found, matters, own if suspect else alpha) if verdict == "inconclusive" else 0
    reach = max(found.bound(own), enough if single else 0.0) + quantile(POWER, found.noise.df) * found.error
    return Result(
        verdict=verdict,
        baseline=found.baseline,
        current=found.current,
        delta=found.step if linear else math.expm1(found.step),
        error=found.error,
        bound=(to_change(low, better, linear=linear), to_change(high, better, linear=linear)),
        detectable=to_change(reach, better, linear=linear),
        noise=found.noise,
        needed=needed,
        to_decide=_to_decide(found, needed) if verdict == "inconclusive" else None,
        single_job=single,
        suspect=suspect,
    )


def _needed(found: Estimate, matters: float, alpha: float) -> int | None:
    """Return how many current jobs would decide at that error, if the harm stays what it is."""
    gap = found.harm if found.harm >= matters else matters - found.harm
    before, after = found.counted
    share = math.sqrt(1 / before + 1 / after)
    for count in range(after + 1, _MOST + 1):
        other = before if found.noun != "pairs" else count
        if found.bound(alpha) * math.sqrt(1 / other + 1 / count) / share < gap:
            return count
    return None


def _to_decide(found: Estimate, needed: int | None) -> str:
    if needed is None:
        return f"more baseline {found.noun}, or a calmer machine"
    return f"{needed} current {found.noun}, if the change stays what it is"


def decide_with_zero(baseline: float, current: float, better: Better) -> Result:
    """Decide exactly: on counts, and on a positive scale on which something is 0, so that no ratio exists."""
    worse = current > baseline if better == "lower" else current < baseline
    verdict: Decision = "unchanged" if current == baseline else "regressed" if worse else "improved"
    delta = (current - baseline) / baseline if baseline else None
    return Result(verdict=verdict, baseline=baseline, current=current, delta=delta)


def holm(p: Mapping[str, float], weights: Mapping[str, float], alpha: float = ALPHA) -> dict[str, float]:
    """Return for each of several metrics the error level at which its own harm counts as sure.

    Holm's step-down procedure with weights (S. Holm, A simple sequentially rejective multiple test procedure,
    Scandinavian Journal of Statistics 6, 1979): each metric may err by its weight's share of alpha, the smallest
    p for its weight comes first, and what it may err passes to the rest once its harm is sure; from the first
    that is not, all keep their level. The chance of any false alarm stays below alpha.
    """
    levels: dict[str, float] = {}
    left = sorted(p, key=lambda key: (p[key] / weights[key], key))
    sure = True
    share = math.fsum(weights[key] for key in left)
    for rank, key in enumerate(left):
        levels[key] = alpha * weights[key] / share
        sure = sure and p[key] < levels[key]
        if sure:
            share = math.fsum(weights[key] for key in left[rank + 1 :])
    return levels


def shares(keys: Iterable[str], primary: str) -> dict[str, float]:
    """Return the weight of each gated metric: the primary has most of the error, the others share the rest."""
    rest = [key for key in keys if key != primary]
    return {primary: PRIMARY_SHARE if rest else 1.0} | {key: (1 - PRIMARY_SHARE) / len(rest) for key in rest}
