"""Block hashes of prompts, kept as what is new in each: a turn repeats nearly all hashes of the turn before it.

A chain says how many leading hashes a row shares with an earlier row, and holds the others itself. That is a
fraction of the memory, nothing is left out, and `expand` gives the lists back when somebody asks for them.
"""

from __future__ import annotations

import itertools
from array import array
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

CHAINS: Final = pa.schema(
    # One row for each row of the requests table, in its order.
    [
        pa.field("back", pa.int64(), metadata={"unit": "rows; how far above stands the row it shares with, or 0"}),
        pa.field("shared", pa.int64(), metadata={"unit": "leading hashes it shares with that row"}),
        pa.field("own", pa.list_(pa.uint64()), metadata={"unit": "the hashes after those; null for a row without"}),
    ]
)
HASHES: Final = pa.list_(pa.uint64())
_BATCH = 8192
_LARGEST = 1 << 30
"""Hashes in one piece; the offsets of Arrow's lists have 32 bits."""


class Sink(Protocol):
    """Keeps record batches, wherever."""

    def take(self, batch: pa.RecordBatch) -> None:
        """Take one batch."""

    def table(self) -> pa.Table:
        """Return everything taken so far."""


class Chains:
    """Collects the hashes of rows and turns them into the chains table, a batch of rows at a time."""

    def __init__(self, batches: Sink) -> None:
        """Start empty; what is complete goes to `batches`."""
        self.rows = 0
        self._back: list[int] = []
        self._shared: list[int] = []
        self._sizes: list[int | None] = []
        self._values: list[Any] = []
        self._batches = batches

    def add(self, hashes: Iterable[int] | None) -> None:
        """Take the hashes of one row, which shares nothing."""
        values = array("Q", hashes or ())
        self.extend([0], [0], [None if hashes is None else len(values)], values)

    def extend(self, back: Sequence[int], shared: Sequence[int], sizes: Sequence[int | None], values: Any) -> None:
        """Take several rows.

        Args:
            back: for each, how far above stands the row that it shares with.
            shared: how many leading hashes they share.
            sizes: how many hashes it has beyond those; None for a row without hashes.
            values: a buffer of all the latter, as 64-bit integers.
        """
        self._back += back
        self._shared += shared
        self._sizes += sizes
        self._values.append(values)
        self.rows += len(sizes)
        if len(self._sizes) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._sizes:
            return
        values = pa.py_buffer(b"".join(self._values))
        own = pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum([size or 0 for size in self._sizes])]), pa.int32()),
            pa.Array.from_buffers(pa.uint64(), len(values) >> 3, [None, values]),
            mask=pa.array([size is None for size in self._sizes]),
        )
        arrays = [pa.array(self._back, pa.int64()), pa.array(self._shared, pa.int64()), own]
        self._batches.take(pa.RecordBatch.from_arrays(arrays, schema=CHAINS))
        self._back, self._shared, self._sizes, self._values = [], [], [], []

    def table(self) -> pa.Table:
        """Return everything taken so far."""
        self._flush()
        table: pa.Table = self._batches.table()
        return table


def chains_of(lists: pa.ChunkedArray) -> pa.Table:
    """Return the chains of whole lists; none of them shares anything."""
    batches = []
    for own in lists.chunks:
        none = pa.array(np.zeros(len(own), dtype=np.int64))
        batches.append(pa.RecordBatch.from_arrays([none, none, own], schema=CHAINS))
    return pa.Table.from_batches(batches, schema=CHAINS)


def packing(chains: pa.Table) -> pa.Table:
    """Return how each row is packed, without any hash: `back`, `shared`, and the `size` of its own part or null."""
    sizes = pc.list_value_length(chains["own"]).cast(pa.int64())
    return pa.table({"back": chains["back"], "shared": chains["shared"], "size": sizes})


def lengths(packed: pa.Table) -> Numbers:
    """Return how many hashes each row has, −1 where it has none to tell of, by how rows are packed."""
    own = pc.fill_null(packed["size"], -1).to_numpy()
    found: Numbers = np.where(own < 0, own, own + packed["shared"].to_numpy())
    return found


def lists_of(chains: pa.Table, rows: Iterable[int]) -> list[list[int] | None]:
    """Return the whole lists of some rows, unpacking only the rows that they are linked with."""
    wanted = np.array(list(rows), dtype=np.int64)
    back, shared = (chains[name].to_numpy() for name in ("back", "shared"))
    above = np.where(shared > 0, np.arange(len(back)) - back, -1)
    needed = np.zeros(len(back), dtype=bool)
    active = np.unique(wanted)
    while len(active):
        needed[active] = True
        active = np.unique(above[active])
        active = active[active >= 0]
        active = active[~needed[active]]
    some = np.flatnonzero(needed)
    links = np.where(above[some] < 0, 0, np.arange(len(some)) - np.searchsorted(some, above[some]))
    part = chains.take(some).set_column(0, CHAINS.field("back"), pa.array(links))
    flat, edges = unpack(part)
    missing = pc.is_null(part["own"]).to_pylist()
    places = np.searchsorted(some, wanted).tolist()
    return [None if missing[at] else flat[edges[at] : edges[at + 1]].tolist() for at in places]


def ends(chains: pa.Table) -> pa.ChunkedArray:
    """Return the last hash of each row, which stands for its whole prompt."""
    found = []
    for own in chains["own"].chunks:
        offsets = np.asarray(own.offsets)
        own_ends = np.asarray(own.values)[np.maximum(offsets[1:], 1) - 1] if len(own.values) else np.zeros(len(own))
        found.append(pa.array(own_ends, pa.uint64(), mask=offsets[1:] == offsets[:-1]))
    whole = pa.chunked_array(found, pa.uint64())
    borrowed = np.flatnonzero(whole.is_null().to_numpy() & (lengths(packing(chains)) > 0))
    if not len(borrowed):
        return whole
    filled = whole.to_pylist()
    for row, hashes in zip(borrowed.tolist(), lists_of(chains, borrowed.tolist()), strict=True):
        filled[row] = hashes[-1] if hashes else None
    return pa.chunked_array([filled], pa.uint64())


def unpack(chains: pa.Table) -> tuple[Hashes, Numbers]:
    """Return the hashes of all rows one after another, and where each row begins; the last number is the end."""
    back, shared = (chains[name].to_numpy() for name in ("back", "shared"))
    sizes = shared + pc.fill_null(pc.list_value_length(chains["own"]), 0).to_numpy()
    edges = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    # numpy would ask for huge pages, which take longer to get than the lists do to write.
    flat: Hashes = np.frombuffer(pa.allocate_buffer(8 * int(edges[-1])), dtype=np.uint64)
    # In bytes, as plain numbers and between memoryviews, a row is copied twice as quickly as between arrays.
    out, places = flat.view(np.uint8).data, (8 * edges).tolist()
    links = zip(back.tolist(), (8 * shared).tolist(), strict=True)
    row = 0
    for own in chains["own"].chunks:
        values = np.asarray(own.values).view(np.uint8).data
        for begin, end in itertools.pairwise((8 * np.asarray(own.offsets, dtype=np.int64)).tolist()):
            above, common = next(links)
            start = places[row]
            if common:
                source = places[row - above]
                out[start : start + common] = out[source : source + common]
            out[start + common : places[row + 1]] = values[begin:end]
            row += 1
    return flat, edges


def expand(chains: pa.Table) -> pa.ChunkedArray:
    """Return every row's whole list of hashes, null where it has none; in one piece if its offsets allow."""
    flat, edges = unpack(chains)
    missing = pc.is_null(chains["own"]).combine_chunks()
    cuts = np.searchsorted(edges, np.arange(_LARGEST, edges[-1] + 1, _LARGEST), side="right") - 1
    pieces = [
        _lists(flat, edges[first : last + 1], missing.slice(first, last - first))
        for first, last in itertools.pairwise(dict.fromkeys([0, *cuts.tolist(), chains.num_rows]))
    ]
    return pa.chunked_array(pieces, HASHES)


def _lists(flat: Any, edges: Any, missing: pa.BooleanArray) -> pa.ListArray:
    values = pa.array(flat[edges[0] : edges[-1]])
    return pa.ListArray.from_arrays(pa.array(edges - edges[0], pa.int32()), values, mask=missing)
