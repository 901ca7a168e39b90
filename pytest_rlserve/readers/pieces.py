"""Large traces, read in pieces by several processes and put together as if one had read them.

A gzip file is cut where members begin, a plain one anywhere. The line across a cut is read by itself, so the tables
are the same, row by row. A piece that is not sound (a cut that was no member's start, a damaged member) makes its
file be read again in one go, which then says what is wrong and where.
"""

from __future__ import annotations

import itertools
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3
from isal import isal_zlib

from pytest_rlserve.chains import ends, packing
from pytest_rlserve.engine import progress
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers.blocks import uncollected
from pytest_rlserve.readers.dynamo import Shard
from pytest_rlserve.readers.jsonl import File
from pytest_rlserve.readers.lines import GZIP_MAGIC, Lines, Span
from pytest_rlserve.readers.store import located
from pytest_rlserve.repack import repacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pytest_rlserve.readers.store import Place, Remote

_MEMBER = GZIP_MAGIC + b"\x08"
_STEP = 1 << 18
_REACHES = (1 << 21, 1 << 23)
"""Bytes of an object to look for a member in, at first and then; a member has about a million."""


def cuts(path: Place, pieces: int) -> list[Span]:
    """Cut a file into at most so many spans of about one size; a gzip file only where a member begins."""
    size = path.stat().st_size
    if pieces < 2 or not size:
        return [(0, size)]
    wanted = [size * number // pieces for number in range(1, pieces)]
    found = _near(path, wanted) if isinstance(path, Path) else _far(path, wanted)
    edges = sorted({0, size, *found})
    return list(itertools.pairwise(edges))


def _near(path: Path, wanted: list[int]) -> list[int]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        packed = text[:2] == GZIP_MAGIC
        return [_member(text, place) if packed else place for place in wanted]


def _far(path: Remote, wanted: list[int]) -> list[int]:
    """Find cuts in an object from a little of it after each place; without a whole member there, there is no cut."""
    found = []
    with path.ranges() as file:
        if file.read(2) != GZIP_MAGIC:
            return wanted
        for place in wanted:
            for reach in _REACHES:
                file.seek(place)
                text = file.read(reach) or b""
                if (start := _member(text, 0)) < len(text):
                    found.append(place + start)
                    break
    return found


def _member(text: mmap.mmap | bytes, place: int) -> int:
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
    size: int
    """Of the whole file, where the piece was cut."""
    spill: str | None = None
    """The folder for its tables; None keeps them in memory."""
    hashes: bool = True
    """Whether block hashes are read."""


class Edges:
    """The text inside a piece; its first and last line, which may go on in its neighbours, are kept apart."""

    def __init__(self, piece: Piece) -> None:
        """Begin with nothing kept."""
        self.head, self.tail = b"", b""
        self._within, self._last = piece.start == 0, piece.end == piece.size

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
    """Read one piece into Arrow files; what is returned fits into JSON."""
    piece = Piece(**task)
    return _read(piece, located(piece.path))[0]


def digest(path: str) -> str:
    """Return the BLAKE3 of a whole file. It is not mapped, or we would be killed if it were cut short meanwhile."""
    whole, buffer = blake3(), memoryview(bytearray(1 << 20))
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            whole.update(buffer[:size])
            progress.advance()  # a sign of life; who reads the pieces counts their bytes
    return whole.hexdigest()


def read_apart(piece: Piece) -> tuple[tuple[dict[str, Any], dict[str, pa.Table]], pa.Table]:
    """Read one piece; the hashes, which are most of it, are returned apart, and only how rows are packed with it.

    Raises:
        UsageError: the file is not here, or another one.
    """
    file = located(piece.path)
    if isinstance(file, Path) and not file.is_file():
        how = "share the folder under this path, give a capture in an object store, or leave out --rl-engine"
        raise UsageError(f"{piece.path} is not there, and every node has to see it: {how}")
    if file.stat().st_size != piece.size:
        raise UsageError(f"{piece.path} has {file.stat().st_size:,} bytes there and {piece.size:,} where pytest runs")
    answer, tables = _read(piece, file)
    chains = repacked(tables.pop("chains"))
    return (answer, tables | {"packing": packing(chains).append_column("end", ends(chains))}), chains


def _read(piece: Piece, path: Place) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Read one piece.

    The first line of a piece may have begun in the piece before, and the last one may go on in the next: both are
    returned as text. So is the first one if it is whole, for only the piece before can tell.
    """
    spill = None if piece.spill is None else Path(piece.spill)
    shard = Shard(File(path, piece.label, spill=spill, hashes=piece.hashes))
    # Of a file that is cut on this machine, the digest of the whole is computed apart.
    hashed = piece.spill is None or piece.end - piece.start == piece.size
    lines = Lines(path, (piece.start, piece.end), hashed=hashed)
    edges = Edges(piece)
    lines.count = 0 if piece.start == 0 else 1
    with uncollected():
        for text in edges.inside(lines.blocks()):
            lines.count += shard.take(text, lines.count + 1)
            del text
    tables = shard.done().tables
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
    }, tables
