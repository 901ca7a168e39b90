"""One metric of the current captures against the baseline of their series."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve.gate import statistics, wording
from pytest_rlserve.gate.decision import ALPHA, Result, decide, decide_with_zero
from pytest_rlserve.gate.doubts import across_versions, cautions, doubts, not_improved
from pytest_rlserve.gate.identity import job_names, not_comparable
from pytest_rlserve.gate.rounding import rounded
from pytest_rlserve.gate.scales import assumed_sd, head_start, is_exact, is_linear, raised
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.attribution import Causes
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.metrics import Better, Measurement, Scope

ComparisonVerdict = Literal[
    "unchanged", "improved", "regressed", "inconclusive", "no_baseline", "not_comparable", "invalid", "waived"
]
AllowedBy = Literal["policy", "default", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the gate says of one metric, with everything it rests on."""

    metric: str
    verdict: ComparisonVerdict
    unit: str
    better: Better
    allowed: float
    message: str
    allowed_by: AllowedBy = "test"
    """Who says how much is allowed: the policy, this package's default for such a metric, or a test."""
    why: str | None = None
    caution: str | None = None
    """What deserves a warning whatever the verdict."""
    result: Result | None = None
    causes: Causes | None = None
    """The change taken apart, for the primary metric."""
    baseline: tuple[tuple[str, float], ...] = ()
    """(job, value) of every baseline run that is compared: inside a job, only its own."""
    current: tuple[tuple[str, float], ...] = ()

    def record(self) -> dict[str, Any]:
        """Return it as the report's `comparisons` entry."""
        found = self.result
        return {
            "metric": self.metric,
            "verdict": self.verdict,
            "unit": self.unit,
            "better": self.better,
            "baseline": found.baseline if found else None,
            "current": found.current if found else _mean([value for _, value in self.current]),
            "delta": found.delta if found else None,
            "allowed": self.allowed,
            "allowed_by": self.allowed_by,
            "detectable": found.detectable if found else None,
            "needed": found.needed if found else None,
            "bound": list(found.bound) if found and found.bound else None,
            "noise": asdict(found.noise) if found and found.noise else None,
            "jobs": {"baseline": jobs_of(self.baseline), "current": jobs_of(self.current)},
            "runs": {"baseline": len(self.baseline), "current": len(self.current)},
            "baseline_range": value_range(self.baseline),
            "current_range": value_range(self.current),
            "message": self.message,
            "why": self.why,
            "caution": self.caution,
        }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def jobs_of(runs: Sequence[tuple[str, float]]) -> int:
    """Count the jobs of (job, value) pairs."""
    return len({job for job, _ in runs})


def value_range(runs: Sequence[tuple[str, float]]) -> list[float] | None:
    """Return the smallest and the largest value, or None if there is none."""
    values = [value for _, value in runs]
    return [min(values), max(values)] if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A comparison up to its estimate. `comparison` is final where there is nothing to estimate."""

    comparison: Comparison
    estimate: statistics.Estimate | None = None
    zero: Result | None = None
    """The decision where there is no ratio: counts, which are exact, and 0 on a positive scale."""
    scope: Scope | None = None
    """What the policy says about how the metric is taken."""

    @property
    def linear(self) -> bool:
        """Tell whether changes are differences."""
        return is_linear(self.comparison.unit)


def prepare(captures: Sequence[Capture], key: str, allowed: float, baseline: Baseline | None, scope: Scope) -> Prepared:
    """Hold one metric of captures against a baseline, up to the estimate of the harm.

    Raises:
        UsageError: no such metric or statistic.
    """
    measured = [measuring.measure(capture, key, scope) for capture in captures]
    first = measured[0]
    judged = [(job, one.judged()) for job, one in zip(job_names(captures), measured, strict=True)]
    runs = tuple((job, value) for job, value in judged if value is not None)
    known = Comparison(
        metric=first.name,
        verdict="inconclusive",
        unit=first.unit,
        better=first.better,
        allowed=0.0 if is_exact(first.unit) else allowed,
        message="",
        current=runs,
    )
    if baseline is None:
        return Prepared(comparison=replace(known, verdict="no_baseline", message=wording.no_baseline(known, first.why)))
    redefined = [reason for one in measured for reason in _redefined(baseline, one)]
    reasons = [*not_comparable(baseline, captures), *dict.fromkeys(redefined)]
    if reasons:
        message = wording.not_comparable(known, baseline.path.name, reasons)
        return Prepared(comparison=replace(known, verdict="not_comparable", message=message))
    stored = baseline.values(first.name)
    known = replace(known, baseline=tuple((job, value) for job, values in stored.items() for value in values))
    missing = next((m for m in measured if m.value is None), None)
    if missing is not None:
        # A value the baseline has must be there; one that never was can only be asked for.
        verdict: ComparisonVerdict = "invalid" if known.baseline else "inconclusive"
        message = wording.unobserved(missing, in_baseline=bool(known.baseline))
        return Prepared(comparison=replace(known, verdict=verdict, message=message))
    if not known.baseline:
        message = wording.new_metric(known, baseline.path.name)
        return Prepared(comparison=replace(known, verdict="no_baseline", message=message))
    return replace(_estimated(known, captures, baseline, first), scope=scope)


def _estimated(known: Comparison, captures: Sequence[Capture], baseline: Baseline, first: Measurement) -> Prepared:
    linear = is_linear(known.unit)
    stored, current = (raised(by_job(side), known.unit) for side in (known.baseline, known.current))
    values = [value for side in (stored, current) for some in side.values() for value in some]
    if is_exact(known.unit) or (not linear and min(values) <= 0):
        current = {job: [rounded(value) for value in values] for job, values in current.items()}  # as it is stored
        before, after = (_mean([_mean(v) or 0.0 for v in side.values()]) or 0.0 for side in (stored, current))
        return Prepared(comparison=known, zero=decide_with_zero(before, after, first.better))
    if statistics.compared_inside(stored, current, baseline.carried(known.metric)):
        known = replace(known, baseline=tuple(one for one in known.baseline if one[0] in current))  # those to show
    pairs = baseline.pairs(known.metric, captures, [value for _, value in known.current])
    start = head_start(known.unit)
    pairs = {name: ([v + start for v in old], [v + start for v in new]) for name, (old, new) in pairs.items()}
    found = statistics.estimate_pairs(pairs, better=first.better, linear=linear) if pairs else None
    found = found or statistics.estimate(
        stored,
        current,
        better=first.better,
        assumed_sd=assumed_sd(known.metric, known.unit),
        linear=linear,
        carried=baseline.carried(known.metric),
    )
    return Prepared(
        comparison=known, estimate=replace(found, baseline=found.baseline - start, current=found.current - start)
    )


def conclude(
    prepared: Prepared,
    captures: Sequence[Capture],
    baseline: Baseline | None,
    *,
    alpha: float = ALPHA,
    level: float | None = None,
    causes: Causes | None = None,
) -> Comparison:
    """Decide on what was prepared; `level` is the metric's share of `alpha` where several are judged together."""
    known = prepared.comparison
    if baseline is None or (prepared.estimate is None and prepared.zero is None):
        return known
    result = prepared.zero
    if prepared.estimate is not None:
        result = decide(
            prepared.estimate,
            better=known.better,
            allowed=known.allowed,
            linear=prepared.linear,
            alpha=alpha,
            level=level,
        )
    assert result is not None
    if stale := across_versions(captures, known.metric, prepared.scope):
        result = not_improved(result)
    known = replace(
        known,
        result=result,
        verdict=result.verdict,
        causes=causes,
        why=doubts(baseline, captures, result, stale),
        caution="; ".join(cautions(baseline, captures)) or None,
    )
    return replace(known, message=wording.compared(known, result, baseline.path.name))


def by_job(runs: Sequence[tuple[str, float]]) -> dict[str, list[float]]:
    """Group (job, value) pairs by job."""
    jobs: dict[str, list[float]] = {}
    for job, value in runs:
        jobs.setdefault(job, []).append(value)
    return jobs


def _redefined(baseline: Baseline, measured: Measurement) -> list[str]:
    stored = baseline.document["definitions"].get(measured.name)
    if stored is None or stored["digest"] == measured.definition["digest"]:
        return []
    return [
        f"{part} of {measured.name}: baseline {stored[part]!r}, current {value!r}"
        for part, value in measured.definition.items()
        if part != "digest" and stored[part] != value
    ] or [f"the definition of {measured.name} has changed"]
