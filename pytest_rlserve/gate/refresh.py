"""The baseline step of a run: which measurements are taken into the baseline, if any may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_rlserve.checks import default_checks
from pytest_rlserve.errors import BaselineError, UsageError
from pytest_rlserve.gate.identity import mixed_captures
from pytest_rlserve.gate.items import in_ci
from pytest_rlserve.gate.update import update
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_rlserve.gate.verdicts import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What became of it."""

    written: bool
    refused: bool
    summary: str
    changes: tuple[dict[str, Any], ...] = ()


def refresh(gate: Gate, *, only: Collection[str] | None = None, also: Mapping[str, float] | None = None) -> Refreshed:
    """Take the gate's captures into their baseline, if their evidence holds.

    Args:
        gate: the gate, which knows what was asked for.
        only: the metrics that were judged, where not all of them were.
        also: metrics that tests have compared beside the policy's, with the change each allowed.

    Raises:
        BaselineError: the baseline cannot be read or written.
        UsageError: nothing names the series.
    """
    path = gate.baseline_path()
    if mixed := mixed_captures(gate.captures):
        text = f"baseline {path.name} left as it is: the captures are not comparable with each other: {mixed}"
        return Refreshed(written=False, refused=True, summary=text)
    for name in default_checks(gate.policy.kind):
        for result in gate.results(name):
            if result.status in ("error", "fail"):
                text = f"baseline {path.name} left as it is: {name} does not hold for {result.capture}"
                return Refreshed(written=False, refused=True, summary=text)
    strictest = {**(also or {}), **gate.policy.gated}
    strictest |= {key: min(allowed, strictest[key]) for key, allowed in (also or {}).items()}
    comparisons = {
        key: gate.comparison(key, allowed) for key, allowed in strictest.items() if only is None or key in only
    }
    for key, comparison in comparisons.items():
        if comparison.verdict in ("not_comparable", "invalid"):
            text = f"baseline {path.name} left as it is: {key} is {comparison.verdict.replace('_', ' ')}"
            return Refreshed(written=False, refused=True, summary=text)
    moved = [key for key, comparison in comparisons.items() if comparison.verdict in ("regressed", "improved")]
    if only is not None and moved and gate.update.reason:
        text = (
            f"baseline {path.name} left as it is: {', '.join(moved)} opens a new level, which is for all metrics; "
            "run the whole suite"
        )
        return Refreshed(written=False, refused=True, summary=text)
    unreadable = None
    try:
        found = gate.baseline()
    except BaselineError as error:
        if not gate.update.wanted:
            raise
        found, unreadable = None, error
        if in_ci() and not gate.update.reason:
            text = (
                f"baseline {path.name} left as it is: it cannot be read, and to replace it inside CI takes "
                f'--rl-baseline-reason="…"'
            )
            return Refreshed(written=False, refused=True, summary=text)
    keys = list(dict.fromkeys([*(measuring.all_keys() if only is None else only), *comparisons]))
    if not keys:
        raise UsageError("no metric was judged, so there is nothing to take into the baseline")
    done = update(
        path,
        gate.captures,
        comparisons,
        series=gate.series_name() or "",
        scope=gate.policy.scope,
        keys=keys,
        reason=gate.update.reason,
        new_only=gate.update.new_only and not gate.update.wanted,
        found=found,
        unreadable=unreadable,
    )
    loud = "warning: the baseline is being changed inside CI: " if in_ci() and done.written else ""
    return Refreshed(
        written=done.written,
        refused="left as it is" in done.summary,
        summary=loud + done.summary,
        changes=done.changes,
    )
