"""The prompts of a capture as arrays, and which of them shared a KV cache.

One element a row of the requests table, in the table's order; −1 or NaN where a row does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.fleet import fleet
from pytest_rlserve.scattered import lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

    Numbers = NDArray[np.int64]
    Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What the rows say of their prompts; what is no number is told by codes, equal ones for the same."""

    blocks: Numbers
    """Whole blocks: one that is only begun is never shared. 0 where a row is not `hashed`."""
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
    workers: tuple[str, ...]
    served: Numbers
    """Whose prefix cache served it, as the place in `workers`: the prefill worker, where there are two."""
    cache: Numbers
    """Worker and data-parallel rank: each rank has a cache of its own."""
    session: Numbers
    kind: Numbers
    """Model and block size: blocks of different kinds are never the same."""
    hashed: NDArray[np.bool_]
    """Rows with blocks, a block size and a time of receipt."""

    @property
    def worker(self) -> tuple[str | None, ...]:
        """The worker that served each row."""
        names = [*self.workers, None]
        return tuple(names[code] for code in self.served.tolist())


@dataclass(frozen=True, slots=True)
class Visits:
    """Rows and the caches that they met; a row that ran through a change met the cache before and after it."""

    rows: Numbers
    cells: Numbers

    def same(self, other: Visits) -> bool:
        """Tell whether the same rows met in the same caches."""
        return np.array_equal(self.cells, other.cells) and np.array_equal(self.rows, other.rows)


def prompts(capture: Capture) -> Prompts:
    """Return the prompts of a capture; ask for them through ``capture.derive(prompts)``."""
    table = capture.scalars
    hashes = lengths(capture.chains)
    block, length = _whole(table, "trace_block_size"), _whole(table, "input_length")
    received = _real(table, "received_at")
    hashed = (hashes >= 0) & (block > 0) & (length >= 0) & ~np.isnan(received)
    first = received + _real(table, "ttft_ms") / 1e3
    served, ids = _coded(pc.coalesce(table["prefill_worker_id"], table["decode_worker_id"]))
    ranks = np.asarray(pc.fill_null(pc.coalesce(table["prefill_dp_rank"], table["decode_dp_rank"]), 0), dtype=np.int64)
    model, models = _coded(table["model"])
    order = pc.sort_indices(table, sort_keys=[("received_at", "ascending"), ("request_id", "ascending")])
    rank = np.empty(table.num_rows, dtype=np.int64)
    rank[np.asarray(order)] = np.arange(table.num_rows)
    return Prompts(
        blocks=np.where(hashed, np.minimum(hashes, length // np.maximum(block, 1)), 0),
        block=block,
        length=length,
        tokens=np.where(_whole(table, "input_tokens") >= 0, _whole(table, "input_tokens"), length),
        output=_whole(table, "output_tokens"),
        received=received,
        first_token=np.where(np.isnan(first), received, first),
        ended=_real(table, "ended_at"),
        rank=rank,
        workers=tuple(map(str, ids)),
        served=served,
        cache=np.where(served < 0, -1, _combined(served, ranks)),
        session=_coded(table["session_id"])[0],
        kind=_combined(model if len(models) > 1 else np.zeros_like(model), block),
        hashed=hashed,
    )


def _whole(table: pa.Table, name: str) -> Numbers:
    return np.asarray(pc.fill_null(table[name], -1), dtype=np.int64)


def _real(table: pa.Table, name: str) -> Times:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _coded(column: pa.ChunkedArray) -> tuple[Numbers, list[object]]:
    """Return for each value its place among the different ones, −1 for null, and the different ones."""
    one = column.combine_chunks().dictionary_encode()
    return np.asarray(pc.fill_null(one.indices, -1), dtype=np.int64), one.dictionary.to_pylist()


def _combined(one: Numbers, other: Numbers) -> Numbers:
    """Return codes that are equal where both are; pairs are in the order of their numbers."""
    least = int(other.min(initial=0))
    return one * (int(other.max(initial=0)) - least + 1) + other - least


def by_worker(found: Prompts, cuts: Callable[[str], list[float]]) -> Visits:
    """Return the visits to workers' own caches; `cuts` says when a worker's cache stopped being the same."""
    instants = [np.array(cuts(worker), dtype=np.float64) for worker in found.workers]
    rows, epochs = _epochs(found, instants, np.flatnonzero(found.hashed & (found.served >= 0)))
    return _distinct(rows, _combined(found.cache[rows], epochs))


def by_version(found: Prompts, capture: Capture) -> Visits:
    """Return the visits to one cache that all workers would share, for each version that they had loaded.

    A request that reached no worker belongs to the version that was loaded last anywhere.
    """
    known = capture.derive(fleet)
    loads = [known.versions(worker) for worker in found.workers]
    loads.append(sorted(one for some in loads for one in some))
    instants = [np.array([t for t, _ in some], dtype=np.float64) for some in loads]
    rows, epochs = _epochs(found, instants, np.flatnonzero(found.hashed))
    codes: dict[str | None, int] = {None: 0}
    versions = [[codes.setdefault(one, len(codes)) for one in (None, *(v for _, v in some))] for some in loads]
    starts = np.cumsum([0, *map(len, versions)])
    served = np.where(found.served < 0, len(loads) - 1, found.served)[rows]
    version = np.array([one for some in versions for one in some], dtype=np.int64)[starts[served] + epochs]
    return _distinct(rows, _combined(found.kind[rows], version))


def _epochs(found: Prompts, cuts: Sequence[Times], rows: Numbers) -> tuple[Numbers, Numbers]:
    """Pair rows with each epoch from their receipt to their first token; the last cuts are of rows without a worker."""
    first, last = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    order = np.argsort(found.served[rows], kind="stable")
    served = found.served[rows][order]
    for some in np.split(order, np.flatnonzero(np.diff(served)) + 1) if len(order) else ():
        instants, mine = cuts[found.served[rows[some[0]]]], rows[some]
        first[some] = np.searchsorted(instants, found.received[mine], side="right")
        last[some] = np.searchsorted(instants, found.first_token[mine], side="right")
    counts = np.maximum(last - first + 1, 0)
    ahead = np.cumsum(counts) - counts
    return np.repeat(rows, counts), np.repeat(first - ahead, counts) + np.arange(int(counts.sum()))


def _distinct(rows: Numbers, cells: Numbers) -> Visits:
    """Return visits, each once, as a row that met a cache twice is no other row to itself; cells are numbered anew."""
    _, cells = np.unique(cells, return_inverse=True)
    if len(rows) < 2 or (np.diff(rows) > 0).all():
        return Visits(rows, cells)
    several = int(cells.max()) + 1
    both = np.unique(rows * several + cells)
    return Visits(both // several, both % several)
