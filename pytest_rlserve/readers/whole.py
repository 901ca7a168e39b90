"""Files put together from their pieces, which several processes or Ray have read."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve import model
from pytest_rlserve.chains import Elsewhere, joined
from pytest_rlserve.engine import cluster, local, progress
from pytest_rlserve.readers.dynamo import Shard
from pytest_rlserve.readers.pieces import Piece, cuts, read_apart, read_piece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from pytest_rlserve.readers.jsonl import Content, File
    from pytest_rlserve.readers.store import Place

_STEP = 1 << 18
_ON_RAY = 16
"""Pieces in all, or more; there are about as many processors in a small cluster."""
_LARGEST = 64 << 20
"""Bytes of a piece, more or less: a task's memory is a small multiple of it."""


class Whole(Shard):
    """A file that is put together from its pieces, in their order."""

    def __init__(self, file: File) -> None:
        """Start without any."""
        super().__init__(replace(file, spill=None))
        self._parts: dict[str, list[Any]] = {name: [] for name in (*self.tables, "chains")}
        self._lines = 0
        self._open = b""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its tables."""
        return tuple(self._parts)

    def add_piece(self, answer: dict[str, Any], tables: dict[str, Any], *, first: bool) -> None:
        """Take what was read of a piece; its chains may still be elsewhere."""
        head = answer["head"].encode("latin-1")
        self._open += head
        if head.endswith(b"\n"):
            self.close_line()
        if first or head.endswith(b"\n"):
            above = 0 if first else self._lines - 1
            self._append(tables, answer["kinds"], above)
            for line, why in answer["explained"]:
                self.refuse(line + above, why)
            if (more := answer["refused"] - len(answer["explained"])) > 0:
                self.refuse(answer["last"][0] + above, answer["last"][1], more)
            self._lines = answer["lines"] + above
            self._open = answer["tail"].encode("latin-1")

    def close_line(self) -> None:
        """Read the line that lies across a cut."""
        if self._open:
            self._lines += 1
            one = Shard(self.file)
            one.take(self._open, self._lines)
            self._append(one.done().tables, one.content.kinds, 0)
            for line, why in one.explained:
                self.refuse(line, why)
            self._open = b""

    def _append(self, tables: dict[str, pa.Table], kinds: dict[str, int], above: int) -> None:
        for name, table in tables.items():
            self._parts[name].append(_lowered(table, above))
        for kind, rows in kinds.items():  # whoever read the piece has shown their progress
            self.content.kinds[kind] = self.content.kinds.get(kind, 0) + rows

    def content_of(self, digest: str) -> Content:
        """Return everything, as `dynamo.read` would."""
        self.close_line()
        self.finish(digest, None)
        chains = self._parts.pop("chains")
        self.content.tables = {name: pa.concat_tables(parts) for name, parts in self._parts.items()}
        self.content.tables["chains"] = joined(chains)
        return self.content


def _lowered(table: Any, lines: int) -> Any:
    """Return the table as it is with so many lines above."""
    if not lines or not isinstance(table, pa.Table) or "line" not in table.column_names:
        return table
    place = table.schema.get_field_index("line")
    return table.set_column(place, table.schema.field(place), pc.add(table["line"], lines))


def _planned(files: Sequence[File], pieces: int, folder: Path | None) -> list[list[Piece]]:
    """Cut files into about so many pieces in all."""
    share = max(sum(file.path.stat().st_size for file in files) // pieces, 1)
    planned: list[list[Piece]] = []
    for number, file in enumerate(files):
        size = file.path.stat().st_size
        some = []
        for start, end in cuts(file.path, -(-size // share)):
            spill = None
            if folder is not None:
                spill = str(folder / f"{number:06d}-{start}")
                Path(spill).mkdir()
            some.append(Piece(str(file.path), file.label, start, end, end == size, spill))
        planned.append(some)
    return planned


def read(files: Sequence[File], folder: Path, processes: int) -> list[Content | None]:
    """Read trace files in several processes, which leave their tables in `folder`.

    Returns:
        What each file gave, None for one that has to be read in one go.
    """
    planned = _planned(files, 2 * processes, folder)
    pieces = [piece for some in planned for piece in some]
    sizes = [piece.end - piece.start for piece in pieces]
    with ThreadPoolExecutor(1) as beside:
        digests = _digests(beside, files, planned)
        answers = iter(
            local.run(f"{read_piece.__module__}:read_piece", list(map(asdict, pieces)), sizes, processes=processes)
        )
    found = []
    for file, some, digest in zip(files, planned, digests, strict=True):
        whole = Whole(file)
        read = [
            (answer, piece, partial(_mapped, piece, whole.names)) for piece, answer in zip(some, answers, strict=False)
        ]
        found.append(_put_together(whole, read, digest))
    return found


def _mapped(piece: Piece, names: Sequence[str]) -> dict[str, Any]:
    return {name: model.mapped(Path(piece.spill or "") / f"{name}.arrow") for name in names}


def read_on_ray(files: Sequence[File], engine: str) -> list[Content | None]:
    """Read trace files on Ray, whose workers have to see them under the same names; hashes stay with the workers.

    Args:
        files: the files.
        engine: "ray", "ray:" and the address of a cluster, or an address of the form "ray://host:port".
    """
    address = engine if engine.startswith("ray://") else engine.partition(":")[2] or None
    total = sum(file.path.stat().st_size for file in files)
    planned = _planned(files, max(_ON_RAY, total // _LARGEST), None)
    pieces = [piece for some in planned for piece in some]
    found = []
    with ThreadPoolExecutor(1) as beside:
        digests = _digests(beside, files, planned)
        answers = cluster.run(read_apart, pieces, address)
        for file, some, digest in zip(files, planned, digests, strict=True):
            read: list[tuple[Any, Piece, Callable[[], dict[str, Any]]]] = []
            for piece in some:
                (answer, tables), chains = next(answers)
                progress.advance(piece.end - piece.start, sum(answer["kinds"].values()))
                there = Elsewhere(chains, tables.pop("ends"))
                read.append((answer, piece, partial(dict, tables, chains=there)))
            found.append(_put_together(Whole(file), read, digest))
    return found


def _digests(
    beside: ThreadPoolExecutor, files: Sequence[File], planned: Sequence[list[Piece]]
) -> list[Future[str] | None]:
    """Start to compute the digests of files that nobody reads whole."""
    return [
        beside.submit(_digest, file.path) if len(some) > 1 else None for file, some in zip(files, planned, strict=True)
    ]


def _put_together(
    whole: Whole, read: Sequence[tuple[dict[str, Any] | None, Piece, Callable[[], dict[str, Any]]]], digest: Any
) -> Content | None:
    text = ""
    for answer, piece, tables in read:
        if answer is None or answer["trouble"]:
            return None
        whole.add_piece(answer, tables(), first=piece.start == 0)
        text = answer["digest"]
    return whole.content_of(text if digest is None else digest.result())


def _digest(path: Place) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_STEP):
            digest.update(chunk)
    return digest.hexdigest()
