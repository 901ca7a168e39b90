"""Which trainer step, group or run an account or a served row belongs to."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.joins import join
from pytest_rlserve.joins.repeats import duplicates, served_again
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.joins import Joined

Part = Literal["step", "group", "run"]
PARTS: tuple[Part, ...] = get_args(Part)
_COLUMNS = {"step": "sent_for", "group": "group_id", "run": "run"}
Key = tuple[int, int, str] | None
"""One part, numbers sorted before names; None is the whole capture, or what names no part."""


class Parts:
    """A capture cut by step, group or run, or not at all; parts go by their places in `keys`."""

    def __init__(self, capture: Capture, by: Part | None) -> None:
        """Cut `capture`; an attempt's requests go where it goes, if they do not say otherwise."""
        self._capture, self._ledger = capture, capture.derive(ledger)
        every, attempts = self._ledger.all, self._ledger.attempts
        own = every.column(_COLUMNS[by]) if by else pa.nulls(len(every))
        trained = attempts.column("trained_in") if by == "step" else own[:0]
        told = pa.concat_arrays([own, trained]).dictionary_encode()
        self.keys: list[Key] = [*map(_key, told.dictionary.to_pylist()), None]
        parts = np.asarray(pc.fill_null(told.indices, self._none), dtype=np.int64)
        own, trained = np.split(parts, [len(every)])
        speaks = np.zeros(int(every.attempts.max(initial=-1)) + 1, dtype=np.int64)
        for accounts in (self._ledger.requests, attempts):
            speaks[accounts.attempts] = accounts.numbers
        self.of: Numbers = np.where(own == self._none, own[speaks[every.attempts]], own)
        """The part of each account, by its number: the step that it was dispatched for, its group, its run."""
        self.training: Numbers = trained if by == "step" else self.of[: len(attempts)]
        """The step that trains on each attempt; of other parts, the one that it belongs to."""

    @property
    def _none(self) -> int:
        """Return the last part, which is that of what names none."""
        return len(self.keys) - 1

    def named(self, run: str | None, attempt_id: str) -> int:
        """Return the part of an attempt of which perhaps nothing but a stray event is known."""
        number = self._numbers.get((run, attempt_id))
        return self._none if number is None else int(self.of[number])

    @cached_property
    def _numbers(self) -> dict[tuple[str | None, str], int]:
        return {
            attempt: number
            for some in (self._ledger.requests, self._ledger.attempts)
            for attempt, number in zip(some.names_of_attempts(), some.numbers.tolist(), strict=True)
        }

    @cached_property
    def rows(self) -> Numbers:
        """Return the part of each row: its owner's."""
        return np.append(self.of, self._none)[self._capture.derive(join).owner]

    def strays(self) -> dict[int, str]:
        """Return the rows that are not what an account asked for, in order, and why."""
        joined = self._capture.derive(join)
        found = {row: why for why, rows in joined.strays.items() for row in rows}
        found = dict.fromkeys(chain.from_iterable(self._capture.derive(served_again).values()), "served again") | found
        found |= self._capture.derive(duplicates)
        if joined.level == "request":
            found |= dict.fromkeys(self._unrecorded(joined, list(found)), "unrecorded request")
        return dict(sorted(found.items()))

    def _unrecorded(self, joined: Joined, strays: list[int]) -> list[int]:
        """Return the other rows of an owner but the first one of each request."""
        left = np.ones(joined.rows, dtype=np.bool_)
        left[strays] = False
        others = joined.order[left[joined.order]]
        first = np.zeros(len(self.of), dtype=np.int64)
        first[joined.owner[others[::-1]]] = others[::-1]  # of several, the last one stays
        asked = (first[joined.owner[others]] == others) & (joined.owner[others] >= len(self._ledger.attempts))
        rows: list[int] = others[~asked].tolist()
        return rows


def _key(value: int | str) -> Key:
    text = str(value)
    return (0, int(text), text) if text.isdecimal() else (1, 0, text)


def rank(key: Key) -> tuple[bool, tuple[int, int, str]]:
    """Order parts; what belongs to none comes last."""
    return key is None, key or (0, 0, "")
