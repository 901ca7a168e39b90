"""From a file to its lines: gzip members, cut-off ends, byte order marks, and nothing lost on the way.

Dynamo's gzip sink appends one member per flush, so a healthy shard has many. A killed writer leaves the last
member cut: the lines before the cut are good and are returned; the cut is reported in `Lines.trouble`.
"""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING

from isal import isal_zlib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_LFS = b"version https://git-lfs.github.com/spec/"


class Lines:
    """The lines of one file, numbered from 1, in order; blank lines are counted but not returned.

    Lines end at LF only, with an optional CR before it: JSON text may hold every other separator raw.
    After iterating, `trouble` says why the file could not be read to its end, or is None; `digest` is the
    SHA-256 of the file's bytes.
    """

    def __init__(self, path: Path) -> None:
        """Read from `path`, decompressing if the content says so, whatever the name."""
        self.path = path
        self.trouble: str | None = None
        self.digest = ""
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield line numbers and lines."""
        number, rest = 0, b""
        for block in self._blocks():
            *pieces, tail = block.split(b"\n")
            for piece in pieces:
                number += 1
                if line := _stripped(rest + piece, number):
                    yield number, line
                rest = b""
            rest += tail
        if rest and self.trouble:
            self.trouble += f"; line {number + 1} is incomplete and was not read"
        elif line := _stripped(rest, number + 1):
            yield number + 1, line
        self.digest = self._hash.hexdigest()

    def _blocks(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            head = self._take(file)
            if head.startswith(_GZIP_MAGIC):
                yield from self._members(file, head)
                return
            if head.startswith(_LFS):
                self.trouble = "is a Git LFS pointer, not the file itself: run 'git lfs pull'"
                return
            while head:
                yield head
                head = self._take(file)

    def _take(self, file: IO[bytes]) -> bytes:
        chunk = file.read(_CHUNK)
        self._hash.update(chunk)
        return chunk

    def _members(self, file: IO[bytes], pending: bytes) -> Iterator[bytes]:
        member = 0
        while True:
            pending = pending.lstrip(b"\0") if member else pending  # tape padding after a member is harmless
            pending = pending or self._take(file)
            if not pending:
                return
            member += 1
            if len(pending) < len(_GZIP_MAGIC):
                pending += self._take(file)
            if not pending.startswith(_GZIP_MAGIC):
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


def _stripped(line: bytes, number: int) -> bytes:
    """Return the line without its CR, the white space around it, and a byte order mark before line 1."""
    text = line.removeprefix(_BOM) if number == 1 else line
    return text.rstrip(b"\r").strip(b" \t")
