"""Reading one file of JSON rows: every line becomes a row or a finding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_rlserve import model
from pytest_rlserve.capture import Finding
from pytest_rlserve.chains import CHAINS, Chains
from pytest_rlserve.engine import progress
from pytest_rlserve.readers.lines import Lines
from pytest_rlserve.readers.rows import Refusal, decode, fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import msgspec
    import pyarrow as pa

    from pytest_rlserve.readers.store import Place

_EXPLAINED = 50
"""Bad lines of one file that get a finding of their own; the others are counted in one."""


@dataclass(frozen=True, slots=True)
class File:
    """One file to read: where it is, how the capture calls it, and what the policy says of its format."""

    path: Place
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    spill: Path | None = None
    """A folder for tables that are too large for memory."""
    hashes: bool = True
    """Whether block hashes are read; else they are neither kept nor judged."""

    def batches(self, name: str, schema: pa.Schema) -> model.Batches:
        """Return where a table's batches go."""
        return model.Batches(schema, None if self.spill is None else self.spill / f"{name}.arrow")


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
    covers: tuple[str, ...] | None = None
    """What this one file can tell, where that is not the same for every file of its format."""

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
        schemas = model.TABLES | {"requests": model.SCALARS}
        self.tables = {name: model.Rows(schemas[name], file.batches(name, schemas[name])) for name in tables}
        kept = "requests" in tables and file.hashes
        self.chains = Chains(file.batches("chains", CHAINS) if kept else model.Batches(CHAINS))
        self._reals = {
            name: [column.name for column in model.TABLES[name] if column.type == "double"] for name in tables
        }
        self.refused = 0
        self.explained: list[tuple[int, str]] = []
        """The first lines that were refused, with the reason."""
        self.last = 0, ""
        self.decoded = False
        """Whether any line was JSON."""

    def rows(self, unwrap: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield line number, size in bytes and row for every line that fits; the others become findings."""
        for number, line in self.lines():
            row = self.judge(line, unwrap)
            if isinstance(row, Refusal):
                self.refuse(number, str(row))
            else:
                yield number, len(line), row

    def judge(self, line: bytes, unwrap: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any] | Refusal:
        """Return the row that a line holds, or why it holds none."""
        row = decode(line)
        if isinstance(row, Refusal):
            return row
        self.decoded = True
        row = unwrap(row)
        return fit(row, self.shape_of(row), self.format) or row

    def shape_of(self, row: dict[str, Any]) -> type[msgspec.Struct]:
        """Return the shape that a decoded row must fit; override it where there are several."""
        return self.shape

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield every line with its number; afterwards take note of what was wrong with the file as a whole."""
        lines = Lines(self.file.path)
        yield from lines
        self.finish(lines.digest, lines.trouble)

    def refuse(self, line: int, why: str, times: int = 1) -> None:
        """Report a line that is not a row; of very many, the last is named and the others are counted."""
        self.refused += times
        self.last = line, why
        if self.refused <= _EXPLAINED:
            self.explained.append((line, why))
            self.content.findings.append(self._finding(why, line=line))

    def finish(self, digest: str, trouble: str | None) -> None:
        """Take note of what was wrong with the file as a whole."""
        content = self.content
        content.digest = digest
        if self.refused > _EXPLAINED:
            more, (line, why) = self.refused - _EXPLAINED, self.last
            text = f"{more:,} more lines were refused, the last at line {line}: {why}"
            content.findings.append(self._finding(text, line=line, count=more))
        if trouble:
            content.whole = False
            text = f"{trouble}; {content.rows:,} whole rows were read before that"
            content.findings.append(self._finding(text, check="shards_are_whole"))

    def require_rows(self) -> None:
        """Report a file that was to hold rows and has nothing that could be one."""
        if not self.decoded:
            self.content.whole = False
            why = "holds no row: its process ended before it wrote one, or the copy is empty"
            self.content.findings.append(self._finding(why, check="shards_are_whole"))

    def _finding(self, message: str, *, check: str = "rows_fit_schema", **place: Any) -> Finding:
        return Finding(message=message, severity="error", check=check, path=self.file.label, **place)

    def add(self, table: str, kind: str, line: int, row: dict[str, Any]) -> None:
        """Put the one row that a line gives into a table, and count it as of that kind."""
        self.put(table, line, row)
        self.count(kind)

    def put(self, table: str, line: int, row: dict[str, Any]) -> None:
        """Put a row into a table; a line may give several."""
        row["source"], row["line"] = self.file.label, line
        for name in self._reals[table]:
            if type(row.get(name)) is int:  # Arrow takes no whole number that a float cannot hold exactly
                row[name] = float(row[name])
        if table == "requests" and self.file.hashes:
            hashes = row.get(model.HASHES)
            self.chains.add(None if hashes is None else map(int, hashes))  # 7.0 is the whole number 7
        self.tables[table].add(row)

    def count(self, kind: str, rows: int = 1) -> None:
        """Count lines of that kind."""
        if rows:
            progress.advance(rows=rows)
            self.content.kinds[kind] = self.content.kinds.get(kind, 0) + rows

    def done(self) -> Content:
        """Return what the file gave."""
        self.content.tables = {name: rows.table() for name, rows in self.tables.items()}
        if "requests" in self.tables and self.file.hashes:
            self.content.tables["chains"] = self.chains.table()
        return self.content
