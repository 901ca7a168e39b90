"""Why the primary metric moved: factors whose logarithms add up to the whole, and the stages inside residence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_rlserve import units
from pytest_rlserve.gate.losses import losses_of, sentence
from pytest_rlserve.gate.place import place_of
from pytest_rlserve.gate.sides import mean_of_jobs, sides
from pytest_rlserve.metrics.residence import STAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.metrics import Scope

_FACTORS = {
    "in flight": ("attempts_in_flight", 1),
    "residence": ("attempt_residence", -1),
    "completion": ("window_completion_fraction", 1),
    "acceptance": ("window_acceptance_fraction", 1),
}
"""Factor → its metric, and the sign of its logarithm in that of the rate."""
EXPLAINED = "accepted_trajectory_throughput"
_WORTH_SHARING = 0.005
"""Smaller changes are noise, and shares of noise mean nothing."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One factor: its own relative change, and what it contributes to the change of the rate's logarithm."""

    name: str
    change: float
    contribution: float


@dataclass(frozen=True, slots=True)
class Causes:
    """The whole change taken apart."""

    factors: tuple[Cause, ...]
    stages: tuple[Cause, ...]
    """Parts of residence: change as a share of the baseline's residence."""
    place: str
    losses: Mapping[str, float] = field(default_factory=dict)
    """By how much KV reuse lost more to each cause, as shares of prompt tokens."""

    def sentence(self) -> str:
        """Say it in one line, the largest contribution first."""
        parts = []
        for factor in sorted(self.factors, key=lambda one: -abs(one.contribution)):
            text = f"{factor.name} {units.percent(factor.change)}"
            if factor.name == "residence" and self.stages:
                largest = max(self.stages, key=lambda one: abs(one.change))
                text += f" ({largest.name} {units.percent(largest.change)}{self.place})"
            parts.append(text)
        said = sentence(self.losses)
        return ", ".join(parts) + (f"; {said}" if said else "")

    def rows(self) -> list[dict[str, Any]]:
        """Return them as the report's `why`: delta is a factor's own change, share its part of the whole.

        The losses of KV reuse come last: they add up to the change of reuse, and have no share in the rate's.
        """
        whole = sum(factor.contribution for factor in self.factors)
        moved = abs(whole) >= _WORTH_SHARING
        named = [*self.factors, *(Cause(f"residence: {s.name}", s.change, s.contribution) for s in self.stages)]
        ranked = sorted(named, key=lambda one: (-abs(one.contribution), one.name))
        rows: list[dict[str, Any]] = [
            {
                "factor": one.name,
                "delta": one.change,
                "share": one.contribution / whole if moved else None,
                "unit": "ratio",
            }
            for one in ranked
        ]
        lost = sorted(self.losses.items(), key=lambda item: (-abs(item[1]), item[0]))
        return rows + [
            {"factor": f"KV reuse lost: {name}", "delta": grown, "share": None, "unit": "fraction"}
            for name, grown in lost
        ]


def explain(baseline: Baseline, captures: Sequence[Capture], scope: Scope) -> Causes | None:
    """Take the change of the accepted-trajectory rate apart; None where a factor is not known on both sides."""
    factors = []
    for name, (key, sign) in _FACTORS.items():
        before, after = map(_logs, sides(baseline, captures, key, scope))
        if before is None or after is None:
            return None
        factors.append(Cause(name, math.expm1(after - before), sign * (after - before)))
    residence = next(factor for factor in factors if factor.name == "residence")
    stages = _stages(baseline, captures, scope, residence)
    largest = max(stages, key=lambda one: abs(one.change)) if stages else None
    grown = largest is not None and largest.change > 0
    place = place_of(baseline, captures, largest.name, scope) if largest and grown else ""
    losses = losses_of(baseline, captures, scope)
    return Causes(tuple(factors), tuple(stages), f", most {place}" if place else "", losses)


def _logs(jobs: Mapping[str, Sequence[float]]) -> float | None:
    """Return the mean over jobs of the mean logarithm of their runs, as the comparison itself takes it."""
    if not jobs or any(value <= 0 for values in jobs.values() for value in values):
        return None
    return mean_of_jobs(jobs, math.log)


def _stages(baseline: Baseline, captures: Sequence[Capture], scope: Scope, residence: Cause) -> list[Cause]:
    """Split the change of residence by stage; the parts add up to the change in seconds."""
    moved: dict[str, float] = {}
    for name in STAGES:
        before, after = sides(baseline, captures, f"residence_{name}", scope)
        if not before or not after:
            return []
        moved[name] = mean_of_jobs(after) - mean_of_jobs(before)
    whole = mean_of_jobs(sides(baseline, captures, "attempt_residence", scope)[0])
    total = math.fsum(moved.values())
    return [
        Cause(name, seconds / whole, residence.contribution * seconds / total if total else 0.0)
        for name, seconds in moved.items()
    ]
