"""From a file to its lines: gzip members, cut-off ends, byte order marks, and nothing lost on the way.

Dynamo's gzip sink appends one member per flush, so a healthy shard has many. A killed writer leaves the last
member cut: the lines before the cut are good and are returned; the cut is reported in `Lines.trouble`.
"""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING

from isal import isal_zlib

from pytest_rlserve.engine import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.readers.store import Place

Span = tuple[int, int]
"""Where a part of a file begins and ends, in bytes."""
_CHUNK = 1 << 17
"""Bytes of the file that are taken at once."""
_BLOCK = 3 << 18
"""Bytes of text that are given out at once, or somewhat more: they stay in the processor's cache."""
GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_LFS = b"version https://git-lfs.github.com/spec/"


class Lines:
    """The lines of one file, numbered from 1, in order; blank lines are counted but not returned.

    Lines end at LF only, with an optional CR before it: JSON text may hold every other separator raw.
    After iterating, `trouble` says why the file could not be read to its end, or is None; `digest` is the
    SHA-256 of the file's bytes.
    """

    def __init__(self, path: Place, span: Span | None = None, *, counted: bool = True) -> None:
        """Read from `path`, decompressing if the content says so, whatever the name.

        A span is read as if it were the file; in a gzip file it has to begin and end where members do. What is
        `counted` shows as progress.
        """
        self.counted = counted
        self.path = path
        self.start = 0 if span is None else span[0]
        self._left: int | None = None if span is None else span[1] - span[0]
        self.trouble: str | None = None
        self.digest = ""
        self.count = 0
        """Lines so far; who takes `blocks` counts them."""
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield line numbers and lines."""
        for block in self.blocks():
            first = self.count + 1
            lines = split(block)
            self.count += len(lines)
            for number, line in enumerate(lines, first):
                if text := stripped(line, number):
                    yield number, text

    def blocks(self) -> Iterator[bytes]:
        """Yield whole lines, many at once; each ends in LF, except for the last one of a file that does not."""
        pieces: list[bytes | memoryview] = []
        size = 0
        for data in self._data():
            pieces.append(data)
            size += len(data)
            end = data.rfind(b"\n") + 1 if size >= _BLOCK else 0
            if end:
                pieces[-1] = memoryview(data)[:end]
                yield b"".join(pieces)
                pieces, size = [data[end:]], len(data) - end
        text = b"".join(pieces)
        end = text.rfind(b"\n") + 1 if self.trouble else len(text)
        if end:
            yield text[:end]
        if end < len(text):
            self.trouble = f"{self.trouble}; line {self.count + 1} is incomplete and was not read"
        self.digest = self._hash.hexdigest()

    def _data(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            if self.start:
                file.seek(self.start)
            head = self._take(file)
            if head.startswith(GZIP_MAGIC):
                yield from self._members(file, head)
                return
            if head.startswith(_LFS):
                self.trouble = "is a Git LFS pointer, not the file itself: run 'git lfs pull'"
                return
            while head:
                yield head
                head = self._take(file)

    def _take(self, file: IO[bytes]) -> bytes:
        chunk = file.read(_CHUNK if self._left is None else min(_CHUNK, self._left))
        if self._left is not None:
            self._left -= len(chunk)
        self._hash.update(chunk)
        if self.counted:
            progress.advance(size=len(chunk))
        return chunk

    def _members(self, file: IO[bytes], pending: bytes) -> Iterator[bytes]:
        member = 0
        while True:
            pending = pending.lstrip(b"\0") if member else pending  # tape padding after a member is harmless
            pending = pending or self._take(file)
            if not pending:
                return
            member += 1
            if len(pending) < len(GZIP_MAGIC):
                pending += self._take(file)
            if not pending.startswith(GZIP_MAGIC):
                self.trouble = f"has bytes that are not gzip after member {member - 1}"
                self._drain(file)
                return
            unzip = isal_zlib.decompressobj(31)
            while not unzip.eof:
                if not pending and not (pending := self._take(file)):
                    self.trouble = (
                        f"is truncated inside gzip member {member}: its writer was killed, or the copy was cut"
                    )
                    return
                try:
                    data = unzip.decompress(pending)
                except isal_zlib.error as error:  # type: ignore[misc]
                    self.trouble = f"is damaged inside gzip member {member} ({error})"
                    self._drain(file)
                    return
                if data:
                    yield data
                pending = b""
            pending = unzip.unused_data

    def _drain(self, file: IO[bytes]) -> None:
        while self._take(file):
            pass


def split(block: bytes) -> list[bytes]:
    """Return the lines of a block, without their LF."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def stripped(line: bytes, number: int) -> bytes:
    """Return the line without its CR, the white space around it, and a byte order mark before line 1."""
    text = line.removeprefix(_BOM) if number == 1 else line
    return text.rstrip(b"\r").strip(b" \t")
