"""Which trainer step, group or run an account or a served row belongs to."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from pytest_rlserve.joins import join
from pytest_rlserve.joins.repeats import duplicates, served_again
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

Part = Literal["step", "group", "run"]
PARTS: tuple[Part, ...] = get_args(Part)
_COLUMNS = {"step": "sent_for", "group": "group_id", "run": "run"}
Key = tuple[int, int, str] | None
"""One part, numbers sorted before names; None is the whole capture, or what names no part."""


class Parts:
    """A capture cut by step, group or run, or not at all."""

    def __init__(self, capture: Capture, by: Part | None) -> None:
        """Cut `capture`; an attempt's requests go where it goes, if they do not say otherwise."""
        self._capture, self._ledger, self._by = capture, capture.derive(ledger), by
        every = self._ledger.all
        own = every.values(_COLUMNS[by]) if by else [None] * len(every)
        known: dict[int, int] = {}
        for accounts in (self._ledger.requests, self._ledger.attempts):
            known.update(zip(accounts.attempts.tolist(), accounts.numbers.tolist(), strict=True))
        attempts = zip(own, every.attempts.tolist(), strict=True)
        self.of = [_key(own[known[attempt]] if value is None else value) for value, attempt in attempts]
        """The part of each account, by its number: the step that it was dispatched for, its group, its run."""

    def named(self, run: str | None, attempt_id: str) -> Key:
        """Return the part of an attempt of which perhaps nothing but a stray event is known."""
        number = self._numbers.get((run, attempt_id))
        return None if number is None else self.of[number]

    @cached_property
    def _numbers(self) -> dict[tuple[str | None, str], int]:
        return {
            attempt: number
            for some in (self._ledger.requests, self._ledger.attempts)
            for attempt, number in zip(some.names_of_attempts(), some.numbers.tolist(), strict=True)
        }

    def training(self) -> list[Key]:
        """Return the step that trains on each attempt; of other parts, the one that it belongs to."""
        if self._by == "step":
            return [_key(step) for step in self._ledger.attempts.values("trained_in")]
        return self.of[: len(self._ledger.attempts)]

    def rows(self) -> list[Key]:
        """Return the part of each row: its owner's."""
        parts = [*self.of, None]  # the last is that of nobody
        return [parts[number] for number in self._capture.derive(join).owner.tolist()]

    def strays(self) -> dict[int, str]:
        """Return the rows that are not what an account asked for, in order, and why."""
        joined = self._capture.derive(join)
        found = {row: why for why, rows in joined.strays.items() for row in rows}
        found = dict.fromkeys(chain.from_iterable(self._capture.derive(served_again).values()), "served again") | found
        found |= self._capture.derive(duplicates)
        if joined.level == "request":
            others = np.setdiff1d(joined.order, np.array(list(found), dtype=np.int64))
            owners, first = np.unique(joined.owner[others], return_index=True)
            asked = others[first[owners >= len(self._ledger.attempts)]]  # the first row of each request
            found |= dict.fromkeys(np.setdiff1d(others, asked).tolist(), "unrecorded request")
        return dict(sorted(found.items()))


def _key(value: int | str | None) -> Key:
    if value is None:
        return None
    text = str(value)
    return (0, int(text), text) if text.isdecimal() else (1, 0, text)


def rank(key: Key) -> tuple[bool, tuple[int, int, str]]:
    """Order parts; what belongs to none comes last."""
    return key is None, key or (0, 0, "")
