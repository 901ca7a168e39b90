"""KV reuse and load, worker by worker and step by step: sums that add up to what the metrics say of the whole.

A worker that restarted under a new id goes by its first one. KV reuse is the worker's whose prefix cache served the
prompt, load that of the worker that decoded; where prefill and decode are apart these are different ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.metrics.kv_shares import SHARES
from pytest_rlserve.metrics.prompt_rows import prompt_rows
from pytest_rlserve.metrics.served import completed_numbers
from pytest_rlserve.metrics.window import steps
from pytest_rlserve.prompts import prompts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope

    Numbers = NDArray[np.int64]

By = Literal["worker", "step"]
Part = tuple[float, float]
"""Numerator and denominator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """The prompt tokens of one worker or step, over the requests that the KV metrics speak of."""

    key: str | None
    """Worker id or step number; None for requests of no known worker, or received between steps."""
    requests: int
    prompt_tokens: int
    shares: Mapping[str, Part | None]
    """Each KV metric's tokens here; None where the capture or the group does not know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGroup:
    """What one worker or step had to do; None where nothing says so."""

    key: str | None
    requests: int
    """Rows, whatever became of them."""
    completed: int | None
    prompt_tokens: int | None
    """Over the rows that say it, as the next two."""
    output_tokens: int | None
    serving_seconds: float | None
    """From receipt to end, added up over the requests."""
    queue_depth: Part | None
    """Sum of the depths that completed requests met in the router's queue, and how many say it."""


def kv_by(capture: Capture, scope: Scope, by: By) -> list[KvGroup]:
    """Return the KV shares of each worker or step.

    Raises:
        NotMeasurable: no request counts, or the capture does not tell workers or steps apart.
    """
    rows = prompt_rows(capture, scope)
    served = capture.derive(prompts).worker
    codes, keys = _groups(capture, by, served)
    mine = codes[rows.numbers]
    sums: dict[str, dict[int, Part]] = {}
    for name, share in SHARES.items():
        try:
            known = share.known(rows)
        except NotMeasurable:
            continue
        where = codes[known.numbers]
        parts, wholes = (_sums(where, values(known), len(keys)) for values in (share.part, share.whole))
        sums[name] = {code: (parts[code], wholes[code]) for code in np.unique(where).tolist()}
    tokens, counts = _sums(mine, rows.tokens, len(keys)), np.bincount(mine, minlength=len(keys)).tolist()
    return [
        KvGroup(
            key=key,
            requests=counts[code],
            prompt_tokens=tokens[code],
            shares={name: sums.get(name, {}).get(code) for name in SHARES},
        )
        for code, key in enumerate(keys)
        if counts[code]
    ]


def load_by(capture: Capture, by: By) -> list[LoadGroup]:
    """Return the load of each worker or step.

    Raises:
        NotMeasurable: no request is there, or the capture does not tell workers or steps apart.
    """
    ids = capture.scalars["decode_worker_id"].to_pylist()
    codes, keys = _groups(capture, by, [None if one is None else str(one) for one in ids])
    try:
        done: Numbers | None = np.array(completed_numbers(capture), dtype=np.int64)
    except NotMeasurable:
        done = None
    columns = {name: _known(capture, name) for name in ("input_tokens", "output_tokens", "total_time_ms")}
    said = {name: _said(codes, known, len(keys)) for name, known in columns.items()}
    depths = _known(capture, "queue_depth")
    queues = (
        [None] * len(keys) if done is None else _said(codes, (depths[0], depths[1] & _mask(done, codes)), len(keys))
    )
    counts = np.bincount(codes, minlength=len(keys)).tolist()
    completed = None if done is None else np.bincount(codes[done], minlength=len(keys)).tolist()
    return [
        LoadGroup(
            key=key,
            requests=counts[code],
            completed=None if completed is None else completed[code],
            prompt_tokens=_whole(said["input_tokens"][code]),
            output_tokens=_whole(said["output_tokens"][code]),
            serving_seconds=None if (spent := said["total_time_ms"][code]) is None else spent[0] / 1e3,
            queue_depth=queues[code],
        )
        for code, key in enumerate(keys)
        if counts[code]
    ]


def _groups(capture: Capture, by: By, served: Sequence[str | None]) -> tuple[Numbers, list[str | None]]:
    """Return the number of each row's group, and the groups' keys; what belongs to none comes last.

    Raises:
        NotMeasurable: the capture knows no group.
    """
    if not len(served):
        raise NotMeasurable("the capture has no served request")
    if by == "step":
        return _steps(capture)
    known = capture.derive(fleet)
    origins = {worker: known.origin(worker) for worker in set(served) if worker is not None}
    if not origins:
        raise NotMeasurable("no row names its worker")
    keys = sorted(set(origins.values()), key=lambda one: (not one.isdecimal(), int(one) if one.isdecimal() else 0, one))
    place = {key: code for code, key in enumerate(keys)}
    codes = [len(keys) if worker is None else place[origins[worker]] for worker in served]
    return np.array(codes, dtype=np.int64), [*keys, None]


def _steps(capture: Capture) -> tuple[Numbers, list[str | None]]:
    """Number each row by the step during which it was received: of several, the one that began last."""
    spans = steps(capture)
    if not spans:
        raise NotMeasurable("no step has both step_started and step_finished")
    received = np.asarray(capture.scalars["received_at"].to_numpy(), dtype=np.float64)
    starts, ends = (np.array(some) for some in list(zip(*spans, strict=True))[:2])
    codes = np.searchsorted(starts, received, side="right") - 1
    inside = (codes >= 0) & (received <= ends[codes])
    return np.where(inside, codes, len(spans)), [*(str(number) for *_, number in spans), None]


def _sums(codes: Numbers, values: NDArray[np.int64], groups: int) -> list[int]:
    totals = np.zeros(groups, dtype=np.int64)
    np.add.at(totals, codes, values)
    found: list[int] = totals.tolist()
    return found


def _known(capture: Capture, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    column = capture.scalars[name]
    return np.asarray(pc.fill_null(column, 0), dtype=np.float64), np.asarray(pc.is_valid(column))


def _mask(numbers: Numbers, like: Numbers) -> NDArray[np.bool_]:
    mask = np.zeros(len(like), dtype=bool)
    mask[numbers] = True
    return mask


def _said(codes: Numbers, known: tuple[NDArray[np.float64], NDArray[np.bool_]], groups: int) -> list[Part | None]:
    """Return for each group the sum of what its rows say and how many say it."""
    values, there = known
    counts = np.bincount(codes[there], minlength=groups).tolist()
    sums = np.bincount(codes[there], weights=values[there], minlength=groups).tolist()
    return [(total, count) if count else None for total, count in zip(sums, counts, strict=True)]


def _whole(said: Part | None) -> int | None:
    return None if said is None else round(said[0])
