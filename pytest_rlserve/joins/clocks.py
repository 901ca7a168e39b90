"""How far apart the clocks of client and server are, by what cannot have happened the other way round.

A request is received after it was sent, and ends on the server before its client has the answer. Each joined request
so bounds the offset, server's clock − client's clock: above by (received − sent), below by (ended − answered).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pytest_rlserve import units
from pytest_rlserve.joins import join

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.ledger import Account

ROUNDING = 0.001
"""Dynamo writes whole milliseconds, rounded down."""
SLACK = 0.1
"""Seconds by which a server may note the end of a stream after its client has the last byte."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One request, or one attempt with all its requests, by both clocks; None where a clock says nothing."""

    account: Account
    sent: float | None
    received: float | None
    answered: float | None
    """Only of what completed: who gives up may be done before the server notices."""
    ended: float | None

    @property
    def high(self) -> float:
        """Return the largest offset that this pair allows."""
        return float("inf") if self.sent is None or self.received is None else self.received - self.sent

    @property
    def low(self) -> float:
        """Return the smallest offset that this pair allows."""
        return float("-inf") if self.answered is None or self.ended is None else self.ended - self.answered


@dataclass(frozen=True, slots=True)
class Offset:
    """Server's clock − client's clock, in seconds, as far as some pairs that follow each other bound it."""

    low: float
    high: float
    since: float
    """Client's time of the first pair."""
    n: int

    @property
    def consistent(self) -> bool:
        """Tell whether one offset can explain all of these pairs."""
        return self.low - SLACK <= self.high + ROUNDING

    @property
    def skew(self) -> float:
        """Return the offset nearest to zero that the pairs allow; 0 if they allow equal clocks."""
        if self.high + ROUNDING < 0:
            return self.high
        return self.low if self.low - SLACK > 0 else 0.0


def pairs(capture: Capture) -> dict[str, list[Pair]]:
    """Return what both sides tell of the same request, by the file in which the client's side is told."""
    joined = capture.derive(join)
    rows = capture.scalars.select(["received_at", "ended_at"]).to_pylist()
    accounts = {id(owner): owner for owner in joined.owners.values()}
    found: dict[str, list[Pair]] = defaultdict(list)
    for key, numbers in joined.served.items():
        account = accounts[key]
        received = [t for number in numbers if (t := rows[number]["received_at"]) is not None]
        ends = [t for number in numbers if (t := rows[number]["ended_at"]) is not None]
        answered = account.ended_at if account.outcome == "completed" else None
        # Of a request that was sent twice, either may have answered; the last turn of an attempt has.
        ended = (min(ends) if account.level == "request" else ends[-1]) if ends else None
        pair = Pair(account, account.dispatched_at, min(received, default=None), answered, ended)
        if pair.high < float("inf") or pair.low > float("-inf"):
            found[account.source].append(pair)
    return dict(found)


def offsets(some: Iterable[Pair]) -> list[Offset]:
    """Return the offset over time: one if it never had to change, else one for each stretch that one can explain."""
    stretches: list[Offset] = []
    for pair in sorted(some, key=_instant):
        alone = Offset(pair.low, pair.high, _instant(pair), 1)
        last = stretches[-1] if stretches else None
        if last is not None:
            both = Offset(max(last.low, alone.low), min(last.high, alone.high), last.since, last.n + 1)
            if both.consistent:
                stretches[-1] = both
                continue
        stretches.append(alone)
    return stretches


def _instant(pair: Pair) -> float:
    known = (t for t in (pair.sent, pair.answered, pair.received, pair.ended) if t is not None)
    return next(known, 0.0)


@dataclass(frozen=True, slots=True)
class Skew:
    """How far the server's clock is off the client's, where equal clocks cannot explain the times."""

    low: float
    high: float

    @property
    def most(self) -> float:
        """Return by how many seconds at most the clocks differ, as far as the pairs bound it."""
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        """Say why a verdict or a value is withheld."""
        return f"withheld: skew up to {units.show(self.most, 's')} between the clocks of server and client decides it"


def skew(capture: Capture) -> Skew | None:
    """Return the interval of offsets over all files and stretches of a run; None where the clocks may be equal.

    Control records are taken to go by the clock of the attempts: both are the framework's.
    """
    if not (capture.has("attempt_events") and capture.has("requests")):
        return None
    found = [offset for some in capture.derive(pairs).values() for offset in offsets(some)]
    if not any(offset.skew for offset in found):
        return None
    ends = [end for offset in found for end in (offset.low, offset.high) if math.isfinite(end)]
    return Skew(min(ends), max(ends))


def corrected(capture: Capture) -> tuple[Capture, ...]:
    """Return the capture with the server's times put right by either end of the skew; nothing if there is none."""
    found = capture.derive(skew)
    if found is None:
        return ()
    return tuple(_shifted(capture, -end) for end in dict.fromkeys((found.low, found.high)))


def _shifted(capture: Capture, seconds: float) -> Capture:
    scalars = capture.scalars
    for name in ("received_at", "ended_at"):
        place = scalars.column_names.index(name)
        scalars = scalars.set_column(place, scalars.schema.field(place), pc.add(scalars[name], seconds))
    return capture.replace(scalars=scalars)
