"""Question 2: do client and server tell the same time?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve import units
from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.columns import codes, groups, reals, whole
from pytest_rlserve.joins.clocks import ROUNDING, SLACK, Offset, Pairs, pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture, Severity

_NAME = "clocks_agree"
_FIRST, _LAST = 1e9, 1e11
"""Seconds since the epoch that a run may happen at: from 2001 on, and below what milliseconds would be."""
_UNITS = ((1e17, "nanoseconds"), (1e14, "microseconds"), (_LAST, "milliseconds"))
_INSTANTS = (("attempt_events", "t"), ("control_events", "t"), ("scalars", "received_at"), ("scalars", "ended_at"))
_FEW_STEPS = 4
_RATIO = 100.0


@check(question=2, kinds=("rollout",), judges_clocks=True)
def clocks_agree(capture: Capture, evidence: Evidence) -> Outcome:
    """Requests are received after they were sent, and answered after the server was done with them.

    From all joined requests the offset between the two clocks is estimated, as an interval, for each file of
    attempt records. Up to a millisecond is rounding. An offset below 0.1 s is a warning. It fails on a larger offset,
    on one that steps, on times that no single offset explains, and on times or durations that are evidently in
    another unit. Whatever the offset, other checks and metrics withhold what it would change.
    """
    findings = [*_units(capture), *_durations(capture)]
    contradicted = total = 0
    for source, some in sorted(capture.derive(pairs).items()):
        bad = some.some(some.early | some.late)
        contradicted, total = contradicted + len(bad), total + len(some)
        findings += _apart(source, some, bad)
    why = None if total else "no request is known from both sides, by a time of the client and one of the server"
    return Outcome(observed=total - contradicted, of=total, noun="joined requests", findings=findings, inconclusive=why)


def _apart(source: str, some: Pairs, bad: Pairs) -> Iterator[Finding]:
    stretches = some.offsets
    if len(stretches) == 1:
        (offset,) = stretches
        if not offset.skew:
            yield _finding(f"the server's clock is {_range(offset)} the client's", "note", source)
            return
        text = f"the server's clock is {_range(offset)} the client's: {_disorder(bad)}"
        severe = abs(offset.skew) >= SLACK
        text += "; set both by one time server" if severe else "; what would change by that is withheld"
        yield _finding(text, "failure" if severe else "warning", source, bad)
    elif len(stretches) <= _FEW_STEPS:
        steps = ", then ".join(f"{_range(one)} from {one.since:.3f} on" for one in stretches)
        text = f"a clock was set during the run: the server's is {steps} (seconds of the client's clock)"
        yield _finding(text, "failure", source, bad)
    else:
        text = f"no offset between the clocks explains the times of {len(some):,} joined requests: {_disorder(bad)}"
        text += "; a clock runs wrong, or rows were joined with the wrong requests"
        yield _finding(text, "failure", source, bad)


def _range(offset: Offset) -> str:
    """Say where the server's clock is, in the words that go before "the client's"."""
    low, high = sorted((offset.low, offset.high))
    if high < 0:
        return f"{_seconds(-high)} to {_seconds(-low)} behind" if math.isfinite(low) else f"{_seconds(-high)} behind"
    if low > 0:
        return f"{_seconds(low)} to {_seconds(high)} ahead of" if math.isfinite(high) else f"{_seconds(low)} ahead of"
    return f"between {_seconds(-low)} behind and {_seconds(high)} ahead of"


def _seconds(value: float) -> str:
    return units.show(value, "s") if math.isfinite(value) else "any time"


def _disorder(bad: Pairs) -> str:
    early, late = int(bad.early.sum()), int(bad.late.sum())
    parts = [
        f"{early:,} were received before they were sent" if early else "",
        f"{late:,} ended on the server after they were answered" if late else "",
    ]
    return " and ".join(filter(None, parts)) or "none of them alone is out of order"


def _units(capture: Capture) -> Iterator[Finding]:
    """Find sources whose times are no seconds since the epoch."""
    seen = set()
    for table, column in _INSTANTS:
        rows = getattr(capture, table).select([column, "source", "line"])
        strange = pc.or_(pc.less(rows[column], _FIRST), pc.greater_equal(rows[column], _LAST))
        for row in rows.filter(strange).to_pylist():
            t, source = row[column], row["source"]
            if source in seen:
                continue
            seen.add(source)
            unit = next((name for bound, name in _UNITS if t >= bound), None)
            guess = f"these look like {unit}" if unit else "is this a clock that starts with the machine?"
            text = f"times are no seconds since the Unix epoch ({t:g}): {guess}"
            yield Finding(message=text, severity="failure", check=_NAME, path=source, line=row["line"])


def _durations(capture: Capture) -> Iterator[Finding]:
    """Find rows whose durations are in another unit than the difference of their own times."""
    rows = capture.scalars.select(["received_at", "ended_at", "total_time_ms", "source"]).drop_null()
    elapsed = pc.subtract(rows["ended_at"], rows["received_at"])
    long = pc.and_(pc.greater(elapsed, 10 * ROUNDING), pc.greater(rows["total_time_ms"], 0))
    ratios = reals(pc.divide(pc.multiply(elapsed.filter(long), 1e3), rows["total_time_ms"].filter(long)))
    sources = whole(rows["source"].filter(long))
    named = sources.to_numpy(zero_copy_only=False)
    for places in sorted(groups(codes(sources)), key=lambda some: str(named[some[0]])):
        ratio = float(np.median(ratios[places]))
        if not 1 / _RATIO < ratio < _RATIO:
            text = f"total_time_ms is not in milliseconds: the rows' own times are {ratio:,.3g} times as far apart"
            yield _finding(text, "failure", named[places[0]])


def _finding(message: str, severity: Severity, source: str, bad: Pairs | None = None) -> Finding:
    ids = tuple(bad.accounts.values("name")) if bad else ()
    line = bad.accounts[0].line if bad else None
    return Finding(
        message=message, severity=severity, check=_NAME, path=source, line=line, ids=ids, count=max(len(ids), 1)
    )
