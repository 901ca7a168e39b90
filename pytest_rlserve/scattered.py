"""Chains in parts, some of which are on other machines, and what can be told without fetching them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve import chains
from pytest_rlserve.errors import EvidenceError, UsageError
from pytest_rlserve.links import Links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

Lists = list[list[int] | None]


class There(Protocol):
    """A chains table where it is."""

    def fetch(self) -> pa.Table:
        """Bring it here."""

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function of the table and more arguments gives there."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A chains table in another process or on another machine."""

    there: There
    packing: pa.Table
    """How its rows are packed."""
    ends: pa.ChunkedArray
    """The last hash of each row."""


class Deferred:
    """A chains table in parts, some of which are elsewhere until somebody asks."""

    def __init__(self, parts: Iterable[Any]) -> None:
        """Take the parts in order: tables, and tables that are elsewhere."""
        self.parts: list[Any] = []
        for part in parts:
            self.parts += part.parts if isinstance(part, Deferred) else [part]
        self.told: dict[int, list[int] | None] = {}
        """The lists of rows that somebody asked for."""

    def table(self) -> pa.Table:
        """Return the whole table."""
        self.parts = [part.there.fetch() if isinstance(part, Elsewhere) else part for part in self.parts]
        return pa.concat_tables(self.parts) if self.parts else chains.CHAINS.empty_table()

    def lists_of(self, rows: Sequence[int]) -> Lists:
        """Return the whole lists of a few rows."""
        edges = np.cumsum([0, *(packing(part).num_rows for part in self.parts)])
        wanted = np.array(sorted({row for row in rows if row not in self.told}), dtype=np.int64)
        for part, first, end in zip(self.parts, edges, edges[1:], strict=False):
            some = wanted[(wanted >= first) & (wanted < end)]
            if len(some):
                inside, look = (some - first).tolist(), chains.lists_of
                found = look(part, inside) if isinstance(part, pa.Table) else part.there.ask(look, inside)
                self.told.update(zip(some.tolist(), found, strict=True))
        return [self.told[row] for row in rows]


@dataclass(frozen=True, slots=True)
class Left:
    """What is known of chains that stay elsewhere, for a process that cannot ask there."""

    packing: pa.Table
    ends: pa.ChunkedArray
    links: Links
    """How rows begin like others, whoever saw it."""
    differ: tuple[int, int] | None
    """Two rows in which a hash does not stand for one prompt."""
    told: dict[int, list[int] | None] = field(default_factory=dict)

    def lists_of(self, rows: Sequence[int]) -> Lists:
        """Return the whole lists of rows that somebody asked for where that could be found out."""
        if not self.told.keys() >= set(rows):
            raise _not_here()
        return [self.told[row] for row in rows]


class Unread:
    """Chains that are left in the files of their capture, and read when somebody asks for them."""

    def __init__(self, read: Callable[[], Any]) -> None:
        """Take what reads them, which happens once."""
        self._read = read

    @property
    def chains(self) -> Any:
        """Return the chains.

        Raises:
            EvidenceError: they cannot be had, now or ever.
        """
        if isinstance(self._found, EvidenceError):
            raise EvidenceError(*self._found.args)
        return self._found

    @cached_property
    def _found(self) -> Any:
        try:
            return self._read()
        except EvidenceError as error:
            return error


def _not_here() -> UsageError:
    return UsageError(
        "the block hashes of this capture stay on Ray, where only the process that has read it can fetch them: run "
        "without -n, or with --rl-engine=local"
    )


def gathered(some: Any) -> pa.Table:
    """Return a chains table, wherever it is.

    Raises:
        UsageError: it stays where it is.
    """
    if isinstance(some, Left):
        raise _not_here()
    table: pa.Table = some.table() if isinstance(some, Deferred) else some
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
    table: pa.Table = chains.packing(some) if isinstance(some, pa.Table) else some.packing
    return table


def lengths(some: Any) -> Numbers:
    """Return how many hashes each row has; −1 where it has none to tell of."""
    return chains.lengths(packing(some))


def ends(some: Any) -> pa.ChunkedArray:
    """Return the last hash of each row, which stands for its whole prompt."""
    if isinstance(some, Deferred):
        return pa.chunked_array([one for part in some.parts for one in ends(part).chunks], pa.uint64())
    return chains.ends(some) if isinstance(some, pa.Table) else some.ends


def lists_of(some: Any, rows: Sequence[int]) -> Lists:
    """Return the whole lists of a few rows, without fetching or unpacking the others."""
    found: Lists = chains.lists_of(some, rows) if isinstance(some, pa.Table) else some.lists_of(rows)
    return found


def links(some: Any) -> Links:
    """Return how rows begin like others, as they are packed."""
    packed = packing(some)
    back, shared = packed["back"].to_numpy(), packed["shared"].to_numpy()
    return Links(np.where(shared > 0, np.arange(len(back)) - back, -1), shared, _own(packed))


def _own(packed: pa.Table) -> Numbers:
    """Return where the own hashes of each row begin, and the end."""
    sizes = pc.fill_null(packed["size"], 0).to_numpy()
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def tables(some: Any) -> Iterator[tuple[str, pa.Table]]:
    """Go through chains as tables with names, to be written."""
    if not isinstance(some, Left):
        yield "chains", gathered(some)
        return
    columns = {name: some.packing[name] for name in ("back", "shared", "size")}
    columns |= {"end": some.ends, "above": pa.array(some.links.above), "begin": pa.array(some.links.begin)}
    yield "links", pa.table(columns).replace_schema_metadata({"differ": " ".join(map(str, some.differ or ()))})
    yield "told", pa.table({"row": pa.array(some.told, pa.int64()), "own": pa.array(some.told.values(), chains.HASHES)})


def of_tables(tables: dict[str, pa.Table]) -> Any:
    """Take chains out of tables with names, as `tables` gives them."""
    if "links" not in tables:
        return tables.pop("chains")
    known, told = tables.pop("links"), tables.pop("told")
    differ = tuple(map(int, known.schema.metadata[b"differ"].split()))
    packed = known.select(["back", "shared", "size"])
    found = Links(known["above"].to_numpy(), known["begin"].to_numpy(), _own(packed))
    rows = dict(zip(told["row"].to_pylist(), told["own"].to_pylist(), strict=True))
    return Left(packed, known["end"], found, (differ[0], differ[1]) if differ else None, rows)
