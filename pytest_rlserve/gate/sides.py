"""Both sides of an explanation: one metric over the runs that the comparison itself looks at."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_rlserve.gate.identity import job_names
from pytest_rlserve.gate.statistics import compared_inside
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.metrics import Scope

    Jobs = dict[str, list[float]]


def sides(baseline: Baseline, captures: Sequence[Capture], key: str, scope: Scope) -> tuple[Jobs, Jobs]:
    """Return job → values on both sides, of the baseline's jobs those that the comparison looks at."""
    before: Jobs = baseline.values(key)
    after: Jobs = {}
    for capture, job in zip(captures, job_names(captures), strict=True):
        value = measuring.measure(capture, key, scope).value
        if value is not None:
            after.setdefault(job, []).append(value)
    inside = bool(after) and compared_inside(before, after, baseline.carried(key))
    return {job: values for job, values in before.items() if job in after or not inside}, after


def change(
    baseline: Baseline,
    captures: Sequence[Capture],
    key: str,
    scope: Scope,
    scaled: Callable[[float], float] = float,
) -> float | None:
    """Return by how much the mean over jobs moved; None where a run lacks the metric or defines it otherwise."""
    measured = [measuring.measure(capture, key, scope) for capture in captures]
    known = baseline.document["definitions"].get(key, {}).get("digest")
    if any(one.value is None or one.definition["digest"] != known for one in measured):
        return None
    before, after = sides(baseline, captures, key, scope)
    return mean_of_jobs(after, scaled) - mean_of_jobs(before, scaled) if before and after else None


def mean_of_jobs(jobs: Mapping[str, Sequence[float]], scaled: Callable[[float], float] = float) -> float:
    """Return the mean over jobs of the mean over their runs, each value on a scale."""
    return _mean(_mean(map(scaled, values)) for values in jobs.values())


def _mean(values: Iterable[float]) -> float:
    some = list(values)
    return math.fsum(some) / len(some)
