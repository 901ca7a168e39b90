"""Which served row belongs to which attempt, and why a request has none.

Keys, strongest first: the response id (`chatcmpl-` or `cmpl-` before the row's request id), the x-request-id
(which is not unique), the session (one to many). Two shares come out, never one: rows joined of all rows, and
served of what should have been served with a trace.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import codes, given, known, sorted_rows, whole
from pytest_rlserve.joins.residuals import reasons
from pytest_rlserve.ledger import Account, ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.ledger import Accounts, Ledger

_RESPONSE_PREFIXES = ("chatcmpl-", "cmpl-")
_NOBODY = -1


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
    result = Joined(accounts, level, _by_response(own, whole(rows["request_id"])))
    arrivals = _arrivals(rows)
    answered = np.flatnonzero(result.owner != _NOBODY)
    free = arrivals[result.owner[arrivals] == _NOBODY].tolist()
    found, free = _by_request_id(result, own, rows["x_request_id"], free)
    found += _by_session(result, accounts.attempts or own, rows["session_id"], free)
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


def _by_response(own: Accounts, request_ids: pa.Array) -> Numbers:
    """Return the owner of each row by response id; of several accounts with one, the last."""
    responses = given(own.column("response_id"))
    backwards = np.flatnonzero(known(responses))[::-1]
    bare = responses.take(pa.array(backwards))
    for prefix in _RESPONSE_PREFIXES:
        bare = _without(prefix, bare)
    places = pc.index_in(request_ids, value_set=bare)
    if not len(backwards):
        return _nobody(request_ids)
    return np.where(known(places), own.numbers[backwards][pc.fill_null(places, 0)], _NOBODY)


def _without(prefix: str, texts: pa.Array) -> pa.Array:
    """Take a prefix off the texts that begin with it; usually all do, or none."""
    begin = pc.starts_with(texts, prefix)
    if not pc.any(begin).as_py():
        return texts
    bare = pc.utf8_slice_codeunits(texts, len(prefix))
    return bare if pc.all(begin).as_py() else pc.if_else(begin, bare, texts)


def _nobody(rows: pa.Array) -> Numbers:
    return np.full(len(rows), _NOBODY, dtype=np.int64)


def _by_request_id(
    result: Joined, own: Accounts, names: pa.ChunkedArray, free: list[int]
) -> tuple[list[int], list[int]]:
    """Give rows to who sent their x-request-id, one each to those who sent the same; return these and what is left."""
    found, left, met = list[int](), list[int](), set[str]()
    if not free:
        return found, left
    # A request whose answer had an id of its own is another one than a row with a different id.
    claimed = np.isin(own.numbers, result.owner)
    if (result.owner != _NOBODY).any():
        claimed |= known(own.column("response_id"))
    of_request: dict[str, deque[int]] = defaultdict(deque)
    attempts = dict(zip(own.numbers.tolist(), own.attempts.tolist(), strict=True))
    for number, ids, gone in zip(attempts, own.values("x_request_ids"), claimed.tolist(), strict=True):
        if result.level == "attempt" or not gone:
            for one in ids:
                of_request[one].append(number)
    disputed = {name for name, some in of_request.items() if len({attempts[one] for one in some}) > 1}
    for row, name in zip(free, names.take(pa.array(free)).to_pylist(), strict=True):
        owners = of_request.get(name)
        if not owners:
            left.append(row)
        elif name in disputed:
            result.ambiguous.append(row)
            met.add(name)
        else:
            result.owner[row] = owners[0]
            found.append(row)
            if result.level == "request" and len(owners) > 1:
                owners.popleft()
    result.contested.update(number for name in met for number in of_request[name])
    return found, left


def _by_session(result: Joined, attempts: Accounts, names: pa.ChunkedArray, free: list[int]) -> list[int]:
    """Give rows to the one attempt that has their session; return these."""
    found, met = list[int](), set[str]()
    if not free:
        return found
    of_session: dict[str, set[int]] = defaultdict(set)
    sessions = zip(attempts.values("session_id"), attempts.values("session_ids"), strict=True)
    for number, (one, several) in zip(attempts.numbers.tolist(), sessions, strict=True):
        for session in (one, *(several or ())):
            if session:
                of_session[session].add(number)
    for row, name in zip(free, names.take(pa.array(free)).to_pylist(), strict=True):
        owners = of_session.get(name, ())
        if len(owners) == 1:
            (result.owner[row],) = owners
            found.append(row)
        elif owners:
            result.ambiguous.append(row)
            met.add(name)
    result.contested.update(number for name in met for number in of_session[name])
    return found


def _serve(result: Joined, arrivals: Numbers) -> None:
    """Put the rows of each account together."""
    arrived = arrivals[result.owner[arrivals] != _NOBODY]
    owners = result.owner[arrived]
    by_account = np.argsort(codes(owners), kind="stable")
    result.arrived, owners = arrived[by_account], owners[by_account]
    begins = np.flatnonzero(np.diff(owners, prepend=_NOBODY))
    result.served, result.edges = owners[begins], np.append(begins, len(owners))


def _name_strays(result: Joined, rows: pa.Table) -> None:
    ambiguous = set(result.ambiguous)
    alone = np.flatnonzero(result.owner == _NOBODY)
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
    answers = any((response or "").startswith(_RESPONSE_PREFIXES) for response in own.values("response_id"))
    return ids or sessions or answers
