"""Reading a file of JSON rows by blocks of lines: quickly where that is sure, else line by line. Both give the same."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pytest_rlserve.readers.jsonl import RowReader
from pytest_rlserve.readers.lines import Lines, split, stripped
from pytest_rlserve.readers.rows import Refusal
from pytest_rlserve.readers.typed import Doubt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import msgspec

    from pytest_rlserve.readers.jsonl import File

Judged = tuple[int, int, "dict[str, Any] | Refusal | None"]
"""A line's number, its size in bytes, and its row or why it has none; None for a blank line."""


class BlockReader(RowReader, ABC):
    """Fills tables from blocks of lines."""

    def __init__(self, file: File, format: str, shape: type[msgspec.Struct], *tables: str) -> None:
        """Prepare to read `file` into the named tables."""
        super().__init__(file, format, shape, *tables)
        self._label = pa.scalar(file.label)

    def read(self) -> None:
        """Read the whole file."""
        lines = Lines(self.file.path)
        with uncollected():
            for text in lines.blocks():
                lines.count += self.take(text, lines.count + 1)
                del text  # so that the next block can have its memory, which is in the processor's cache
        self.finish(lines.digest, lines.trouble)

    def take(self, text: bytes, first: int) -> int:
        """Take a block whose first line has the number `first`; return how many lines it has."""
        try:
            return self.quickly(text, first)
        except Doubt:
            lines = split(text)
            self.put_judged(self.judged(number, line) for number, line in enumerate(lines, first))
            return len(lines)

    @abstractmethod
    def quickly(self, text: bytes, first: int) -> int:
        """Do the same, or raise `Doubt` and leave everything as it was."""

    def unwrap(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the record in a decoded row; override it where it is not the row itself."""
        return row

    @abstractmethod
    def put_row(self, line: int, size: int, row: dict[str, Any]) -> None:
        """Put the row of a line of so many bytes into a table."""

    def judged(self, number: int, text: bytes) -> Judged:
        """Judge one line by itself."""
        line = stripped(text, number)
        return number, len(line), self.judge(line, self.unwrap) if line else None

    def put_judged(self, judged: Iterable[Judged]) -> None:
        """Put rows into tables, and report the lines that have none."""
        for number, size, row in judged:
            if isinstance(row, Refusal):
                self.refuse(number, str(row))
            elif row is not None:
                self.put_row(number, size, row)

    def put_columns(self, table: str, columns: dict[str, Any], kinds: list[str], lines: Any) -> None:
        """Put many rows into a table as columns.

        Args:
            table: which one.
            columns: lists or Arrow arrays, by name.
            kinds: the kind of each row.
            lines: the number of each row's line; a list or an array.
        """
        if kinds:
            self.decoded = True
            source = pa.repeat(self._label, len(kinds))
            self.tables[table].extend(columns | {"source": source, "line": lines}, len(kinds))
            for kind in dict.fromkeys(kinds):
                self.count(kind, kinds.count(kind))


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector away: rows make many objects and no cycles."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
