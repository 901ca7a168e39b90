"""Reading one file of JSON rows: every line becomes a row or a finding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_rlserve import model
from pytest_rlserve.capture import Finding
from pytest_rlserve.readers.lines import Lines
from pytest_rlserve.readers.rows import Refusal, decode, fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import msgspec
    import pyarrow as pa

_EXPLAINED = 50
"""Bad lines of one file that get a finding of their own; the others are counted in one."""


@dataclass(frozen=True, slots=True)
class File:
    """One file to read: where it is and how the capture calls it."""

    path: Path
    label: str


@dataclass(slots=True, kw_only=True)
class Content:
    """What one file gave."""

    format: str
    label: str
    tables: dict[str, pa.Table] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    """Rows by kind, e.g. {"request_end": 5, "request_payload": 1}."""
    whole: bool = True
    digest: str = ""

    @property
    def rows(self) -> int:
        """Return how many rows were read and kept."""
        return sum(self.kinds.values())


class RowReader:
    """Walks the rows of a file, refuses what does not fit its schema, and fills tables."""

    def __init__(self, file: File, format: str, shape: type[msgspec.Struct], *tables: str) -> None:
        """Prepare to read `file` into the named tables."""
        self.file, self.format, self.shape = file, format, shape
        self.content = Content(format=format, label=file.label)
        self._rows = {name: model.Rows(model.TABLES[name]) for name in tables}
        self._reals = {
            name: [column.name for column in model.TABLES[name] if column.type == "double"] for name in tables
        }
        self._refused = 0

    def rows(self, unwrap: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield line number, size in bytes and row for every line that fits; the others become findings."""
        lines = Lines(self.file.path)
        last: tuple[int, str] | None = None
        for number, line in lines:
            row = decode(line)
            if not isinstance(row, Refusal):
                row = unwrap(row)
                refusal = fit(row, self.shape, self.format)
                if refusal is None:
                    yield number, len(line), row
                    continue
                row = refusal
            self._refuse(number, str(row))
            last = number, str(row)
        self._finish(lines, last)

    def _refuse(self, line: int, why: str) -> None:
        self._refused += 1
        if self._refused <= _EXPLAINED:
            self.content.findings.append(self._finding(why, line=line))

    def _finish(self, lines: Lines, last: tuple[int, str] | None) -> None:
        content = self.content
        content.digest = lines.digest
        if self._refused > _EXPLAINED and last:
            more = self._refused - _EXPLAINED
            text = f"{more:,} more lines were refused, the last at line {last[0]}: {last[1]}"
            content.findings.append(self._finding(text, line=last[0], count=more))
        if lines.trouble:
            content.whole = False
            text = f"{lines.trouble}; {content.rows:,} whole rows were read before that"
            content.findings.append(self._finding(text, check="shards_are_whole"))

    def _finding(self, message: str, *, check: str = "rows_fit_schema", **place: Any) -> Finding:
        return Finding(message=message, severity="error", check=check, path=self.file.label, **place)

    def add(self, table: str, kind: str, line: int, row: dict[str, Any]) -> None:
        """Put one row into a table."""
        row["source"], row["line"] = self.file.label, line
        for name in self._reals[table]:
            if type(row.get(name)) is int:  # Arrow takes no whole number that a float cannot hold exactly
                row[name] = float(row[name])
        self._rows[table].add(row)
        self.count(kind)

    def count(self, kind: str) -> None:
        """Count a row of that kind."""
        self.content.kinds[kind] = self.content.kinds.get(kind, 0) + 1

    def done(self) -> Content:
        """Return what the file gave."""
        self.content.tables = {name: rows.table() for name, rows in self._rows.items()}
        return self.content
