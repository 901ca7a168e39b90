"""Large traces, read in pieces by several processes and put together as if one had read them.

A gzip file is cut where members begin, a plain one anywhere. The line across a cut is read by itself, so the tables
are the same, row by row. A piece that is not sound (a cut that was no member's start, a damaged member) makes its
file be read again in one go, which then says what is wrong and where.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from pytest_rlserve import model
from pytest_rlserve.engine import local
from pytest_rlserve.readers.dynamo import Shard
from pytest_rlserve.readers.jsonl import Content, File
from pytest_rlserve.readers.lines import GZIP_MAGIC, Lines, Span
from pytest_rlserve.readers.store import located

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_rlserve.readers.store import Place

_MEMBER = GZIP_MAGIC + b"\x08"
_STEP = 1 << 18


def cuts(path: Place, pieces: int) -> list[Span]:
    """Cut a file into at most so many spans of about one size; a gzip file only where a member begins.

    An object of a store stays whole: looking for its members would fetch it twice.
    """
    size = path.stat().st_size
    if pieces < 2 or not size or not isinstance(path, Path):
        return [(0, size)]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        packed = text[:2] == GZIP_MAGIC
        wanted = [size * number // pieces for number in range(1, pieces)]
        found = [_member(text, place) if packed else place for place in wanted]
    edges = sorted({0, size, *found})
    return list(itertools.pairwise(edges))


def _member(text: mmap.mmap, place: int) -> int:
    """Return where the first whole gzip member at or after `place` begins, its checksum verified; else the end."""
    while (place := text.find(_MEMBER, place)) >= 0:
        unzip = isal_zlib.decompressobj(31)
        try:
            for start in range(place, len(text), _STEP):
                unzip.decompress(text[start : start + _STEP])
                if unzip.eof:
                    return place
        except isal_zlib.error:  # type: ignore[misc]
            pass
        place += 1
    return len(text)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file, to be read by itself."""

    path: str
    label: str
    start: int
    end: int
    last: bool
    """Nothing of the file follows."""
    spill: str
    """The folder for its tables."""


class Edges:
    """The text inside a piece; its first and last line, which may go on in its neighbours, are kept apart."""

    def __init__(self, piece: Piece) -> None:
        """Begin with nothing kept."""
        self.head, self.tail = b"", b""
        self._within, self._last = piece.start == 0, piece.last

    def inside(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the lines between the first and the last."""
        for block in blocks:
            begin, end = 0, len(block)
            if not self._within:
                begin = block.find(b"\n") + 1
                self._within = bool(begin)
                self.head += block[: begin or end]
                begin = begin or end
            if not self._last and begin < end:
                end = max(block.rfind(b"\n") + 1, begin)
                self.tail = block[end:]
            if begin < end:
                yield block[begin:end]


def read_piece(task: dict[str, Any]) -> dict[str, Any]:
    """Read one piece into Arrow files; what is returned fits into JSON.

    The first line of a piece may have begun in the piece before, and the last one may go on in the next: both are
    returned as text. So is the first one if it is whole, for only the piece before can tell.
    """
    piece = Piece(**task)
    shard = Shard(File(located(piece.path), piece.label, spill=Path(piece.spill)))
    lines = Lines(shard.file.path, (piece.start, piece.end))
    edges = Edges(piece)
    lines.count = 0 if piece.start == 0 else 1
    for text in edges.inside(lines.blocks()):
        lines.count += shard.take(text, lines.count + 1)
    shard.done()
    return {
        "lines": lines.count,
        "head": edges.head.decode("latin-1"),
        "tail": edges.tail.decode("latin-1"),
        "kinds": shard.content.kinds,
        "refused": shard.refused,
        "explained": shard.explained,
        "last": shard.last,
        "trouble": lines.trouble,
        "digest": lines.digest,
    }


class Whole(Shard):
    """A file that is put together from its pieces, in their order."""

    def __init__(self, file: File) -> None:
        """Start without any."""
        super().__init__(replace(file, spill=None))
        self._parts: dict[str, list[pa.Table]] = {name: [] for name in (*self.tables, "chains")}
        self._lines = 0
        self._open = b""

    def add_piece(self, spill: Path, answer: dict[str, Any], *, first: bool) -> None:
        """Take the answer of `read_piece` and the tables it left in `spill`."""
        head = answer["head"].encode("latin-1")
        self._open += head
        if head.endswith(b"\n"):
            self.close_line()
        if first or head.endswith(b"\n"):
            above = 0 if first else self._lines - 1
            tables = {name: model.mapped(spill / f"{name}.arrow") for name in self._parts}
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
        for kind, rows in kinds.items():
            self.count(kind, rows)

    def content_of(self, digest: str) -> Content:
        """Return everything, as `dynamo.read` would."""
        self.close_line()
        self.finish(digest, None)
        self.content.tables = {name: pa.concat_tables(parts) for name, parts in self._parts.items()}
        return self.content


def _lowered(table: pa.Table, lines: int) -> pa.Table:
    """Return the table as it is with so many lines above."""
    if not lines or "line" not in table.column_names:
        return table
    place = table.schema.get_field_index("line")
    return table.set_column(place, table.schema.field(place), pc.add(table["line"], lines))


def read(files: Sequence[File], folder: Path, processes: int) -> list[Content | None]:
    """Read trace files in several processes, which leave their tables in `folder`.

    Returns:
        What each file gave, None for one that has to be read in one go.
    """
    share = max(sum(file.path.stat().st_size for file in files) // (2 * processes), 1)
    pieces: list[Piece] = []
    owned: list[range] = []
    for file in files:
        before, size = len(pieces), file.path.stat().st_size
        for start, end in cuts(file.path, -(-size // share)):
            spill = folder / f"{len(pieces):06d}"
            spill.mkdir()
            pieces.append(Piece(str(file.path), file.label, start, end, end == size, str(spill)))
        owned.append(range(before, len(pieces)))
    sizes = [piece.end - piece.start for piece in pieces]
    with ThreadPoolExecutor(1) as beside:
        digests = [
            beside.submit(_digest, file.path) if len(some) > 1 else None
            for file, some in zip(files, owned, strict=True)
        ]
        answers = local.run(f"{__name__}:read_piece", list(map(asdict, pieces)), sizes, processes=processes)
    return [
        _whole(
            file, [(pieces[number], answers[number]) for number in numbers], None if digest is None else digest.result()
        )
        for file, numbers, digest in zip(files, owned, digests, strict=True)
    ]


def _whole(file: File, pieces: list[tuple[Piece, dict[str, Any] | None]], digest: str | None) -> Content | None:
    whole = Whole(file)
    for piece, answer in pieces:
        if answer is None or answer["trouble"]:
            return None
        whole.add_piece(Path(piece.spill), answer, first=piece.start == 0)
        digest = digest or answer["digest"]
    return whole.content_of(digest or "")


def _digest(path: Place) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_STEP):
            digest.update(chunk)
    return digest.hexdigest()
