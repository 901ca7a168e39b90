"""Which trainer step, group or run an account or a served row belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from pytest_rlserve.joins import join
from pytest_rlserve.joins.repeats import duplicates, served_again
from pytest_rlserve.ledger import Account, ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture

Part = Literal["step", "group", "run"]
PARTS: tuple[Part, ...] = get_args(Part)
Key = tuple[int, int, str] | None
"""One part, numbers sorted before names; None is the whole capture, or what names no part."""


class Parts:
    """A capture cut by step, group or run, or not at all."""

    def __init__(self, capture: Capture, by: Part | None) -> None:
        """Cut `capture`; an attempt's requests go where it goes, if they do not say otherwise."""
        self._capture, self._by = capture, by
        accounts = capture.derive(ledger)
        self._known = {a.attempt: a for a in (*accounts.requests, *accounts.attempts)}

    def of(self, account: Account) -> Key:
        """Return the part of an account: the step that it was dispatched for, its group, its run."""
        own = self._value(account)
        return _key(self._value(self._known[account.attempt]) if own is None else own)

    def named(self, run: str | None, attempt_id: str) -> Key:
        """Return the part of an attempt of which perhaps nothing but a stray event is known."""
        account = self._known.get((run, attempt_id))
        return None if account is None else self.of(account)

    def training(self, account: Account) -> Key:
        """Return the step that trains on an attempt; of other parts, the one that it belongs to."""
        return _key(account.trained_in) if self._by == "step" else self.of(account)

    def rows(self) -> Iterator[tuple[Key, str | None, str]]:
        """Yield for each row its part, the reason why it is a stray, and its request id.

        The reason is None for a row that is what its account asked for.
        """
        joined, copies = self._capture.derive(join), self._capture.derive(duplicates)
        again = {number for numbers in self._capture.derive(served_again).values() for number in numbers}
        lost = {number: why for why, numbers in joined.strays.items() for number in numbers}
        taken = set[int]()
        for number, name in enumerate(self._capture.scalars["request_id"].to_pylist()):
            owner = joined.owners.get(number)
            why = copies.get(number) or lost.get(number) or ("served again" if number in again else None)
            if owner is not None and why is None and joined.level == "request":
                if owner.level == "attempt" or id(owner) in taken:
                    why = "unrecorded request"
                taken.add(id(owner))
            yield None if owner is None else self.of(owner), why, name

    def _value(self, account: Account) -> int | str | None:
        match self._by:
            case "step":
                return account.sent_for
            case "group":
                group: str | None = account.get("group_id")
                return group
            case "run":
                return account.run
        return None


def _key(value: int | str | None) -> Key:
    if value is None:
        return None
    text = str(value)
    return (0, int(text), text) if text.isdecimal() else (1, 0, text)


def rank(key: Key) -> tuple[bool, tuple[int, int, str]]:
    """Order parts; what belongs to none comes last."""
    return key is None, key or (0, 0, "")
