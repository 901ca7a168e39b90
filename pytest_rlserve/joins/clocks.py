"""How far apart the clocks of client and server are, by what cannot have happened the other way round.

A request is received after it was sent, and ends on the server before its client has the answer. Each joined request
so bounds the offset, server's clock − client's clock: above by (received − sent), below by (ended − answered).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
