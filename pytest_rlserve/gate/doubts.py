"""What a reader should know before believing a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.gate.factors import changed_factors, contradicted
from pytest_rlserve.gate.workload import unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.gate.decision import Result

SUSPICIOUS = 0.30
"""An improvement beyond this is more often lost work than a better server."""


def doubts(baseline: Baseline, captures: Sequence[Capture], result: Result) -> str | None:
    """Say what speaks against taking the verdict at its word; None if nothing does."""
    notes = []
    factors = changed_factors(baseline, captures)
    if len(factors) > 1:
        notes.append(f"{len(factors)} factors differ at once, so the cause is unclear: {'; '.join(factors)}")
    elif factors:
        notes.append(f"factor under test: {factors[0]}")
    notes += contradicted(captures)
    if side := unseen(baseline.document.get("workload"), captures):
        notes.append(f"whether it is the same traffic was not measured: {side}")
    stored = {run["capture"] for run in baseline.runs}
    again = [capture.name for capture in captures if capture.digest in stored]
    if again:
        notes.append(f"{', '.join(again)} is itself one of the baseline's runs")
    if result.single_job and result.verdict == "regressed":
        notes.append("single-job evidence under an assumed noise")
    if result.verdict == "improved" and result.delta is not None and abs(result.delta) > SUSPICIOUS:
        notes.append("suspiciously large: look for stale reuse or lost work before believing it")
    return "; ".join(notes) or None
