"""Which served row belongs to which attempt, and why a request has none.

Keys, strongest first: the response id (`chatcmpl-` or `cmpl-` before the row's request id), the x-request-id
(which is not unique), the session (one to many). Two shares come out, never one: rows joined of all rows, and
served of what should have been served with a trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import codes, given, known, sorted_rows, whole
from pytest_rlserve.joins.keys import NOBODY, RESPONSE_PREFIXES, by_request_id, by_response, by_session
from pytest_rlserve.joins.residuals import reasons
from pytest_rlserve.ledger import Account, ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.ledger import Accounts, Ledger


@dataclass(eq=False)
class Joined:
    """The outcome of joining a capture's rows with its accounts, which go by their numbers in the ledger."""

    ledger: Ledger
    level: str
    """`request` if the framework recorded single requests, else `attempt`."""
    owner: Numbers
    """Of each row of the requests table the account it serves; −1 where it has none."""
    order: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The rows that have an owner, those with the strongest key first."""
    answered: int = 0
    """How many of these have the id of their owner's response: rows with the same id have the same owner."""
    served: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The accounts that have a row, by the arrival of the first."""
    edges: Numbers = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """Where the rows of each of these begin among `arrived`, and the end."""
    arrived: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The rows that have an owner, account by account, and those of one account by arrival."""
    ambiguous: list[int] = field(default_factory=list)
    """Rows that several attempts could own; none gets them by guess."""
    contested: set[int] = field(default_factory=set)
    """Accounts that could own one of those."""
    strays: dict[str, list[int]] = field(default_factory=dict)
    """Name of a reason → the rows that have no owner for it."""
    without_row: dict[str, list[Account]] = field(default_factory=dict)
    """Residual name → the accounts that have no row for that reason."""
    traceable: int = 0
    """Completed accounts that should have a row."""
    traceable_served: int = 0
    possible: bool = True
    """False if rows and accounts share no kind of key at all."""

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return len(self.owner)

    @property
    def joined(self) -> int:
        """Return how many rows have an owner."""
        return len(self.order)

    @cached_property
    def owners(self) -> Mapping[int, Account]:
        """Return row number → the account it serves, for those who look at one after another."""
        accounts, numbers = self.ledger.all, self.owner[self.order].tolist()
        return {row: accounts[number] for row, number in zip(self.order.tolist(), numbers, strict=True)}

    @cached_property
    def counts(self) -> Numbers:
        """Return how many rows each account of the ledger has."""
        found: Numbers = np.zeros(len(self.ledger.all), dtype=np.int64)
        found[self.served] = np.diff(self.edges)
        return found

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return {number: place for place, number in enumerate(self.served.tolist())}

    def rows_of(self, account: Account) -> list[int]:
        """Return the row numbers that serve an account, in order of arrival."""
        place = self._places.get(account.number)
        return [] if place is None else self.arrived[self.edges[place] : self.edges[place + 1]].tolist()


def join(capture: Capture) -> Joined:
    """Join rows with accounts; ask for it through ``capture.derive(join)``."""
    accounts, rows = capture.derive(ledger), capture.scalars
    level = "request" if accounts.requests else "attempt"
    own = accounts.requests or accounts.attempts
    result = Joined(accounts, level, by_response(own, whole(rows["request_id"])))
    arrivals = _arrivals(rows)
    answered = np.flatnonzero(result.owner != NOBODY)
    free = arrivals[result.owner[arrivals] == NOBODY].tolist()
    found, free = by_request_id(result, own, rows["x_request_id"], free)
    found += by_session(result, accounts.attempts or own, rows["session_id"], free)
    result.order, result.answered = np.append(answered, np.array(found, dtype=np.int64)), len(answered)
    _serve(result, arrivals)
    if result.rows:
        _name_strays(result, rows)
        _explain(result, own)
    result.possible = bool(result.joined) or _share_a_key(own, rows)
    return result


def _arrivals(rows: pa.Table) -> Numbers:
    """Return the rows by time: where they stand in the files says nothing."""
    return sorted_rows({"received": pc.fill_null(rows["received_at"], math.inf), "request": rows["request_id"]})


def _serve(result: Joined, arrivals: Numbers) -> None:
    """Put the rows of each account together."""
    arrived = arrivals[result.owner[arrivals] != NOBODY]
    owners = result.owner[arrived]
    by_account = np.argsort(codes(owners), kind="stable")
    result.arrived, owners = arrived[by_account], owners[by_account]
    begins = np.flatnonzero(np.diff(owners, prepend=NOBODY))
    result.served, result.edges = owners[begins], np.append(begins, len(owners))


def _name_strays(result: Joined, rows: pa.Table) -> None:
    ambiguous = set(result.ambiguous)
    alone = np.flatnonzero(result.owner == NOBODY)
    named = known(given(rows["x_request_id"])) | known(given(rows["session_id"]))
    for row, told in zip(alone.tolist(), named[alone].tolist(), strict=True):
        why = "ambiguous key" if row in ambiguous else "foreign row" if told else "no session header"
        result.strays.setdefault(why, []).append(row)


def _explain(result: Joined, own: Accounts) -> None:
    """Name why an account has no row, or not all of its rows."""
    why, rows = reasons(own), result.counts[own.numbers]
    lost = why == "lost row"
    short = lost & (rows > 0) & (rows < own.reals("turns")) if result.level == "attempt" else np.zeros_like(lost)
    result.traceable = int(lost.sum())
    result.traceable_served = int((lost & (rows > 0) & ~short).sum())
    for place in np.flatnonzero((rows == 0) | short).tolist():
        account, name = own[place], str(why[place])
        if short[place]:
            name = "lost turn"
        elif name == "lost row" and account.number in result.contested:
            name = "ambiguous key"
        elif name == "lost row" and not _has_key(account, nameless="no session header" in result.strays):
            name = "no session header"
        result.without_row.setdefault(name, []).append(account)


def _has_key(account: Account, *, nameless: bool) -> bool:
    """Tell whether a row of this account could be known by any of its ids; one of the `nameless` rows only by one."""
    sessions = account.get("session_id") or account.get("session_ids")
    return bool(account.get("response_id") or (not nameless and (account.x_request_ids or sessions)))


def _share_a_key(own: Accounts, rows: pa.Table) -> bool:
    def any_of(values: Iterable[object]) -> bool:
        return any(map(bool, values))

    ids = any_of(own.values("x_request_ids")) and any_of(rows["x_request_id"].to_pylist())
    named = any_of(own.values("session_id")) or any_of(own.values("session_ids"))
    sessions = named and any_of(rows["session_id"].to_pylist())
    # An answer's id without Dynamo's prefix may be the engine's own, which Dynamo does not write.
    answers = any((response or "").startswith(RESPONSE_PREFIXES) for response in own.values("response_id"))
    return ids or sessions or answers
