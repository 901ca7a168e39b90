"""Rows that stand for the same work as another row: copied files, and clients that send again by themselves."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import given, known, mask
from pytest_rlserve.joins import join
from pytest_rlserve.scattered import lists_of

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_PLACE = ("source", "line")
_LOOKED_AT = ("x_request_id", "received_at", "ended_at", "input_length", "finish_reason")


def told_twice(capture: Capture) -> tuple[int, list[int]]:
    """Return how many request ids there are, and the rows of those that several have; ask through `derive`."""
    joined = capture.derive(join)
    answered = joined.order[: joined.answered]
    # A row that alone has the id of its owner's response has that id alone.
    alone = answered[np.bincount(joined.owner[answered])[joined.owner[answered]] == 1] if len(answered) else answered
    others = np.delete(np.arange(joined.rows), alone)
    ids = capture.scalars["request_id"].take(pa.array(others))
    counts = pc.value_counts(ids)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    return len(alone) + len(counts), others[mask(pc.is_in(ids, value_set=twice))].tolist() if len(twice) else []


def duplicates(capture: Capture) -> dict[int, str]:
    """Return the numbers of rows whose request id an earlier row has, as "duplicate" or "conflicting duplicate"."""
    _, numbers = capture.derive(told_twice)
    if not numbers:
        return {}
    first: dict[str, dict[str, Any]] = {}
    found = {}
    rows, prompts = capture.scalars.take(numbers).to_pylist(), lists_of(capture.chains, numbers)
    for number, row, prompt in zip(numbers, rows, prompts, strict=True):
        said = {name: value for name, value in row.items() if name not in _PLACE} | {"prompt": prompt}
        same = first.setdefault(row["request_id"], said)
        if same is not said:
            found[number] = "duplicate" if same == said else "conflicting duplicate"
    return found


def served_again(capture: Capture) -> dict[int, list[int]]:
    """Return the number of each account that was served more often than it asked for → the rows too many.

    That is the same prompt again, a request while the one before it still ran, or more answers than it says it took
    turns. A request that broke off is no turn, and one that follows it under another id was sent by the framework.
    Ask through ``capture.derive(served_again)``.
    """
    joined, copies = capture.derive(join), capture.derive(duplicates)
    several = np.flatnonzero(np.diff(joined.edges) > 1)
    spans = [joined.arrived[joined.edges[place] : joined.edges[place + 1]].tolist() for place in several.tolist()]
    looked_at = [row for rows in spans for row in rows]
    found = capture.scalars.select(_LOOKED_AT).take(pa.array(looked_at, pa.int64())).to_pylist()
    rows = dict(zip(looked_at, found, strict=True))
    # Without any finish reason, nothing tells an answer from a broken stream.
    told = bool(known(given(capture.scalars["finish_reason"])).any())
    accounts = joined.ledger.all.some(joined.served[several])
    extra: dict[int, list[int]] = {}
    for account, turns, all_numbers in zip(accounts.numbers.tolist(), accounts.values("turns"), spans, strict=True):
        numbers = [number for number in all_numbers if number not in copies]
        if len(numbers) < 2 or (turns and len(numbers) <= turns):
            continue
        answered = [number for number in numbers if rows[number]["finish_reason"] or not told]
        again = set(answered[turns:] if turns else ())
        if not turns or told:
            again.update(b for a, b in pairwise(numbers) if _repeats(capture, rows, a, b, told=told))
        if again:
            extra[account] = [number for number in numbers if number in again]
    return extra


def _repeats(capture: Capture, rows: dict[int, dict[str, Any]], one: int, other: int, *, told: bool) -> bool:
    """Tell whether a row is the one before it once more, and not what the framework sent after that had broken off."""
    ids = {rows[one]["x_request_id"], rows[other]["x_request_id"]}
    if told and not rows[one]["finish_reason"] and len(ids) == 2 and None not in ids:
        return False
    return _overlap(rows[one], rows[other]) or _same_prompt(capture, rows, one, other)


def _overlap(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Tell whether the second row was received while the first still ran, under no other id."""
    ids, times = {first["x_request_id"], second["x_request_id"]}, (first["ended_at"], second["received_at"])
    return (len(ids) == 1 or None in ids) and None not in times and bool(second["received_at"] < first["ended_at"])


def _same_prompt(capture: Capture, rows: dict[int, dict[str, Any]], one: int, other: int) -> bool:
    """Tell whether two rows have the same blocks; only prompts of one length are unpacked to see."""
    if rows[one]["input_length"] != rows[other]["input_length"]:
        return False
    first, second = lists_of(capture.chains, (one, other))
    return bool(first) and first == second
