"""Where a loss sits: the worker, trainer step or group that moved most.

Worker ids differ from run to run, so that no worker can be found again in the baseline. What can be compared is how
much the slowest stands out from all: where it stands out no more than it did, the loss is everywhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_rlserve.gate.sides import change
from pytest_rlserve.metrics.spread import SERVED, slowest, times_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.metrics import Scope
    from pytest_rlserve.metrics.spread import Place

_STANDS_OUT = 1.25
"""Growth of the slowest place's share over the mean, from which on it is named."""
_WORDS: dict[Place, str] = {"worker": "on worker", "step": "in step", "group": "in group"}


def place_of(baseline: Baseline, captures: Sequence[Capture], stage: str, scope: Scope) -> str:
    """Name the place that stands out more than any did in the baseline; an empty string if none does."""
    grown = [(growth, place) for place, growth in _growths(baseline, captures, stage, scope)]
    if not grown or max(grown)[0] < math.log(_STANDS_OUT):
        return ""
    place = max(grown)[1]
    name, _ = max((slowest(times_at(capture, scope, place, stage)) for capture in captures), key=lambda one: one[1])
    return f"{_WORDS[place]} {int(name):x}" if place == "worker" and name.isdigit() else f"{_WORDS[place]} {name}"


def _growths(
    baseline: Baseline, captures: Sequence[Capture], stage: str, scope: Scope
) -> Iterator[tuple[Place, float]]:
    """Yield by how much the logarithm of each place's spread grew, where both sides know it by one definition."""
    keys: dict[Place, str] = {"step": "residence_step_spread", "group": "residence_group_spread"}
    if stage in SERVED:
        keys = {"worker": f"{stage}_worker_spread", **keys}
    for place, key in keys.items():
        growth = change(baseline, captures, key, scope, math.log)
        if growth is not None:
            yield place, growth
