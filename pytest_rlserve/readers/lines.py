"""From a file to its lines: gzip members, cut-off ends, byte order marks, and nothing lost on the way.

Dynamo's gzip sink appends one member per flush, so a healthy shard has many. A killed writer leaves the last
member cut: the lines before the cut are good and are returned; the cut is reported in `Lines.trouble`.
"""

from __future__ import annotations

import gzip
import io
from typing import IO, TYPE_CHECKING, Any

from blake3 import blake3
from isal import igzip, isal_zlib

from pytest_rlserve.engine import progress

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytest_rlserve.readers.store import Place

Text = bytes | bytearray
Span = tuple[int, int]
"""Where a part of a file begins and ends, in bytes."""
_CHUNK = 1 << 17
"""Bytes of the file that are taken at once where its gzip members are looked at one by one."""
_BLOCK = 3 << 18
"""Bytes of text that are given out at once, more or less: they stay in the processor's cache."""
LONGEST = 1 << 28
"""Bytes that a line may have; a few megabytes of gzip can hold a line that no memory does."""
_GLANCE = 1 << 15
"""Bytes of text that are unpacked to see what a file holds."""
GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_LFS = b"version https://git-lfs.github.com/spec/"
_UNSOUND = (EOFError, gzip.BadGzipFile, isal_zlib.error)


class Part(io.RawIOBase):
    """The bytes of a file, or of a span of it, with their digest."""

    def __init__(self, file: IO[bytes], span: Span | None, *, counted: bool, hashed: bool) -> None:
        """Begin where the span does; what is `counted` shows as progress, what is not `hashed` has no digest."""
        self._file, self._counted = file, counted
        self._left = None if span is None else span[1] - span[0]
        self._hash = blake3() if hashed else None
        file.seek(0 if span is None else span[0])

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on."""
        room = memoryview(buffer)[: self._left]
        size = self._file.readinto(room)  # type: ignore[attr-defined]
        if self._left is not None:
            self._left -= size
        if self._hash is not None:
            self._hash.update(room[:size])
        if self._counted:
            progress.advance(size=size)
        return int(size)

    @property
    def digest(self) -> str:
        """Return the digest of what was read."""
        return "" if self._hash is None else self._hash.hexdigest()


class Lines:
    """The lines of one file, numbered from 1, in order; blank lines are counted but not returned.

    Lines end at LF only, with an optional CR before it: JSON text may hold every other separator raw.
    After iterating, `trouble` says why the file could not be read to its end, or is None; `digest` is the
    BLAKE3 of the file's bytes.
    """

    def __init__(self, path: Place, span: Span | None = None, *, counted: bool = True, hashed: bool = True) -> None:
        """Read from `path`, decompressing if the content says so, whatever the name.

        A span is read as if it were the file; in a gzip file it has to begin and end where members do. What is
        `counted` shows as progress, and what is not `hashed` has no digest.
        """
        self.counted, self._hashed = counted, hashed
        self.path = path
        self._span = span
        self.trouble: str | None = None
        self.digest = ""
        self.count = 0
        """Lines so far; who takes `blocks` counts them."""

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
        held: list[Text] = []
        size = 0
        for data in self._data():
            if self.trouble:
                continue  # read on for the digest
            first, end = data.find(b"\n"), data.rfind(b"\n") + 1
            size += first if end else len(data)
            if size > LONGEST:
                held = [data[:1]]
                self.trouble = f"has a line of more than {LONGEST:,} bytes, which no row is, and was not read on there"
            elif end:
                yield b"".join([*held, memoryview(data)[:end]])
                held = [data[end:]]
                size = len(data) - end
            else:
                held.append(bytes(data))
        text = b"".join(held)
        end = text.rfind(b"\n") + 1 if self.trouble else len(text)
        if end:
            yield text[:end]
        if end < len(text):
            self.trouble = f"{self.trouble}; line {self.count + 1} is incomplete and was not read"

    def _data(self) -> Iterator[Text]:
        """Yield the text bit by bit; each lies in one buffer, and is good until the next is asked for."""
        with self.path.open("rb") as file:
            start = 0 if self._span is None else self._span[0]
            file.seek(start)
            head = file.read(len(_LFS))
            part = Part(file, self._span, counted=self.counted, hashed=self._hashed)
            if head.startswith(_LFS):
                self.trouble = "is a Git LFS pointer, not the file itself: run 'git lfs pull'"
            elif head.startswith(GZIP_MAGIC):
                part = yield from self._unpacked(file, part)
            else:
                yield from _filled(part)
            while part.read(_CHUNK):  # for its digest
                pass
            self.digest = part.digest

    def _unpacked(self, file: IO[bytes], part: Part) -> Generator[Text, None, Part]:
        """Yield what a gzip file holds; one that is not sound is read again, member by member."""
        given = 0
        try:
            with igzip.IGzipFile(fileobj=part, mode="rb") as stream:  # type: ignore[no-untyped-call]
                for text in _filled(stream):
                    given += len(text)
                    yield text
        except _UNSOUND:  # type: ignore[misc]
            part = Part(file, self._span, counted=False, hashed=self._hashed)
            for data in self._members(part):
                yield data[given:]
                given = max(given - len(data), 0)
        return part

    def _members(self, part: Part) -> Iterator[bytes]:
        """Yield what the members hold, and say in which of them is trouble."""
        member, pending = 0, b""
        while True:
            pending = pending.lstrip(b"\0") if member else pending  # tape padding after a member is harmless
            pending = pending or part.read(_CHUNK)
            if not pending:
                return
            member += 1
            if len(pending) < len(GZIP_MAGIC):
                pending += part.read(_CHUNK)
            if not pending.startswith(GZIP_MAGIC):
                self.trouble = f"has bytes that are not gzip after member {member - 1}"
                return
            unzip = isal_zlib.decompressobj(31)
            while not unzip.eof:
                if not pending and not (pending := part.read(_CHUNK)):
                    self.trouble = (
                        f"is truncated inside gzip member {member}: its writer was killed, or the copy was cut"
                    )
                    return
                try:
                    data = unzip.decompress(pending)
                except isal_zlib.error as error:  # type: ignore[misc]
                    self.trouble = f"is damaged inside gzip member {member} ({error})"
                    return
                yield data
                pending = b""
            pending = unzip.unused_data


def _filled(stream: io.RawIOBase | io.BufferedIOBase) -> Iterator[bytearray]:
    """Read on into one buffer: memory that is new for every block has to be mapped and cleared for every block."""
    buffer = bytearray(_BLOCK)
    while size := stream.readinto(buffer):
        yield buffer if size == len(buffer) else buffer[:size]


def beginning(start: bytes) -> list[bytes]:
    """Return the first lines of a file that begins with `start`, as far as they are whole in some of its text."""
    text = start
    if start.startswith(GZIP_MAGIC):
        try:
            text = isal_zlib.decompressobj(31).decompress(start, _GLANCE)
        except isal_zlib.error:  # type: ignore[misc]
            return []
    whole = split(text[: text.rfind(b"\n") + 1])
    return [line for number, one in enumerate(whole, 1) if (line := stripped(one, number))]


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
