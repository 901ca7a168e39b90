"""Accounts as columns, for what is asked of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import given, known, picked, reals
from pytest_rlserve.ledger.account import Account
from pytest_rlserve.ledger.events import KIND, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.columns import Mask, Numbers, Reals
    from pytest_rlserve.ledger.events import Events

    Rows = dict[str, Numbers]
    """The rows of the events that `opened`, `ended`, `decided` and `retried` each account, −1 where there is none, and
    its `outcome` among `KINDS`, −1 while it is open."""

_NONE = -1
_OPENING = ("level", "run", "attempt_id", "request", "source", "line")
"""What the event says that opened an account; of everything else the latest word counts."""
_TIMES = {"dispatched_at": "opened", "ended_at": "ended", "decided_at": "decided"}


class Accounts(Sequence[Account]):
    """Accounts, with what is told of them in columns."""

    def __init__(self, events: Events, rows: Rows, numbers: Numbers) -> None:
        """Take the rows by what they did, and the numbers."""
        self._events, self._rows, self._outcomes = events, rows, rows["outcome"]
        self.numbers = numbers
        """Their numbers in the ledger."""
        self._decisions = self._kinds("decided")
        self._columns: dict[str, pa.Array] = {}
        self._values: dict[str, list[Any]] = {}

    def some(self, places: Numbers | Mask | slice) -> Accounts:
        """Return some of the accounts."""
        return Accounts(self._events, {what: rows[places] for what, rows in self._rows.items()}, self.numbers[places])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._outcomes)

    @overload
    def __getitem__(self, place: int) -> Account: ...
    @overload
    def __getitem__(self, place: slice) -> list[Account]: ...
    def __getitem__(self, place: int | slice) -> Account | list[Account]:
        """Return one account, or several."""
        found = range(len(self))[place]
        return Account(self, found) if isinstance(found, int) else [Account(self, one) for one in found]

    def __iter__(self) -> Iterator[Account]:
        """Go through the accounts."""
        return (Account(self, place) for place in range(len(self)))

    def are(self, *words: str) -> Mask:
        """Mark the accounts of one of these outcomes (`open` for none) or decisions."""
        kinds = [_NONE if word == "open" else KIND[word] for word in words]
        found: Mask = np.isin(self._outcomes, kinds)
        decided = [kind for kind in kinds if kind != _NONE]
        return found | np.isin(self._decisions, decided) if decided else found

    def that(self, *words: str) -> Accounts:
        """Return the accounts of one of these outcomes or decisions."""
        return self.some(self.are(*words))

    @property
    def decided(self) -> Mask:
        """Mark the accounts that were accepted or rejected."""
        found: Mask = self._decisions != _NONE
        return found

    @property
    def retried(self) -> Mask:
        """Mark the accounts that retry an earlier one."""
        found: Mask = self._rows["retried"] != _NONE
        return found

    @cached_property
    def attempts(self) -> Numbers:
        """Number the attempts that they belong to, by run and id: the same number for the same attempt."""
        return self._events.attempts[self._rows["opened"]]

    def names_of_attempts(self) -> list[tuple[str | None, str]]:
        """Return run and id of the attempts that they belong to."""
        return list(zip(self.values("run"), self.values("attempt_id"), strict=True))

    def column(self, name: str) -> pa.Array:
        """Return what `Account` calls by that name, or a field that events carry."""
        if name not in self._columns:
            self._columns[name] = self._column(name)
        return self._columns[name]

    def values(self, name: str) -> list[Any]:
        """Return a column as a list."""
        if name not in self._values:
            self._values[name] = self.column(name).to_pylist()
        return self._values[name]

    def reals(self, name: str) -> Reals:
        """Return a column of numbers, not a number where nothing is told."""
        return reals(self.column(name))

    def _column(self, name: str) -> pa.Array:
        if name in _OPENING:
            return picked(self._events.column(name), self._rows["opened"])
        if name in _TIMES:
            rows = self._rows[_TIMES[name]]
            told = self._kinds("opened") == KIND["dispatched"] if name == "dispatched_at" else True
            return picked(self._events.column("t"), np.where(told, rows, _NONE))
        match name:
            case "outcome":
                return picked(pa.array(KINDS), self._outcomes)
            case "acceptance":
                return picked(pa.array(KINDS), self._decisions)
            case "retried":
                return pa.array(self.retried)
            case "sent_for":
                dispatched = np.where(self._kinds("opened") < KIND["accepted"], self._rows["opened"], _NONE)
                steps = self._events.column("step")
                return pc.coalesce(picked(steps, dispatched), picked(steps, self._rows["ended"]))
            case "trained_in":
                accepted = KIND["accepted"]
                opening = np.where(self._kinds("opened") == accepted, self._rows["opened"], _NONE)
                rows = np.where(self._decisions == accepted, self._rows["decided"], opening)
                return picked(self._events.column("step"), rows)
            case "x_request_ids":
                return pa.array(self._x_request_ids(), pa.list_(pa.string()))
            case "name":
                return self._names()
        return self._carried(name)

    def _kinds(self, what: str) -> Numbers:
        rows = self._rows[what]
        return np.where(rows == _NONE, _NONE, self._events.kinds[rows]) if len(rows) else rows

    def _carried(self, name: str) -> pa.Array:
        """Return the latest word of each account; what it retries is told by the retry if by nothing else."""
        column, rows = self._events.column(name), self._rows["opened"]
        if column.null_count == len(column):
            return pa.nulls(len(self), column.type)
        told = np.append(known(column), False)  # the last is that of no row
        for later in ("ended", "decided"):
            rows = np.where(told[self._rows[later]], self._rows[later], rows)
        if name == "retry_of":
            rows = np.where(told[rows], rows, self._rows["retried"])
        return picked(column, rows)

    def _x_request_ids(self) -> list[list[str]]:
        """Return all x-request-ids of each account, in the order in which its events name them."""
        said = []
        for what in _TIMES.values():
            one, several = (picked(self._events.column(f"x_request_id{s}"), self._rows[what]) for s in ("", "s"))
            said.append(zip(one.to_pylist(), several.to_pylist(), strict=True))
        found = []
        for events in zip(*said, strict=True):
            ids = [one for single, some in events for one in (single, *(some or ())) if one]
            found.append(list(dict.fromkeys(ids)))
        return found

    def _names(self) -> pa.Array:
        """Name attempts by their id, requests by their first x-request-id, else by their response."""
        ids = (picked(self._events.first_ids, self._rows[what]) for what in _TIMES.values())
        names = pc.coalesce(*ids, given(self.column("response_id")), self.column("attempt_id"))
        return pc.if_else(pc.equal(self.column("level"), "request"), names, self.column("attempt_id"))
