"""Which served row belongs to which attempt, and why a request has none.

Keys, strongest first: the response id (`chatcmpl-` or `cmpl-` before the row's request id), the x-request-id
(which is not unique), the session (one to many). Two shares come out, never one: rows joined of all rows, and
served of what should have been served with a trace.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_rlserve.joins.residuals import traceless
from pytest_rlserve.ledger import Account, ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_RESPONSE_PREFIXES = ("chatcmpl-", "cmpl-")
_KEYS = (
    "request_id",
    "x_request_id",
    "session_id",
    "received_at",
    "ended_at",
    "input_length",
    "source",
    "line",
)


@dataclass(slots=True)
class Joined:
    """The outcome of joining a capture's rows with its accounts."""

    level: str
    """`request` if the framework recorded single requests, else `attempt`."""
    rows: int
    owners: dict[int, Account] = field(default_factory=dict)
    """Row number of the requests table → the account it serves."""
    served: dict[int, list[int]] = field(default_factory=dict)
    """id() of an account → its row numbers, in order of arrival."""
    ambiguous: list[int] = field(default_factory=list)
    """Rows that several attempts could own; none gets them by guess."""
    contested: set[int] = field(default_factory=set)
    """id() of the accounts that could own one of those."""
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
    def joined(self) -> int:
        """Return how many rows have an owner."""
        return len(self.owners)

    def rows_of(self, account: Account) -> list[int]:
        """Return the row numbers that serve an account."""
        return self.served.get(id(account), [])


def join(capture: Capture) -> Joined:
    """Join rows with accounts; ask for it through ``capture.derive(join)``."""
    accounts = capture.derive(ledger)
    level = "request" if accounts.requests else "attempt"
    own = accounts.requests or accounts.attempts
    rows = capture.scalars.select(_KEYS).to_pylist()
    result = Joined(level=level, rows=len(rows))
    free = _by_response(result, own, rows)
    free = _by_request_id(result, own, rows, free)
    _by_session(result, accounts.attempts or own, rows, free)
    for number in sorted(result.owners, key=lambda number: _arrival(rows[number])):
        result.served.setdefault(id(result.owners[number]), []).append(number)
    if rows:
        _explain(result, own, rows)
    result.possible = bool(result.owners) or _share_a_key(own, rows)
    return result


def _by_response(result: Joined, own: tuple[Account, ...], rows: list[dict[str, Any]]) -> list[int]:
    of_response: dict[str, Account] = {}
    for account in own:
        response = account.get("response_id")
        if response:
            for prefix in _RESPONSE_PREFIXES:
                response = response.removeprefix(prefix)
            of_response[response] = account
    free = []
    for number, row in enumerate(rows):
        owner = of_response.get(row["request_id"])
        if owner is None:
            free.append(number)
        else:
            result.owners[number] = owner
    return sorted(free, key=lambda number: _arrival(rows[number]))


def _arrival(row: dict[str, Any]) -> tuple[float, str]:
    """Order rows by time: where they stand in the files says nothing."""
    return math.inf if row["received_at"] is None else row["received_at"], row["request_id"]


def _by_request_id(result: Joined, own: tuple[Account, ...], rows: list[dict[str, Any]], free: list[int]) -> list[int]:
    taken = {id(owner) for owner in result.owners.values()}
    of_request: dict[str, list[Account]] = defaultdict(list)
    for account in own:
        # A request whose answer had an id of its own is another one than a row with a different id.
        answered = bool(taken) and account.get("response_id") is not None
        if account.level == "attempt" or not (answered or id(account) in taken):
            for one in account.x_request_ids:
                of_request[one].append(account)
    left = []
    for number in free:
        owners = of_request.get(rows[number]["x_request_id"] or "", [])
        if len({owner.attempt for owner in owners}) > 1:
            result.ambiguous.append(number)
            result.contested.update(map(id, owners))
        elif owners:
            result.owners[number] = owners[0]
            if owners[0].level == "request" and len(owners) > 1:
                owners.pop(0)
        else:
            left.append(number)
    return left


def _by_session(result: Joined, attempts: tuple[Account, ...], rows: list[dict[str, Any]], free: list[int]) -> None:
    of_session: dict[str, set[int]] = defaultdict(set)
    by_id = {id(account): account for account in attempts}
    for account in attempts:
        for session in (account.get("session_id"), *(account.get("session_ids") or ())):
            if session:
                of_session[session].add(id(account))
    for number in free:
        owners = of_session.get(rows[number]["session_id"] or "", set())
        if len(owners) == 1:
            result.owners[number] = by_id[next(iter(owners))]
        elif owners:
            result.ambiguous.append(number)
            result.contested |= owners


def _explain(result: Joined, own: tuple[Account, ...], rows: list[dict[str, Any]]) -> None:
    ambiguous = set(result.ambiguous)
    for number, row in enumerate(rows):
        if number not in result.owners:
            nameless = not (row["x_request_id"] or row["session_id"])
            why = "ambiguous key" if number in ambiguous else "no session header" if nameless else "foreign row"
            result.strays.setdefault(why, []).append(number)
    for account in own:
        served = len(result.rows_of(account))
        why = traceless(account)
        if why == "lost row":
            short = bool(served) and account.level == "attempt" and served < (account.get("turns") or 0)
            result.traceable += 1
            result.traceable_served += bool(served) and not short
            if short:
                result.without_row.setdefault("lost turn", []).append(account)
            elif id(account) in result.contested:
                why = "ambiguous key"
            elif not _has_key(account) or ("no session header" in result.strays and not account.get("response_id")):
                why = "no session header"
        if not served:
            result.without_row.setdefault(why, []).append(account)


def _has_key(account: Account) -> bool:
    sessions = account.get("session_id") or account.get("session_ids")
    return bool(account.x_request_ids or account.get("response_id") or sessions)


def _share_a_key(own: tuple[Account, ...], rows: list[dict[str, Any]]) -> bool:
    ids = any(account.x_request_ids for account in own) and any(row["x_request_id"] for row in rows)
    named = any(account.get("session_id") or account.get("session_ids") for account in own)
    sessions = named and any(row["session_id"] for row in rows)
    # An answer's id without Dynamo's prefix may be the engine's own, which Dynamo does not write.
    answers = any((account.get("response_id") or "").startswith(_RESPONSE_PREFIXES) for account in own)
    return ids or sessions or answers
