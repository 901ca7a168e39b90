"""What was served for whom: the rows of completed requests, and the tokens of each attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Numbers

_COVERED = 0.95
"""Share of completed requests that must carry a field for its metric to speak for them."""


def completed_rows(capture: Capture) -> pa.Table:
    """Return the rows of completed requests.

    Raises:
        NotMeasurable: nothing says how requests ended, or none completed.
    """
    found: pa.Table = capture.derive(_completed_rows)
    return found


def _completed_rows(capture: Capture) -> pa.Table:
    numbers = completed_numbers(capture)
    if len(numbers) == capture.scalars.num_rows:
        return capture.scalars
    return capture.scalars.take(pa.array(numbers, pa.int64()))


def completed_numbers(capture: Capture) -> list[int]:
    """Return the row numbers of completed requests.

    A row alone does not say how its request ended, so the framework's records decide; without them, the finish
    metadata that Dynamo writes for sessions does.

    Raises:
        NotMeasurable: neither is there, or no request completed.
    """
    found = capture.derive(_completed_numbers)
    if found is None:
        raise NotMeasurable(
            "a row does not say how its request ended: give attempt records, or send X-Dynamo-Session-ID "
            "so that Dynamo records finish reasons"
        )
    if not found:
        raise NotMeasurable("no request is known to have completed")
    return found


def _completed_numbers(capture: Capture) -> list[int] | None:
    accounts = capture.derive(ledger)
    if accounts.attempts or accounts.requests:
        owner = capture.derive(join).owner
        completed = np.append(accounts.all.are("completed"), False)  # the last is nobody
        completed_rows: list[int] = np.flatnonzero(completed[owner]).tolist()
        return completed_rows
    reasons = capture.scalars["finish_reason"]
    if not pc.any(pc.is_valid(reasons)).as_py():
        return None
    backend = pc.fill_null(capture.scalars["backend_finish_reason"], "")
    aborted = pc.or_(pc.is_in(backend, pa.array(["cancelled", "abort"])), pc.starts_with(backend, "error"))
    found: list[int] = pc.indices_nonzero(pc.and_(pc.is_valid(reasons), pc.invert(aborted))).to_pylist()
    return found


def column(rows: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a column's values as floats, nulls left out.

    Raises:
        NotMeasurable: fewer than 95 % of the rows have a value.
    """
    values = rows[name].drop_null()
    if len(values) < _COVERED * rows.num_rows or not len(values):
        raise NotMeasurable(f"{name} is there for {len(values):,} of {rows.num_rows:,} completed requests")
    return np.asarray(values.to_numpy(), dtype=np.float64)


def tokens_by_attempt(capture: Capture) -> Numbers:
    """Return the output tokens of each attempt, by its number, over all its requests, canceled and failed ones too.

    Served rows count; a request without a row counts by the usage that its client saw.

    Raises:
        NotMeasurable: fewer than 95 % of the rows say how many tokens they produced.
    """
    return capture.derive(_tokens_by_attempt)


def _tokens_by_attempt(capture: Capture) -> Numbers:
    joined = capture.derive(join)
    every = joined.ledger.all
    produced = capture.scalars["output_tokens"].take(pa.array(joined.order, pa.int64()))
    told = len(produced) - produced.null_count
    if told < _COVERED * joined.joined:
        raise NotMeasurable(f"output_tokens is there for {told:,} of {joined.joined:,} requests of attempts")
    tokens: Numbers = np.zeros(int(every.attempts.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(tokens, every.attempts[joined.owner[joined.order]], pc.fill_null(produced, 0).to_numpy())
    for why, accounts in joined.without_row.items():
        for account in accounts:
            attempt, said = every.attempts[account.number], account.get("output_tokens") or 0
            tokens[attempt] += max(said - (tokens[attempt] if why == "lost turn" else 0), 0)
    return tokens
