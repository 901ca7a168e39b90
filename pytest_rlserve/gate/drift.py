"""Many small steps that add up: the current runs against the anchor, with every accepted change taken out.

Each step may be allowed, and the newest level may have followed them down; the anchor, the first jobs of the
first level, has not moved.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_rlserve.gate import statistics
from pytest_rlserve.gate.decision import ALPHA, Result, decide
from pytest_rlserve.gate.scales import head_start, raised

if TYPE_CHECKING:
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.gate.statistics import Jobs
    from pytest_rlserve.metrics import Better

FACTOR = 2
"""The drift that is allowed, in allowed single changes."""


def drift(
    baseline: Baseline,
    key: str,
    current: Jobs,
    *,
    better: Better,
    allowed: float,
    linear: bool,
    assumed_sd: float,
    unit: str = "",
    alpha: float = ALPHA,
) -> tuple[Result, float] | None:
    """Compare current runs with the anchor at twice the allowed change.

    Returns the decision and the change it allowed; None if the baseline is no more than its anchor.
    """
    anchor = baseline.anchor(key)
    if not anchor or not baseline.beyond_anchor(key):
        return None
    start = head_start(unit)
    found = statistics.estimate(
        {f"anchor/{job}": values for job, values in raised(anchor, unit).items()},
        raised(current, unit),
        better=better,
        assumed_sd=assumed_sd,
        linear=linear,
        carried=statistics.pooled([baseline.carried(key), baseline.calm_spread(key, linear=linear, start=start)]),
    )
    explained, error = _explained(baseline, key, linear=linear)
    found = replace(
        found,
        baseline=found.baseline - start,
        current=found.current - start,
        step=found.step - explained,
        harm=found.harm - (explained if better == "lower" else -explained),
        error=math.hypot(found.error, error),
    )
    wide = statistics.to_change(FACTOR * statistics.to_harm(allowed, better, linear=linear), better, linear=linear)
    return decide(found, better=better, allowed=wide, linear=linear, alpha=alpha), wide


def _explained(baseline: Baseline, key: str, *, linear: bool) -> tuple[float, float]:
    """Add up the steps of this metric that were accepted with a reason, and how far off their sum may be.

    Each step was measured on a few runs, so that many accepted changes leave an error of their own.
    """
    total, variance = 0.0, 0.0
    for level in baseline.document["levels"][1:]:
        moved = level["moved"].get(key)
        if moved:
            total += moved["delta"] if linear else math.log1p(moved["delta"])
            variance += moved.get("error", 0.0) ** 2
    return total, math.sqrt(variance)
