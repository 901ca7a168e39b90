"""Records of other systems, for which there is no schema of ours.

A record is judged by the fields that are read, each with its type, and by nothing else: nobody has promised us the
rest. Text that people wrote or models generated is never among those fields.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec

from pytest_rlserve.capture import Finding
from pytest_rlserve.readers.jsonl import File, RowReader
from pytest_rlserve.readers.rows import Refusal, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Severity

Shape = TypeVar("Shape")
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Id = Annotated[str, msgspec.Meta(min_length=1)] | Whole
_WORD = re.compile(r"[A-Za-z][\w.:/-]{0,63}")


class RecordReader(RowReader, Generic[Shape]):
    """Walks the records of a file and fills tables; a record comes as the fields of its shape, which it must fit."""

    def __init__(self, file: File, format: str, shape: type[Shape], *tables: str) -> None:
        """Prepare to read `file` into the named tables."""
        super().__init__(file, format, msgspec.Struct, *tables)
        self._shape = shape

    def records(self) -> Iterator[tuple[int, Shape]]:
        """Yield line number and record for every line that fits; the others become findings."""
        for number, line in self.lines():
            record = self.record(line)
            if isinstance(record, Refusal):
                self.refuse(number, str(record))
            else:
                yield number, record

    def document(self) -> Shape | None:
        """Return the one record that is the whole file, or None where it does not fit, which is a finding."""
        record = self.record(b"\n".join(line for _, line in self.lines()))
        if isinstance(record, Refusal):
            self.refuse(1, str(record))
            return None
        return record

    def record(self, text: bytes) -> Shape | Refusal:
        """Decode one JSON object strictly and take the fields of its shape from it."""
        row = decode(text)
        if isinstance(row, Refusal):
            return row
        try:
            row = self.named(row)
            return msgspec.convert(row, self.shape_for(row))
        except (msgspec.ValidationError, OverflowError) as error:
            return Refusal((f"is no record of {self.format}: {str(error).replace('`', '')}",))
        except RecursionError:
            return Refusal(("is nested too deeply",))

    def named(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a decoded row with its fields named as in the shape; override it where a format has two spellings."""
        return row

    def shape_for(self, row: dict[str, Any]) -> type[Shape]:
        """Return the shape that a decoded row must fit; override it where there are several."""
        return self._shape

    def note(self, message: str, severity: Severity = "note", **more: Any) -> None:
        """Add a finding that does not make the file untrustworthy."""
        found = Finding(message=message, severity=severity, check="rows_fit_schema", path=self.file.label, **more)
        self.content.findings.append(found)


def word(text: str | None) -> str | None:
    """Return a reason, a status or the name of an error's type; None for a sentence, which may hold private text."""
    return text if text is not None and _WORD.fullmatch(text) else None
