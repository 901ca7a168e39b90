"""One metric of the current captures against the baseline of their series."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve import units
from pytest_rlserve.gate import statistics
from pytest_rlserve.gate.identity import changed_factors, not_comparable
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.metrics import Measurement, Scope

ComparisonVerdict = Literal[
    "unchanged", "improved", "regressed", "inconclusive", "no_baseline", "not_comparable", "invalid", "waived"
]
SUSPICIOUS = 0.30
_ASSUMED_SD = {"p95": 0.06, "p99": 0.10}
_ASSUMED_SD_OF_RATE = 0.03
_ASSUMED_SD_OF_FRACTION = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the gate says of one metric, with everything it rests on."""

    metric: str
    verdict: ComparisonVerdict
    unit: str
    better: str
    allowed: float
    message: str
    why: str | None = None
    result: statistics.Result | None = None
    baseline: tuple[tuple[str, float], ...] = ()
    """(job, value) of every baseline run."""
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
            "detectable": found.detectable if found else None,
            "bound": list(found.bound) if found and found.bound else None,
            "noise": asdict(found.noise) if found and found.noise else None,
            "jobs": {"baseline": _jobs(self.baseline), "current": _jobs(self.current)},
            "runs": {"baseline": len(self.baseline), "current": len(self.current)},
            "baseline_range": _range(self.baseline),
            "current_range": _range(self.current),
            "message": self.message,
            "why": self.why,
        }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _jobs(runs: Sequence[tuple[str, float]]) -> int:
    return len({job for job, _ in runs})


def _range(runs: Sequence[tuple[str, float]]) -> list[float] | None:
    values = [value for _, value in runs]
    return [min(values), max(values)] if values else None


def job_of(capture: Capture) -> str:
    """Return the job of a capture; captures that name none count as one job."""
    return capture.manifest.job or "unnamed"


def compare_metric(
    captures: Sequence[Capture], key: str, allowed: float, baseline: Baseline | None, scope: Scope
) -> Comparison:
    """Compare one metric of captures with a baseline.

    Raises:
        UsageError: no such metric or statistic.
    """
    measured = [measuring.measure(capture, key, scope) for capture in captures]
    first = measured[0]
    runs = tuple((job_of(c), m.value) for c, m in zip(captures, measured, strict=True) if m.value is not None)
    known = Comparison(
        metric=first.name,
        verdict="inconclusive",
        unit=first.unit,
        better=first.better,
        allowed=allowed,
        message="",
        current=runs,
    )
    if baseline is None:
        shown = (
            _side("current", _mean([v for _, v in runs]), runs, first.unit)
            if runs
            else f"  not observed: {first.why}"
        )
        text = f"{first.name} has no baseline yet\n{shown}\n  to record one: pytest --rl-trace=… --rl-baseline-update"
        return replace(known, verdict="no_baseline", message=text)
    reasons = [*not_comparable(baseline, captures), *_redefined(baseline, first)]
    if reasons:
        listed = "".join(f"\n  {reason}" for reason in reasons)
        text = (
            f"{first.name} cannot be compared with {baseline.path.name}:{listed}\n"
            f"  compare captures of one series, or name another: --rl-series=NAME"
        )
        return replace(known, verdict="not_comparable", message=text)
    stored = baseline.values(first.name)
    before = tuple((job, value) for job, values in stored.items() for value in values)
    known = replace(known, baseline=before)
    missing = next((m for m in measured if m.value is None), None)
    if missing is not None:
        return _unobserved(known, missing, bool(before))
    if not before:
        text = (
            f"{first.name} is new: {baseline.path.name} has no value of it\n"
            f"{_side('current', _mean([v for _, v in runs]), runs, first.unit)}\n"
            f"  to add it: pytest --rl-trace=… --rl-baseline-update-new"
        )
        return replace(known, verdict="no_baseline", message=text)
    jobs: dict[str, list[float]] = {}
    for job, value in runs:
        jobs.setdefault(job, []).append(value)
    linear = first.unit == "fraction"
    result = statistics.compare(
        stored,
        jobs,
        better=first.better,
        allowed=allowed,
        assumed_sd=_assumed_sd(first),
        linear=linear,
        carried=baseline.carried(first.name),
    )
    why = _doubts(baseline, captures, result)
    known = replace(known, result=result, verdict=result.verdict, why=why)
    return replace(known, message=_message(known, result, baseline))


def _redefined(baseline: Baseline, measured: Measurement) -> list[str]:
    stored = baseline.document["definitions"].get(measured.name)
    if stored is None or stored["digest"] == measured.definition["digest"]:
        return []
    return [
        f"{part} of {measured.name}: baseline {stored[part]!r}, current {value!r}"
        for part, value in measured.definition.items()
        if part != "digest" and stored[part] != value
    ] or [f"the definition of {measured.name} has changed"]


def _unobserved(known: Comparison, missing: Measurement, in_baseline: bool) -> Comparison:
    """A value the baseline has must be there; one that never was can only be asked for."""
    if in_baseline:
        text = f"{missing.name} is in the baseline but cannot be observed in {missing.capture}: {missing.why}"
        return replace(known, verdict="invalid", message=text)
    text = f"{missing.name} cannot be observed in {missing.capture}: {missing.why}"
    return replace(known, verdict="inconclusive", message=text)


def _assumed_sd(measured: Measurement) -> float:
    if measured.unit == "fraction":
        return _ASSUMED_SD_OF_FRACTION
    return _ASSUMED_SD.get(measured.name.partition(".")[2], _ASSUMED_SD_OF_RATE)


def _doubts(baseline: Baseline, captures: Sequence[Capture], result: statistics.Result) -> str | None:
    """Say what a reader should know before believing the verdict."""
    notes = []
    factors = changed_factors(baseline, captures)
    if len(factors) > 1:
        notes.append(f"{len(factors)} factors differ at once, so the cause is unclear: {'; '.join(factors)}")
    elif factors:
        notes.append(f"factor under test: {factors[0]}")
    stored = {run["capture"] for run in baseline.runs}
    again = [capture.name for capture in captures if capture.digest in stored]
    if again:
        notes.append(f"{', '.join(again)} is itself one of the baseline's runs")
    if result.single_job and result.verdict == "regressed":
        notes.append("single-job evidence under an assumed noise")
    if result.verdict == "improved" and result.delta is not None and abs(result.delta) > SUSPICIOUS:
        notes.append("suspiciously large: look for stale reuse or lost work before believing it")
    return "; ".join(notes) or None


def _message(known: Comparison, result: statistics.Result, baseline: Baseline) -> str:
    unit, allowed = known.unit, units.change(known.allowed, known.unit, signed=False)
    seen = (
        ""
        if result.detectable is None
        else f", could have seen {units.change(result.detectable, unit, signed=False)}"
    )
    size = "from 0" if result.delta is None else f"by {units.change(abs(result.delta), unit, signed=False)}"
    moved = "" if result.delta is None else f"{units.change(result.delta, unit)} "
    head = {
        "regressed": f"regressed {size} (allowed {allowed}{seen})",
        "improved": f"improved {size}{seen.replace(', could', ' (could')}{')' if seen else ''}",
        "unchanged": f"is unchanged: {moved}(allowed {allowed}{seen})",
        "inconclusive": (
            f"is inconclusive, {'suspect' if result.suspect else 'underpowered'}: {moved}(allowed {allowed}{seen})"
        ),
    }[result.verdict]
    lines = [
        f"{known.metric} {head}",
        f"{_side('baseline', result.baseline, known.baseline, unit)}   {baseline.path.name}",
        _side("current", result.current, known.current, unit),
    ]
    if result.noise:
        noise = units.change(result.noise.sd, unit, signed=False)
        lines.append(
            f"  noise     {noise} between runs ({result.noise.origin}, {result.noise.df:g} degrees of freedom)"
        )
    if known.why:
        lines.append(f"  note      {known.why}")
    if result.verdict == "inconclusive":
        more = (
            f"{result.jobs_needed} current jobs"
            if result.jobs_needed
            else "more baseline jobs: the noise is too large"
        )
        lines.append(f"  to decide it: {more}")
    if result.verdict == "regressed":
        lines.append('  to accept this level: pytest --rl-trace=… --rl-baseline-update --rl-baseline-reason="…"')
    return "\n".join(lines)


def _side(label: str, value: float | None, runs: Sequence[tuple[str, float]], unit: str) -> str:
    spread = _range(runs)
    shown = units.show(value, unit)
    if spread is None:
        return f"  {label:<9} {shown}"
    count, jobs = len(runs), _jobs(runs)
    low, high = (units.show(bound, unit) for bound in spread)
    of = f"{count} run{'s' * (count > 1)} of {jobs} job{'s' * (jobs > 1)}"
    return f"  {label:<9} {shown}  ({of}{f', {low} … {high}' if count > 1 else ''})"
