"""Chains in parts, some of which are in other processes or on other machines, and what can be told without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve import blocks, chains
from pytest_rlserve.links import Links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A chains table in another process or on another machine."""

    fetch: Callable[[], pa.Table]
    packing: pa.Table
    """How its rows are packed."""
    ends: pa.ChunkedArray
    """The last hash of each row."""


class Deferred:
    """A chains table in parts, some of which are elsewhere until somebody asks."""

    def __init__(self, parts: Iterable[Any]) -> None:
        """Take the parts in order: tables, and tables that are elsewhere."""
        self.parts = list(parts)

    def table(self) -> pa.Table:
        """Return the whole table."""
        self.parts = [gathered(part) for part in self.parts]
        return pa.concat_tables(self.parts) if self.parts else chains.CHAINS.empty_table()


def gathered(some: Any) -> pa.Table:
    """Return a chains table, wherever it is."""
    if isinstance(some, pa.Table):
        return some
    table: pa.Table = some.table() if isinstance(some, Deferred) else some.fetch()
    return table


def joined(parts: Sequence[Any]) -> Any:
    """Put chains together; nothing that is elsewhere is fetched for it."""
    if all(isinstance(part, pa.Table) for part in parts):
        return pa.concat_tables(parts) if parts else chains.CHAINS.empty_table()
    return Deferred(parts)


def packing(some: Any) -> pa.Table:
    """Return how each row is packed, without any hash: `back`, `shared`, and the `size` of its own part or null."""
    if isinstance(some, Deferred):
        return pa.concat_tables(map(packing, some.parts))
    table: pa.Table = some.packing if isinstance(some, Elsewhere) else chains.packing(some)
    return table


def lengths(some: Any) -> Numbers:
    """Return how many hashes each row has; −1 where it has none to tell of."""
    return chains.lengths(packing(some))


def ends(some: Any) -> pa.ChunkedArray:
    """Return the last hash of each row, which stands for its whole prompt."""
    if isinstance(some, Deferred):
        return pa.chunked_array([one for part in some.parts for one in ends(part).chunks], pa.uint64())
    return some.ends if isinstance(some, Elsewhere) else chains.ends(some)


def links(some: Any) -> Links:
    """Return how rows begin like others, as they are packed."""
    packed = packing(some)
    back, shared = packed["back"].to_numpy(), packed["shared"].to_numpy()
    own = np.concatenate([[0], np.cumsum(pc.fill_null(packed["size"], 0).to_numpy(), dtype=np.int64)])
    return Links(np.where(shared > 0, np.arange(len(back)) - back, -1), shared, own)


def repeats(some: Any) -> tuple[Numbers, Numbers]:
    """Return the places of own hashes that stand at an earlier place too, and the first such place of each."""
    lists = gathered(some)["own"]
    hashes = np.concatenate([np.zeros(0, dtype=np.uint64), *(np.asarray(own.flatten()) for own in lists.chunks)])
    later, first = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for few, places in blocks.dealt(hashes, blocks.shares_of(len(hashes))):
        again, before = blocks.repeated(few)
        later.append(places[again])
        first.append(places[before])
    return np.concatenate(later), np.concatenate(first)
