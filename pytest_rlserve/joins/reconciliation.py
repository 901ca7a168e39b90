"""Every dispatch and every row in its place, for the whole capture or for each trainer step, group or run.

    dispatched = completed + canceled + failed + open          dispatched = with a row + residuals
    completed  = accepted + rejected + pending                 rows       = one for each request + strays

An attempt belongs to the step that it was dispatched for; `trained` counts those that a step accepted, whichever
step they were dispatched for. What names no step, group or run stands in a part of its own, so that the parts always
add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, get_args

import numpy as np
import pyarrow as pa

from pytest_rlserve.columns import places_of
from pytest_rlserve.joins import join
from pytest_rlserve.joins.parts import PARTS, Part, Parts, rank
from pytest_rlserve.ledger import DECISIONS, OUTCOMES, Counts, Level, ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.ledger import Accounts

__all__ = ["PARTS", "Part", "Reconciled", "reconcile"]
_T = TypeVar("_T")
_Named = dict[int, dict[str, list[str]]]
"""Part → reason → ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The accounts of one level in one part of a capture, and what they leave over."""

    level: Level
    part: str | None
    """Which step, group or run; None for the whole, and for what names none."""
    counts: Counts
    trained: int | None
    """Attempts that this step accepted, whichever step they were dispatched for; None where nothing tells."""
    outside: Mapping[str, tuple[str, ...]]
    """Reason → the requests that belong to no attempt."""
    rows: int | None
    """Served rows of this part; None where there are none to join, or rows join the other level."""
    served: int | None
    """Accounts that have a row."""
    residuals: Mapping[str, tuple[str, ...]]
    """Reason → the accounts that have no row for it, or not all of their rows."""
    strays: Mapping[str, tuple[str, ...]]
    """Reason → the rows that are no account's one row for it, by request id."""
    unexplained: tuple[str, ...]
    """Attempts of events that contradict each other or belong to no dispatch, one for each such event."""

    def sums(self) -> list[tuple[str, int, int]]:
        """Return each equation that the sources cover: its name, its left side and its right side."""
        counts, found = self.counts, list[tuple[str, int, int]]()
        for whole, *parts in (("dispatched", *OUTCOMES, "open"), ("completed", *DECISIONS, "pending")):
            left, *right = (getattr(counts, name) for name in (whole, *parts))
            if None not in (left, *right):
                found.append((f"{whole} = {' + '.join(parts)}", left, sum(right)))
        if self.served is not None and counts.dispatched is not None:
            without = sum(len(ids) for name, ids in self.residuals.items() if name != "lost turn")
            found.append(("dispatched = with a row + residuals", counts.dispatched, self.served + without))
        if self.level == "request" and self.rows is not None and self.served is not None:
            strays = sum(map(len, self.strays.values()))
            found.append(("rows = one for each request + strays", self.rows, self.served + strays))
        return found


def reconcile(capture: Capture, by: Part | None = None) -> list[Reconciled]:
    """Return what the accounts of each level come to, in each part: attempts first, parts in order."""
    accounts, joined, parts = capture.derive(ledger), capture.derive(join), Parts(capture, by)
    told = by == "step" and "accepted" in accounts.covers
    found = []
    for level in get_args(Level):
        own = accounts.of(level)
        served = bool(own) and joined.level == level and bool(joined.rows)
        members = places_of(parts.of[own.numbers])
        accepted = accounts.attempts.are("accepted") & (told and level == "attempt")
        trained = np.bincount(parts.training[accepted], minlength=len(parts.keys))
        rows = np.bincount(parts.rows[: joined.rows * served], minlength=len(parts.keys))
        wrong = _grouped((parts.named(*key[1:3]), key[2]) for key in accounts.contradictions if key[0] == level)
        strays = _strays(capture, parts) if served else {}
        outside = _named(_outside(own, accounts.attempts, parts))
        reasons = joined.without_row.items() if served else ()
        residuals = _named((parts.of[account.number], why, account.name) for why, some in reasons for account in some)
        present = {*members, *wrong, *np.flatnonzero(trained + rows).tolist()}
        for part in sorted(present, key=lambda one: rank(parts.keys[one])):
            some, key = own.some(members.get(part, slice(0))), parts.keys[part]
            found.append(
                Reconciled(
                    level=level,
                    part=None if key is None else key[2],
                    counts=accounts.count(some, level),
                    trained=int(trained[part]) if told and level == "attempt" else None,
                    outside=_told(outside.get(part, {})),
                    rows=int(rows[part]) if served else None,
                    served=int(np.count_nonzero(joined.counts[some.numbers])) if served else None,
                    residuals=_told(residuals.get(part, {})),
                    strays=_told({why: sorted(ids) for why, ids in strays.get(part, {}).items()}),
                    unexplained=tuple(wrong.get(part, ())),
                )
            )
    return found


def _strays(capture: Capture, parts: Parts) -> _Named:
    """Name the rows that are no account's one row for it."""
    reasons = parts.strays()
    names = capture.scalars["request_id"].take(pa.array(reasons, pa.int64())).to_pylist()
    return _named((parts.rows[row], why, name) for (row, why), name in zip(reasons.items(), names, strict=True))


def _outside(own: Accounts, attempts: Accounts, parts: Parts) -> Iterator[tuple[int, str, str]]:
    """Name the requests of no attempt, where attempts are recorded at all."""
    if attempts:
        for place in np.flatnonzero(~np.isin(own.attempts, attempts.attempts)).tolist():
            account = own[place]
            why = "priming or probe" if account.get("purpose") else "of no attempt"
            yield parts.of[account.number], why, account.name


def _grouped(pairs: Iterable[tuple[int, _T]]) -> dict[int, list[_T]]:
    grouped: dict[int, list[_T]] = {}
    for key, one in pairs:
        grouped.setdefault(key, []).append(one)
    return grouped


def _named(triples: Iterable[tuple[int, str, str]]) -> _Named:
    named: _Named = {}
    for key, why, name in triples:
        named.setdefault(key, {}).setdefault(why, []).append(name)
    return named


def _told(reasons: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """Return reasons in order, with their ids."""
    return {why: tuple(ids) for why, ids in sorted(reasons.items())}
