"""What a reader should know before believing a comparison's verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_rlserve import units
from pytest_rlserve.gate.factors import changed_factors, contradicted
from pytest_rlserve.gate.workload import unseen
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.gate.decision import Result
    from pytest_rlserve.metrics import Scope

SUSPICIOUS = 0.30
"""An improvement beyond this is more often lost work than a better server."""


def doubts(baseline: Baseline, captures: Sequence[Capture], result: Result, stale: Sequence[str]) -> str | None:
    """Say what speaks against taking the verdict at its word; None if nothing does."""
    factors = changed_factors(baseline, captures)
    notes = [*stale, *([f"factor under test: {factors[0]}"] if len(factors) == 1 else [])]
    notes += cautions(baseline, captures)
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


def cautions(baseline: Baseline, captures: Sequence[Capture]) -> list[str]:
    """Say of factors what deserves a warning whatever the verdict: several that differ, or one that is not true."""
    factors = changed_factors(baseline, captures)
    several = f"{len(factors)} factors differ at once, so the cause is unclear: {'; '.join(factors)}"
    return [*([several] if len(factors) > 1 else []), *contradicted(captures)]


def across_versions(captures: Sequence[Capture], key: str, scope: Scope | None) -> list[str]:
    """Name the captures whose KV reuse went across policy versions, each with what it is without that and with it."""
    measured = [measuring.measure(capture, key, scope) for capture in captures]
    return [
        f"{one.capture} reused KV of an earlier policy version (no_stale_kv): where that counts as none it is "
        f"{units.show(one.strict, one.unit)}, with the requests left out {units.show(one.value, one.unit)}; "
        f"these are {one.excluded}"
        for one in measured
        if one.strict is not None
    ]


def not_improved(result: Result) -> Result:
    """Return a result that is no improvement: what stale reuse gained is not one, and what is left is no like run."""
    if result.verdict != "improved":
        return result
    return replace(result, verdict="inconclusive", suspect=True, to_decide="a capture in which no_stale_kv holds")
