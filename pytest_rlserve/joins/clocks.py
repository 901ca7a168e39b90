"""How far apart the clocks of client and server are, by what cannot have happened the other way round.

A request is received after it was sent, and ends on the server before its client has the answer. Each joined request
so bounds the offset, server's clock − client's clock: above by (received − sent), below by (ended − answered).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve import units
from pytest_rlserve.columns import mask, reals
from pytest_rlserve.joins import join

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Mask, Reals
    from pytest_rlserve.ledger import Accounts

ROUNDING = 0.001
"""Dynamo writes whole milliseconds, rounded down."""
SLACK = 0.1
"""Seconds by which a server may note the end of a stream after its client has the last byte."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Requests, or attempts with all their requests, that both clocks tell of: what each says of the offset."""

    accounts: Accounts
    low: Reals
    """The smallest offset that it allows, by its end; minus infinity where a clock says nothing of that."""
    high: Reals
    """The largest offset that it allows, by its start."""
    instants: Reals
    """When it was, by the client's clock if that tells."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.low)

    @property
    def early(self) -> Mask:
        """Mark what was received before it was sent."""
        found: Mask = self.high + ROUNDING < 0
        return found

    @property
    def late(self) -> Mask:
        """Mark what ended on the server after it was answered."""
        found: Mask = self.low - SLACK > 0
        return found

    def some(self, places: Mask) -> Pairs:
        """Return some of them."""
        accounts = self.accounts.some(np.flatnonzero(places))
        return Pairs(accounts, self.low[places], self.high[places], self.instants[places])

    @cached_property
    def offsets(self) -> list[Offset]:
        """Return the offset over time: one if it never had to change, else one for each stretch that one explains."""
        stretches: list[Offset] = []
        low, high, since, n = -math.inf, math.inf, 0.0, 0
        order = np.argsort(self.instants, kind="stable")
        bounds = (some[order].tolist() for some in (self.low, self.high, self.instants))
        for least, most, t in zip(*bounds, strict=True):
            both = least if least > low else low, most if most < high else high
            if n and both[0] - SLACK > both[1] + ROUNDING:  # one offset cannot explain these any longer
                stretches.append(Offset(low, high, since, n))
                n, both = 0, (least, most)
            (low, high), since, n = both, since if n else t, n + 1
        return [*stretches, Offset(low, high, since, n)] if n else stretches


@dataclass(frozen=True, slots=True)
class Offset:
    """Server's clock − client's clock, in seconds, as far as some pairs that follow each other bound it."""

    low: float
    high: float
    since: float
    """Client's time of the first pair."""
    n: int

    @property
    def skew(self) -> float:
        """Return the offset nearest to zero that the pairs allow; 0 if they allow equal clocks."""
        if self.high + ROUNDING < 0:
            return self.high
        return self.low if self.low - SLACK > 0 else 0.0


def pairs(capture: Capture) -> dict[str, Pairs]:
    """Return what both sides tell of the same request, by the file in which the client's side is told."""
    joined = capture.derive(join)
    if not joined.joined:
        return {}
    accounts, begins = joined.ledger.all.some(joined.served), joined.edges[:-1]
    starts, ends = (reals(capture.scalars[name])[joined.arrived] for name in ("received_at", "ended_at"))
    received, first_end = np.fmin.reduceat(starts, begins), np.fmin.reduceat(ends, begins)
    last_told = np.maximum.reduceat(np.where(np.isnan(ends), -1, np.arange(len(ends))), begins)
    last_end = np.where(last_told < 0, np.nan, ends[last_told])
    # Of a request that was sent twice, either may have answered; the last turn of an attempt has.
    ended = np.where(mask(pc.equal(accounts.column("level"), "request")), first_end, last_end)
    # Who gives up may be done before the server notices, so only what completed was answered.
    answered = np.where(accounts.are("completed"), accounts.reals("ended_at"), np.nan)
    sent = accounts.reals("dispatched_at")
    instants = np.zeros(len(accounts))
    for told in (ended, received, answered, sent):
        instants = np.where(np.isnan(told), instants, told)
    found = Pairs(
        accounts,
        low=np.where(np.isnan(ended - answered), -math.inf, ended - answered),
        high=np.where(np.isnan(received - sent), math.inf, received - sent),
        instants=instants,
    )
    told = np.isfinite(found.low) | np.isfinite(found.high)
    sources = accounts.column("source").dictionary_encode()
    files = {str(name): code for code, name in enumerate(sources.dictionary.to_pylist())}
    parts = {name: told & (sources.indices.to_numpy() == files[name]) for name in sorted(files)}
    return {name: found.some(some) for name, some in parts.items() if some.any()}


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
    found = [offset for some in capture.derive(pairs).values() for offset in some.offsets]
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
