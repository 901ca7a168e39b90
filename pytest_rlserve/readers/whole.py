"""Files put together from their pieces, which several processes (here) or Ray (`on_ray`) have read."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve import model
from pytest_rlserve.engine import local
from pytest_rlserve.engine.local import Task
from pytest_rlserve.readers import pieces
from pytest_rlserve.readers.dynamo import Shard
from pytest_rlserve.readers.lines import LONGEST
from pytest_rlserve.readers.pieces import Piece, cuts
from pytest_rlserve.scattered import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_rlserve.readers.jsonl import Content, File

_TURNS = 8
"""Pieces for each process: so small that nobody waits long for the last one, and so large that cuts cost nothing."""
_DIGESTS = 14
"""How often the digest of some bytes could be computed while they are read, more or less."""


class Whole(Shard):
    """A file that is put together from its pieces, in their order."""

    def __init__(self, file: File) -> None:
        """Start without any."""
        super().__init__(replace(file, spill=None))
        names = (*self.tables, *(["chains"] if file.hashes else []))
        self._parts: dict[str, list[Any]] = {name: [] for name in names}
        self._lines = 0
        self._open = b""
        self.sound = True
        """Whether no line across a cut is too long to be read."""

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
        self.sound &= len(self._open.removesuffix(b"\n")) <= LONGEST
        if self._open and self.sound:
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
        self.content.tables = {
            name: joined(parts) if name == "chains" else pa.concat_tables(parts) for name, parts in self._parts.items()
        }
        return self.content


def _lowered(table: Any, lines: int) -> Any:
    """Return the table as it is with so many lines above."""
    if not lines or not isinstance(table, pa.Table) or "line" not in table.column_names:
        return table
    place = table.schema.get_field_index("line")
    return table.set_column(place, table.schema.field(place), pc.add(table["line"], lines))


def planned_pieces(files: Sequence[File], pieces: int, folder: Path | None) -> list[list[Piece]]:
    """Cut files into about so many pieces in all; their tables go to `folder`, if that is given."""
    share = max(-(-sum(file.path.stat().st_size for file in files) // pieces), 1)
    planned: list[list[Piece]] = []
    for number, file in enumerate(files):
        size = file.path.stat().st_size
        path = str(file.path.absolute() if isinstance(file.path, Path) else file.path)
        # To this machine an object comes once, and whole.
        parts = 1 if folder is not None and not isinstance(file.path, Path) else -(-size // share)
        some = []
        for start, end in cuts(file.path, parts):
            spill = None
            if folder is not None:
                spill = str(folder / f"{number:06d}-{start}")
                Path(spill).mkdir()
            some.append(Piece(path, file.label, start, end, size, spill, file.hashes))
        planned.append(some)
    return planned


def read(files: Sequence[File], folder: Path, processes: int) -> list[Content | None]:
    """Read trace files in several processes, which leave their tables in `folder`.

    Returns:
        What each file gave, None for one that has to be read in one go.
    """
    before = list(map(_state, files))
    with local.Crew(pieces.__name__, processes) as crew:
        planned = planned_pieces(files, _TURNS * processes, folder)
        tasks = []
        for some in planned:
            tasks += [Task("read_piece", asdict(piece), piece.end - piece.start) for piece in some]
            if len(some) > 1:  # nobody reads it whole
                tasks.append(Task("digest", some[0].path, some[0].size // _DIGESTS))
        answers = iter(crew.do(tasks))
    found = []
    for file, some, state in zip(files, planned, before, strict=True):
        whole = Whole(file)
        read = [(next(answers), piece, partial(_mapped, piece, whole.names)) for piece in some]
        content = put_together(whole, read, next(answers) if len(some) > 1 else None)
        found.append(content if _state(file) == state else None)
    return found


def _state(file: File) -> tuple[int, int] | None:
    """Return what differs once a file was written to: its pieces and its digest would not be those of one content."""
    if not isinstance(file.path, Path):
        return None  # it is read in one piece
    told = file.path.stat()
    return told.st_size, told.st_mtime_ns


def _mapped(piece: Piece, names: Sequence[str]) -> dict[str, Any]:
    return {name: model.mapped(Path(piece.spill or "") / f"{name}.arrow") for name in names}


def put_together(
    whole: Whole, read: Sequence[tuple[dict[str, Any] | None, Piece, Callable[[], dict[str, Any]]]], digest: str | None
) -> Content | None:
    """Put a file together; None if a piece of it is missing or not sound.

    Args:
        whole: the file, without any pieces.
        read: of each piece its answer, itself, and what gives its tables.
        digest: of the whole file; None where one piece is all of it.
    """
    text = ""
    for answer, piece, tables in read:
        if answer is None or answer["trouble"]:
            return None
        whole.add_piece(answer, tables(), first=piece.start == 0)
        text = answer["digest"]
    content = whole.content_of(text if digest is None else digest)
    return content if whole.sound else None
