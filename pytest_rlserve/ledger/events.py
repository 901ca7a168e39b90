"""Attempt events made ready to be folded: their runs filled in, their requests named, in the order of time."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import codes, follows, given, known, mask, picked, reals, sorted_late, whole

if TYPE_CHECKING:
    from pytest_rlserve.columns import Mask, Numbers

KINDS = ("retried", "dispatched", "completed", "canceled", "failed", "accepted", "rejected")
"""What an event may be; of several at one instant, the earlier of these comes first."""
KIND = {name: number for number, name in enumerate(KINDS)}


class Events:
    """The events of attempts and requests, column by column; each goes by the number of its row."""

    def __init__(self, table: pa.Table) -> None:
        """Take a table of attempt events; what is told of whole groups is none."""
        groups = pc.equal(table["level"], "group")
        self._table = table.filter(pc.invert(groups)) if pc.any(groups).as_py() else table
        self._columns: dict[str, pa.Array] = {}
        self._values: dict[str, list[Any]] = {}

    def column(self, name: str) -> pa.Array:
        """Return a column of the table, or `request`: by which id a request goes; null for attempts."""
        if name not in self._columns:
            made = {"run": self._runs, "request": self._requests}.get(name)
            self._columns[name] = whole(made() if made else self._table[name])
        return self._columns[name]

    def values(self, name: str) -> list[Any]:
        """Return a column as a list."""
        if name not in self._values:
            self._values[name] = self.column(name).to_pylist()
        return self._values[name]

    @cached_property
    def kinds(self) -> Numbers:
        """Return for each event its place among `KINDS`."""
        found: Numbers = pc.index_in(self._table["event"], pa.array(KINDS)).to_numpy().astype(np.int64)
        return found

    @cached_property
    def whom(self) -> Numbers:
        """Number whom events speak of: an attempt, or a request of an attempt."""
        attempts, requests = self.attempts, codes(self.column("request"))
        found: Numbers = np.where(self.of_requests, requests, requests.max(initial=0) + 1 + attempts)
        return found if follows(attempts, found) else codes(attempts, found)

    @cached_property
    def of_requests(self) -> Mask:
        """Mark the events that speak of a request."""
        return mask(pc.equal(self._table["level"], "request"))

    @cached_property
    def attempts(self) -> Numbers:
        """Number the attempts that events belong to."""
        return codes(self._runs(), self._table["attempt_id"])

    @cached_property
    def order(self) -> Numbers:
        """Return the rows by time; one without takes that of the first event that must come after it, else is last."""
        times = reals(self.column("t"))
        if np.isnan(times).any():
            times = np.array(self._instants(times))

        def late(rows: Numbers) -> dict[str, Any]:
            attempts, requests = (picked(self.column(name), rows) for name in ("attempt_id", "x_request_id"))
            return {"attempt": attempts, "request": pc.fill_null(requests, "")}

        return sorted_late([times, self.kinds], late)

    @property
    def first_told(self) -> Numbers:
        """Return for each number of `whom` the place of its first event in the order of time."""
        found: Numbers = np.zeros(int(self.whom.max(initial=-1)) + 1, dtype=np.int64)
        found[self.whom[self.order[::-1]]] = np.arange(len(self.order))[::-1]  # of several, the last one stays
        return found

    @cached_property
    def first_ids(self) -> pa.Array:
        """Return the first x-request-id that each event names."""
        several = self.column("x_request_ids")
        if several.null_count == len(several):
            return given(self.column("x_request_id"))
        firsts = [next(filter(None, some or ()), None) for some in several.to_pylist()]
        return pc.coalesce(given(self.column("x_request_id")), pa.array(firsts, pa.string()))

    def _instants(self, times: Any) -> list[float]:
        untimed = set(self.whom[np.isnan(times)].tolist())
        timed: dict[int, list[tuple[int, float]]] = defaultdict(list)
        told = list(zip(self.whom.tolist(), self.kinds.tolist(), times.tolist(), strict=True))
        for account, kind, t in told:
            if account in untimed and not math.isnan(t):
                timed[account].append((kind, t))
        return [
            min((other for after, other in timed[account] if after > kind), default=math.inf) if math.isnan(t) else t
            for account, kind, t in told
        ]

    def _runs(self) -> Any:
        """Fill in the run where only some events of an attempt name it, as long as they name one."""
        run, attempt = self._table["run"], self._table["attempt_id"]
        if not run.null_count or run.null_count == len(run):
            return run
        named = pa.table({"attempt": attempt, "run": run}).filter(run.is_valid())
        named = named.group_by(["attempt", "run"]).aggregate([])
        counts = pc.value_counts(named["attempt"])
        single = counts.filter(pc.equal(counts.field("counts"), 1)).field("values")
        named = named.filter(pc.is_in(named["attempt"], single))
        return pc.coalesce(run, whole(named["run"]).take(pc.index_in(attempt, whole(named["attempt"]))))

    def _requests(self) -> Any:
        """Name requests: by their x-request-id, else by their response id if already their dispatch is told with it."""
        names, response = given(self.column("x_request_id")), self._table["response_id"]
        first = self.kinds == KIND["dispatched"]
        told = response.filter(pa.array(first & ~known(names))).drop_null()
        if len(told):
            names = pc.coalesce(names, pc.if_else(pc.is_in(response, value_set=told), response, None))
        of_attempts = known(names) & ~self.of_requests
        return pc.if_else(pa.array(of_attempts), None, names) if of_attempts.any() else names
