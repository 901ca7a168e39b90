"""The fold: each event is entered into the account it speaks of, and what cannot be so is a finding.

It is told one event after another, so only those are folded whose order or number says something: see `usual`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_rlserve.columns import codes
from pytest_rlserve.ledger.account import OUTCOMES
from pytest_rlserve.ledger.contradictions import Contradictions
from pytest_rlserve.ledger.events import KIND, KINDS

if TYPE_CHECKING:
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.ledger.accounts import Rows
    from pytest_rlserve.ledger.events import Events

_NONE = -1
_RETRIED, _DISPATCHED, _COMPLETED = (KIND[name] for name in ("retried", "dispatched", "completed"))
_ENDS = {KIND[name] for name in OUTCOMES}


class Fold:
    """The state of the fold. Events go by their rows, accounts by the order in which they were opened."""

    def __init__(self, events: Events, covers: dict[str, frozenset[str]], rows: Numbers) -> None:
        """Begin with no account.

        Args:
            events: among which those are that will be folded.
            covers: what each source, by its path, can tell.
            rows: the events to fold, in the order of time: all of those that speak of the same.
        """
        self._events, self._covers = events, covers
        whom = codes(events.whom[rows])
        self._stream = zip(rows.tolist(), events.kinds[rows].tolist(), whom.tolist(), strict=True)
        nobody = [_NONE] * (int(whom.max(initial=_NONE)) + 1)
        self._last, self._unended, self._undecided = nobody, nobody.copy(), nobody.copy()
        """Whom events speak of → the last account opened for it, the first that may wait for an end, or a decision."""
        self._next: list[int] = []
        """Account → the next one opened for the same."""
        self._whom: list[int] = []
        self._opened: list[int] = []
        self._ended: list[int] = []
        self._decided: list[int] = []
        """Account → the row of the event that did it."""
        self._outcomes: list[int] = []
        self._retries: dict[int, int] = {}
        """Account → the row that tells that it is a retry."""
        self._retried: dict[int, deque[int]] = {}
        """Retries whose dispatch has not been seen; it usually follows, but a framework may tell later."""
        self.wrong = Contradictions(events)

    def take_all(self) -> Rows:
        """Enter all events, in the order of time; return the accounts, and leave what is `wrong` with them."""
        for row, kind, whom in self._stream:
            if kind == _RETRIED:
                self._retried.setdefault(whom, deque()).append(row)
            elif kind == _DISPATCHED:
                self._dispatch(row, whom)
            else:
                self._settle(row, kind, whom)
        self._enter_late_retries()
        retried = [self._retries.get(account, _NONE) for account in range(len(self._opened))]
        lists = {"opened": self._opened, "ended": self._ended, "decided": self._decided, "retried": retried}
        lists["outcome"] = self._outcomes
        return {what: np.array(some, dtype=np.int64) for what, some in lists.items()}

    def _dispatch(self, row: int, whom: int) -> None:
        last = self._last[whom]
        if last != _NONE and self._says(row, "level") == "attempt":
            told, here = (self._says(one, "source") for one in (self._opened[last], row))
            other = f"; {told} tells of it, too: was a file copied?" if told != here else ""
            attempt = self._says(row, "attempt_id")
            self.wrong.tell(row, f"attempt_id {attempt!r} was dispatched again under the same id{other}")
        self._open(row, whom)

    def _open(self, row: int, whom: int) -> int:
        account, last = len(self._opened), self._last[whom]
        self._opened.append(row)
        self._whom.append(whom)
        for some in (self._next, self._ended, self._decided, self._outcomes):
            some.append(_NONE)
        if last != _NONE:
            self._next[last] = account
        for first in (self._unended, self._undecided):
            if first[whom] == _NONE:
                first[whom] = account
        self._last[whom] = account
        if retries := self._retried.get(whom):
            self._retries[account] = retries.popleft()
        return account

    def _settle(self, row: int, kind: int, whom: int) -> None:
        """Enter the end of an account, or the decision on it."""
        ends = kind in _ENDS
        account = self._waiting_for_end(whom) if ends else self._waiting_for_decision(whom)
        if account == _NONE and self._last[whom] != _NONE and self._says(row, "level") == "attempt":
            account = self._last[whom]
        if account == _NONE and not self._told(row, "dispatched"):
            account = self._open(row, whom)
        if account == _NONE:
            last = self._last[whom]  # as many ends of the request came before as it was sent
            never = f"{KINDS[kind]} {self.wrong.what(row)}, which was never dispatched before"
            self.wrong.tell(row, never if last == _NONE else self._ended_again(row, last))
        elif not ends:
            self._decide(row, kind, account)
        elif self._outcomes[account] != _NONE:
            self.wrong.tell(row, self._ended_again(row, account))
        else:
            self._outcomes[account], self._ended[account] = kind, row

    def _decide(self, row: int, kind: int, account: int) -> None:
        if (decided := self._decided[account]) != _NONE:
            before, now = self._says(decided, "event"), KINDS[kind]
            word = "twice" if before == now else f"both {before} and"
            self.wrong.tell(row, f"{self.wrong.what(row)} was {word} {now}")
            return
        if self._outcomes[account] == _NONE and not self._told(row, "completed"):
            self._outcomes[account] = _COMPLETED  # what was decided on had completed, though nobody said when
        outcome = self._outcomes[account]
        if outcome != _COMPLETED:
            state = "still open" if outcome == _NONE else KINDS[outcome]
            self.wrong.tell(row, f"{self.wrong.what(row)} was {KINDS[kind]} although it was {state}, not completed")
            return
        self._decided[account] = row

    def _waiting_for_end(self, whom: int) -> int:
        """Return the earliest account without an outcome: a request id may be sent twice at once, first come first."""
        one = self._unended[whom]
        while one != _NONE and self._outcomes[one] != _NONE:
            one = self._next[one]
        self._unended[whom] = one
        return one

    def _waiting_for_decision(self, whom: int) -> int:
        """Return the earliest account that completed and is not decided."""
        one = self._undecided[whom]
        while one != _NONE and self._outcomes[one] != _NONE and not self._is_pending(one):
            one = self._next[one]
        self._undecided[whom] = one  # all before it will never be decided again
        while one != _NONE and not self._is_pending(one):
            one = self._next[one]
        return one

    def _is_pending(self, account: int) -> bool:
        return self._outcomes[account] == _COMPLETED and self._decided[account] == _NONE

    def _says(self, row: int, name: str) -> Any:
        return self._events.values(name)[row]

    def _told(self, row: int, axis: str) -> bool:
        """Tell whether the source of an event speaks of that axis; a table without sources speaks of all."""
        covers = self._covers.get(self._says(row, "source"))
        return covers is None or axis in covers

    def _ended_again(self, row: int, account: int) -> str:
        latest = (self._decided[account], self._ended[account], self._opened[account])
        outcome, rows = KINDS[self._outcomes[account]], [one for one in latest if one != _NONE]
        return self.wrong.ended_again(row, outcome, self._ended[account], rows)

    def _enter_late_retries(self) -> None:
        """Give retries that were told after the dispatch to the last account that is none yet."""
        left = {whom: rows for whom, rows in sorted(self._retried.items()) if rows}
        late: dict[int, list[int]] = {whom: [] for whom in left}
        for account, whom in enumerate(self._whom if left else ()):
            if whom in late and account not in self._retries:
                late[whom].append(account)
        for whom, rows in left.items():
            for row in rows:
                if late[whom]:
                    self._retries[late[whom].pop()] = row
                else:
                    message = f"retried {self.wrong.what(row)}, which was never dispatched or already retried"
                    self.wrong.tell(row, message)
