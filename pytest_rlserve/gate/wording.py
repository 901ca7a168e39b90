"""What a comparison says: the fact with both numbers, where they come from, why it may be, what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve import units
from pytest_rlserve.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_rlserve.gate.compare import Comparison
    from pytest_rlserve.gate.decision import Result
    from pytest_rlserve.metrics import Measurement

_ACCEPT = 'to accept this level: pytest --rl-trace=… --rl-baseline-update --rl-baseline-reason="…"'
_ORIGINS = {
    "measured": "measured between jobs",
    "assumed": "assumed, for want of three baseline jobs",
    "same job": "between runs of one job",
    "pairs": "between interleaved pairs",
}


def compared(known: Comparison, result: Result, file: str) -> str:
    """Say how current runs compare with the baseline in `file`."""
    lines = [
        f"{known.metric} {_headline(known, result)}",
        f"{_side('baseline', result.baseline, known.baseline, known.unit)}   {file}",
        _side("current", result.current, known.current, known.unit),
    ]
    if noise := result.noise:
        spread = units.change(noise.sd, known.unit, signed=False)
        lines.append(f"  noise     {spread} ({_ORIGINS[noise.origin]}, {noise.df:g} degrees of freedom)")
    if known.causes:
        lines.append(f"  why       {known.causes.sentence()}")
    if known.why:
        lines.append(f"  note      {known.why}")
    if result.to_decide:
        lines.append(f"  to decide it: {result.to_decide}")
    if result.verdict == "regressed":
        lines.append(f"  {_ACCEPT}")
    return "\n".join(lines)


def _headline(known: Comparison, result: Result) -> str:
    unit = known.unit
    by = " by default" if known.allowed_by == "default" else ""
    allowed = f"allowed {units.change(known.allowed, unit, signed=False)}{by}"
    if unit == "count":
        allowed = "counts are compared exactly"
    if result.detectable is not None:
        allowed += f", could have seen {units.change(result.detectable, unit, signed=False)}"
    if result.delta is None:
        moved = size = f"from 0 to {units.show(result.current, unit)}"
    else:
        moved, size = units.change(result.delta, unit), f"by {units.change(abs(result.delta), unit, signed=False)}"
    match result.verdict:
        case "regressed" | "improved":
            return f"{result.verdict} {size} ({allowed})"
        case "unchanged":
            return f"is unchanged: {moved} ({allowed})"
        case _:
            return f"is inconclusive, {'suspect' if result.suspect else 'underpowered'}: {moved} ({allowed})"


def drifted(known: Comparison, result: Result, allowed: float, file: str) -> str:
    """Say that many small steps have added up, although the last one was allowed."""
    gone = "" if result.delta is None else units.change(abs(result.delta), known.unit, signed=False)
    return "\n".join(
        [
            f"{known.metric} regressed by drift: {gone} since the anchor, accepted changes taken out "
            f"(allowed {units.change(allowed, known.unit, signed=False)})",
            f"  anchor    {units.show(result.baseline, known.unit)}   the first runs of {file}",
            _side("current", result.current, known.current, known.unit),
            f"  against the newest runs alone it {_headline(known, known.result)}" if known.result else "",
            f"  {_ACCEPT}",
        ]
    ).replace("\n\n", "\n")


def no_baseline(known: Comparison, why: str | None) -> str:
    """Say that the series has no baseline."""
    return (
        f"{known.metric} has no baseline yet\n{_now(known, why)}\n"
        "  to record one: pytest --rl-trace=… --rl-baseline-update"
    )


def looked_for(message: str, path: Path) -> str:
    """Put under the first line of a message which baseline file there is none of."""
    first, _, rest = message.partition("\n")
    others = sorted(one.name for one in path.parent.glob("*.json"))
    place = f"{path.parent.name}/{path.name}{nearest(path.name, others)}"
    return f"{first}\n  looked for {place}\n{rest}"


def new_metric(known: Comparison, file: str) -> str:
    """Say that the baseline does not know this metric."""
    return (
        f"{known.metric} is new: {file} has no value of it, so there is no baseline to compare with yet\n"
        f"{_now(known, None)}\n  to add it: pytest --rl-trace=… --rl-baseline-update-new"
    )


def _now(known: Comparison, why: str | None) -> str:
    values = [value for _, value in known.current]
    if not values:
        return f"  not observed: {why}"
    return _side("current", sum(values) / len(values), known.current, known.unit)


def not_comparable(known: Comparison, file: str, reasons: Sequence[str]) -> str:
    """Say which keys differ so that a comparison would mean nothing."""
    listed = "".join(f"\n  {reason}" for reason in reasons)
    return (
        f"{known.metric} cannot be compared with {file}:{listed}\n"
        "  compare captures of one series, or name another: --rl-series=NAME"
    )


def unobserved(missing: Measurement, *, in_baseline: bool) -> str:
    """Say that a value is not there, and whether it was there before."""
    where = "is in the baseline but was not measured" if in_baseline else "cannot be observed"
    return f"{missing.name} {where} in {missing.capture}: {missing.why}"


def _side(label: str, value: float | None, runs: Sequence[tuple[str, float]], unit: str) -> str:
    shown = units.show(value, unit)
    if not runs:
        return f"  {label:<9} {shown}"
    values = [one for _, one in runs]
    count, jobs = len(values), len({job for job, _ in runs})
    spread = f", {units.show(min(values), unit)} … {units.show(max(values), unit)}" if count > 1 else ""
    return f"  {label:<9} {shown}  ({count} run{'s' * (count > 1)} of {jobs} job{'s' * (jobs > 1)}{spread})"
