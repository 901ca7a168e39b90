"""Is it the same traffic? The workload as the trace shows it, small enough to be kept in a baseline.

Sampled text differs between repeats, so identity is measured: the prompts of first turns must overlap, and the
mean lengths must agree. A prompt is known by the last hash of its blocks, which stands for the whole chain. Of
many prompts the smallest hashes are kept (a bottom-k sketch: E. Cohen and H. Kaplan, Summarizing data using
bottom-k sketches, PODC 2007), which estimate the overlap of the whole sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve import units
from pytest_rlserve.columns import codes, given, known, reals
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.gate.rounding import rounded
from pytest_rlserve.metrics.served import completed_numbers, completed_rows
from pytest_rlserve.scattered import ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Numbers

_KEPT = 256
_OVERLAP = 0.95
_LENGTHS = 0.03


def workload_of(captures: Sequence[Capture]) -> dict[str, Any] | None:
    """Return the workload of captures taken together; None where a trace does not show it."""
    shown = [capture.derive(_workload) for capture in captures]
    known = [one for one in shown if one]
    if not known or len(known) < len(shown):
        return None
    chains = sorted({int(chain) for one in known for chain in one["chains"]})[:_KEPT]
    lengths = {name: sum(one[name] for one in known) / len(known) for name in ("input_tokens", "output_tokens")}
    return {"chains": [str(chain) for chain in chains], **{name: rounded(value) for name, value in lengths.items()}}


def _workload(capture: Capture) -> dict[str, Any] | None:
    try:
        rows = completed_rows(capture)
    except NotMeasurable:
        return None
    inputs, outputs = pc.coalesce(rows["input_tokens"], rows["input_length"]), rows["output_tokens"]
    told = pc.and_(pc.is_valid(inputs), pc.is_valid(outputs))
    lengths = {"input_tokens": inputs.filter(told), "output_tokens": outputs.filter(told)}
    numbers = np.array(completed_numbers(capture))[_first_turns(rows)]
    chains = set(ends(capture.chains).take(pa.array(numbers)).drop_null().to_pylist())
    if not chains or not len(lengths["input_tokens"]):
        return None
    means = {name: pc.sum(some).as_py() / len(some) for name, some in lengths.items()}
    return {"chains": [str(chain) for chain in sorted(chains)[:_KEPT]], **means}


def _first_turns(rows: pa.Table) -> Numbers:
    """Return the places of the rows that each session began with."""
    sessions, received = given(rows["session_id"]), reals(rows["received_at"])
    some = np.flatnonzero(known(sessions) & ~np.isnan(received))
    order = some[np.argsort(received[some], kind="stable")]
    _, first = np.unique(codes(sessions)[order], return_index=True)
    found: Numbers = order[first]
    return found


def workload_differences(baseline: Mapping[str, Any] | None, current: Mapping[str, Any] | None) -> list[str]:
    """List in which figures two workloads differ too much to be compared; none where either is not shown."""
    if not baseline or not current:
        return []
    found = []
    shared = _overlap({int(c) for c in baseline["chains"]}, {int(c) for c in current["chains"]})
    if shared < _OVERLAP:
        needed = units.percent(_OVERLAP, signed=False)
        found.append(f"workload: {units.percent(shared, signed=False)} of first prompts are shared, {needed} needed")
    for name in ("input_tokens", "output_tokens"):
        before, after = baseline[name], current[name]
        if abs(after - before) > _LENGTHS * before:
            said = f"mean {name.replace('_', ' ')} {before:,.1f} in the baseline, {after:,.1f} in current runs"
            found.append(f"workload: {said} ({units.percent(_LENGTHS, signed=False)} allowed)")
    return found


def unseen(baseline: Mapping[str, Any] | None, captures: Sequence[Capture]) -> str:
    """Say which side does not show its workload although the other does; an empty string if both are alike."""
    current = workload_of(captures)
    if bool(baseline) == bool(current):
        return ""
    return f"the {'current runs do' if baseline else 'baseline does'} not show it"


def _overlap(some: set[int], others: set[int]) -> float:
    """Estimate the share of the smaller set that is in the other one, by the smallest hashes of both."""
    bound = min(max(side) if len(side) == _KEPT else 2**64 for side in (some, others))
    some, others = ({one for one in side if one <= bound} for side in (some, others))
    return len(some & others) / max(len(some), len(others), 1)
