"""The prompts of a capture as arrays, and which of them shared a KV cache.

One element a row of the requests table, in the table's order; −1 or NaN where a row does not say.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.blocks import held_by_others
from pytest_rlserve.chains import unpack
from pytest_rlserve.fleet import fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

    Numbers = NDArray[np.int64]
    Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What the rows say of their prompts."""

    hashes: NDArray[np.uint64]
    starts: Numbers
    ends: Numbers
    """After the last whole block: a block that is only begun is never shared."""
    block: Numbers
    """Tokens of a block."""
    length: Numbers
    """Tokens of the prompt that was hashed."""
    tokens: Numbers
    """Prompt tokens as the engine counted them."""
    output: Numbers
    received: Times
    first_token: Times
    """The receipt, where the row has no time to first token."""
    ended: Times
    rank: Numbers
    """Place in the order of arrival; by request id within one millisecond."""
    worker: tuple[str | None, ...]
    """Whose prefix cache served it: the prefill worker, where there are two."""
    session: tuple[str | None, ...]
    cache: tuple[Hashable | None, ...]
    """Worker and data-parallel rank: each rank has a cache of its own."""
    kind: tuple[Hashable, ...]
    """Model and block size: blocks of different kinds are never the same."""
    hashed: NDArray[np.bool_]
    """Rows with blocks, a block size and a time of receipt."""


@dataclass(frozen=True, slots=True)
class Visits:
    """Rows and the caches that they met; a row that ran through a change met the cache before and after it."""

    rows: Numbers
    cells: Numbers


def prompts(capture: Capture) -> Prompts:
    """Return the prompts of a capture; ask for them through ``capture.derive(prompts)``."""
    table = capture.scalars
    packed = capture.packed
    hashes, offsets = unpack(packed)
    block, length = _whole(table, "trace_block_size"), _whole(table, "input_length")
    received = _real(table, "received_at")
    hashed = packed["own"].is_valid().to_numpy() & (block > 0) & (length >= 0) & ~np.isnan(received)
    starts = offsets[:-1]
    whole = np.where(hashed, np.minimum(np.diff(offsets), length // np.maximum(block, 1)), 0)
    first = received + _real(table, "ttft_ms") / 1e3
    ids = pc.coalesce(table["prefill_worker_id"], table["decode_worker_id"]).to_pylist()
    ranks = pc.coalesce(table["prefill_dp_rank"], table["decode_dp_rank"]).to_pylist()
    models = table["model"].drop_null().unique().to_pylist()
    order = pc.sort_indices(table, sort_keys=[("received_at", "ascending"), ("request_id", "ascending")])
    rank = np.empty(table.num_rows, dtype=np.int64)
    rank[np.asarray(order)] = np.arange(table.num_rows)
    return Prompts(
        hashes=hashes,
        starts=starts,
        ends=starts + whole,
        block=block,
        length=length,
        tokens=np.where(_whole(table, "input_tokens") >= 0, _whole(table, "input_tokens"), length),
        output=_whole(table, "output_tokens"),
        received=received,
        first_token=np.where(np.isnan(first), received, first),
        ended=_real(table, "ended_at"),
        rank=rank,
        worker=tuple(None if one is None else str(one) for one in ids),
        session=tuple(table["session_id"].to_pylist()),
        cache=tuple(None if one is None else (one, rank or 0) for one, rank in zip(ids, ranks, strict=True)),
        kind=tuple(
            (model if len(models) > 1 else None, size)
            for model, size in zip(table["model"].to_pylist(), block.tolist(), strict=True)
        ),
        hashed=hashed,
    )


def _whole(table: pa.Table, name: str) -> Numbers:
    return np.asarray(pc.fill_null(table[name], -1), dtype=np.int64)


def _real(table: pa.Table, name: str) -> Times:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def by_worker(found: Prompts, cuts: Callable[[str], list[float]]) -> Visits:
    """Return the visits to workers' own caches; `cuts` says when a worker's cache stopped being the same."""

    def cell(row: int, epoch: int) -> Hashable | None:
        return None if found.cache[row] is None else (found.cache[row], epoch)

    return _visits(found, {worker: cuts(worker) for worker in set(found.worker) if worker is not None}, cell)


def by_version(found: Prompts, capture: Capture) -> Visits:
    """Return the visits to one cache that all workers would share, for each version that they had loaded.

    A request that reached no worker belongs to the version that was loaded last anywhere.
    """
    known = capture.derive(fleet)
    loads = {worker or "": known.versions(worker) for worker in set(found.worker) if worker is not None}
    loads[""] = sorted(one for some in loads.values() for one in some)

    def cell(row: int, epoch: int) -> Hashable:
        return found.kind[row], loads[found.worker[row] or ""][epoch - 1][1] if epoch else None

    return _visits(found, {worker: [t for t, _ in some] for worker, some in loads.items()}, cell)


def _visits(found: Prompts, cuts: dict[str, list[float]], cell_of: Callable[[int, int], Hashable | None]) -> Visits:
    """Pair every hashed row with the cells of the epochs between its receipt and its first token."""
    codes: dict[Hashable, int] = {}
    rows, cells = [], []
    hashed = np.flatnonzero(found.hashed)
    times = zip(hashed.tolist(), found.received[hashed].tolist(), found.first_token[hashed].tolist(), strict=True)
    for row, received, first_token in times:
        some = cuts.get(found.worker[row] or "", ())
        epochs = range(bisect_right(some, received), bisect_right(some, first_token) + 1)
        for cell in dict.fromkeys(cell_of(row, epoch) for epoch in epochs):
            # once each: a row that met a cache twice is no other row to itself
            if cell is not None:
                rows.append(row)
                cells.append(codes.setdefault(cell, len(codes)))
    return Visits(np.array(rows, dtype=np.int64), np.array(cells, dtype=np.int64))


def available_blocks(found: Prompts, visits: Visits) -> Numbers:
    """Return for each row how many leading blocks its cache could hold by its first token; −1 without a visit.

    A block is available if another request that contains it came to the same cache before the row's first token.
    """
    most = np.full(len(found.starts), -1, dtype=np.int64)
    order = np.lexsort((found.rank[visits.rows], visits.cells))
    rows, cells = visits.rows[order], visits.cells[order]
    for some in np.split(rows, np.flatnonzero(np.diff(cells)) + 1):
        held = held_by_others(
            found.hashes, found.starts[some], found.ends[some], found.received[some], found.first_token[some]
        )
        np.maximum.at(most, some, held)
    return most


def continued_tokens(found: Prompts, visits: Visits, available: Numbers) -> tuple[Numbers, Numbers]:
    """Return how many prompt tokens each row could find, the output of earlier turns of its session included.

    Output is in the cache too, but a trace has no hashes of it, nor of the block in which a turn's prompt ends. So
    there are two answers: tokens that are there for certain, as the available blocks cover the earlier turn's
    whole prompt; and tokens that are there if the prompt repeats the earlier turn token by token.
    """
    held = np.maximum(available, 0) * np.maximum(found.block, 0)
    certain, possible, blocks = held.tolist(), held.tolist(), (available * found.block).tolist()
    turns: dict[Hashable, list[Turn]] = {}
    order = np.argsort(found.rank[visits.rows], kind="stable")
    known = _turns(found)
    for row, cell in zip(visits.rows[order].tolist(), visits.cells[order].tolist(), strict=True):
        if found.session[row] is None:
            continue
        here = known[row]
        earlier = turns.setdefault((found.session[row], cell), [])
        for turn in reversed(earlier):
            if not _continues(found.hashes, turn, here):
                continue
            end = min(turn.length + turn.output - 1, here.length) // here.block * here.block
            possible[row] = max(possible[row], end)
            if turn.length <= blocks[row]:
                certain[row] = max(certain[row], end)
                break
        earlier.append(here)
    return np.array(certain, dtype=np.int64), np.array(possible, dtype=np.int64)


class Turn(NamedTuple):
    """A row's prompt in plain numbers, which are quicker one by one than those of an array."""

    start: int
    end: int
    block: int
    length: int
    output: int
    first_token: float
    ended: float


def _turns(found: Prompts) -> list[Turn]:
    columns = (getattr(found, name).tolist() for name in ("starts", "ends", *Turn._fields[2:]))
    return list(map(Turn._make, zip(*columns, strict=True)))


def _continues(hashes: NDArray[np.uint64], turn: Turn, row: Turn) -> bool:
    """Tell whether a prompt begins with the whole blocks of an earlier turn that had ended by then."""
    if not turn.ended <= row.first_token or turn.length > row.length or turn.output < 1 or turn.block != row.block:
        return False
    blocks = turn.end - turn.start
    if blocks > row.end - row.start:
        return False
    if blocks and hashes[row.start + blocks - 1] != hashes[turn.start + blocks - 1]:
        return False  # where any block differs, the last one nearly always does
    return bool((hashes[row.start : row.start + blocks] == hashes[turn.start : turn.end]).all())
