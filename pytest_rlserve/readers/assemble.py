"""One Capture from the files that were found."""

from __future__ import annotations

import errno
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pytest_rlserve import model
from pytest_rlserve.capture import Capture, Finding, Source
from pytest_rlserve.chains import chains_of
from pytest_rlserve.engine import local, progress
from pytest_rlserve.errors import EvidenceError, UsageError
from pytest_rlserve.readers import READERS, on_ray, shards, whole, worker_ids
from pytest_rlserve.scattered import Unread, joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.readers import Reader
    from pytest_rlserve.readers.discover import Found
    from pytest_rlserve.readers.jsonl import Content, File

_LARGE = 200_000_000
"""Bytes of trace from which several processes read faster than one, and tables go to files."""
_PACKED = 3
"""How many bytes of text a byte of gzip holds, more or less."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_TRACE = "dynamo.request.trace.v1"


def assemble(
    found: Found, settings: Mapping[str, Mapping[str, Any]], engine: str = "local", *, hashes: bool = True
) -> Capture:
    """Read every file and put the tables together; rows of a second producer's shards are left out.

    What Ray reads stays there, so that nothing is gained by leaving hashes in files.

    Raises:
        UsageError: a file cannot be read, or there is no room for its tables.
    """
    hashes |= engine != "local"
    told = [
        (replace(file, settings=settings.get(reader.name, {}), hashes=hashes), reader) for file, reader in found.files
    ]
    progress.expect(sum(file.path.stat().st_size for file, _ in told if file.path.is_file()))
    try:
        contents = _contents(told, engine)
    except OSError as error:
        raise UsageError(_unreadable(found.name, error)) from None
    traces = {content.label: content.rows for content in contents if content.format == _TRACE}
    foreign, findings = shards.inventory(traces, found.shards)
    kept = [content for content in contents if content.label not in foreign]
    findings += [finding for content in contents for finding in content.findings]
    findings += _nothing_to_judge(kept)
    scalars = _joined("requests", kept, model.SCALARS)
    tables = {name: _joined(name, kept, schema) for name, schema in model.TABLES.items() if name != "requests"}
    left_out = ((label, "another producer's shard" if traces[label] else "no row") for label in sorted(foreign))
    capture = Capture(
        name=found.name,
        manifest=found.manifest,
        sources=tuple(
            Source(
                path=c.label,
                format=c.format,
                rows=c.rows,
                whole=c.whole,
                digest=c.digest,
                covers=READERS[c.format].covers if c.covers is None else c.covers,
                joins=READERS[c.format].joins,
            )
            for c in kept
        ),
        findings=tuple(findings),
        not_read=(*found.not_read, *left_out),
        scalars=scalars,
        hashes=joined([content.tables["chains"] for content in kept if "chains" in content.tables]),
        **(tables | {"control_events": worker_ids.settled(tables["control_events"], scalars)}),
    )
    return capture if hashes else capture.replace(hashes=Unread(partial(_left, capture, found, settings)))


def _left(capture: Capture, found: Found, settings: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the chains of a capture that was read without.

    Raises:
        EvidenceError: its files are others now, or rows that were counted have hashes that are none.
    """
    try:
        whole = assemble(found, settings)
    except UsageError as error:
        raise EvidenceError(f"{capture.name} cannot be read again for its hashes: {error}") from None
    if [(one.path, one.digest) for one in whole.sources] != [(one.path, one.digest) for one in capture.sources]:
        raise EvidenceError(f"{capture.name} changed after it was read: read it again")
    if more := [finding for finding in whole.findings if finding not in capture.findings]:
        others = f", nor are {len(more) - 1:,} more" if len(more) > 1 else ""
        raise EvidenceError(f"{more[0]}; it is no row{others}, but was counted before its hashes were looked at")
    return whole.chains


def _unreadable(name: str, error: OSError) -> str:
    if error.errno in _NO_ROOM:
        return f"{tempfile.gettempdir()} has no room for the tables of large traces: set TMPDIR to a folder that has"
    return f"{error.filename or name} cannot be read: {error.strerror or error}"


def _contents(parts: list[tuple[File, Reader]], engine: str) -> list[Content]:
    """Read every file: on Ray, or large traces in several processes and with their tables in files."""
    traces = [file for file, reader in parts if reader.name == _TRACE]
    done: Sequence[Content | None] = on_ray.read(traces, engine) if engine != "local" else ()
    size = sum(map(_text_size, traces))
    if size < _LARGE:
        return _all(parts, done)
    # What is mapped from the folder stays there until the tables are dropped, though the folder is gone.
    with tempfile.TemporaryDirectory(prefix="rlserve-") as folder:
        processes = min(local.processors(), size // max(_LARGE // 2, 1))  # less is no use to one
        if engine == "local" and processes > 1:
            done = whole.read(traces, Path(folder), processes)
        return _all(parts, done, Path(folder))


def _all(parts: list[tuple[File, Reader]], done: Sequence[Content | None], folder: Path | None = None) -> list[Content]:
    """Return what every file holds, those that are not done read here; traces then leave their tables in `folder`."""
    found = {content.label: content for content in done if content is not None}
    contents = []
    for number, (file, reader) in enumerate(parts):
        content = found.get(file.label)
        if content is None and folder is not None and reader.name == _TRACE:
            spill = folder / f"whole-{number:06d}"
            spill.mkdir()
            content = _read(replace(file, spill=spill), reader)
        contents.append(content or _read(file, reader))
    return contents


def _text_size(file: File) -> int:
    """Estimate how many bytes of text a file holds."""
    return file.path.stat().st_size * (_PACKED if file.path.name.endswith(".gz") else 1)


def _read(file: File, reader: Reader) -> Content:
    assert reader.reads is not None, f"reader {reader.name} has no @read function"
    content = reader.reads(file)
    full = content.tables.get("requests")
    if full is not None and model.HASHES in full.column_names:
        content.tables |= {"requests": full.drop_columns([model.HASHES]), "chains": chains_of(full[model.HASHES])}
    return content


def _joined(name: str, contents: list[Content], schema: pa.Schema) -> pa.Table:
    tables = [content.tables[name] for content in contents if name in content.tables]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _nothing_to_judge(contents: list[Content]) -> list[Finding]:
    """Zero requests pass every budget, so a trace without any is an error."""
    traces = [content for content in contents if content.format == _TRACE]
    if not traces or any(content.kinds.get("request_end") for content in traces):
        return []
    seen = Counter[str]()
    for content in traces:
        seen.update(content.kinds)
    others = ", ".join(f"{count:,} {kind} rows" for kind, count in sorted(seen.items())) or "no rows at all"
    text = f"no request_end rows ({others} seen)"
    return [Finding(message=text, severity="error", check="rows_fit_schema", path=traces[0].label)]
