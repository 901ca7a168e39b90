"""Question 3: would Dynamo's own replay take this trace?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.scattered import lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture

_NAME = "replay_ready"
_NEEDED = ("output_tokens", "received_at")
_DYNAMO_NAMES = {"received_at": "request_received_ms"}
_COLUMNS = (
    "request_id", "session_id", "parent_session_id", "output_tokens", "received_at", "trace_block_size",
    "input_length", "source", "line",
)  # fmt: skip


@check(question=3, default=False)
def replay_ready(capture: Capture, evidence: Evidence) -> Outcome:
    """Every row has what Dynamo's replay needs, and the rows fit together.

    Each row needs its output length, its arrival and its block hashes, as many as ceil(length / block size).
    All rows or none name a session, all use one block size, and a parent session has a row of its own.
    """
    rows = capture.scalars.select(list(_COLUMNS)).to_pylist()
    for row, hashes in zip(rows, lengths(capture.chains).tolist(), strict=True):
        row["hashes"] = None if hashes < 0 else hashes
    findings = [
        Finding(
            message=why,
            severity="failure",
            check=_NAME,
            path=row["source"],
            line=row["line"],
            ids=(row["request_id"],),
        )
        for row in rows
        if (why := _refused(row))
    ]
    findings += _together(rows)
    good = len(rows) - len({name for finding in findings for name in finding.ids})
    traces = {source.path for source in capture.sources if source.format.startswith("dynamo.")}
    refused = [f for f in capture.findings if f.check == "rows_fit_schema" and f.line is not None and f.path in traces]
    findings += [replace(finding, check=_NAME, severity="failure") for finding in refused]
    total = len(rows) + sum(finding.count for finding in refused)
    return Outcome(observed=good, of=total, noun="rows", findings=findings)


def _refused(row: dict[str, Any]) -> str | None:
    """Say why the replay would refuse this row, if it would."""
    missing = [_DYNAMO_NAMES.get(name, name) for name in _NEEDED if row[name] is None]
    if row["hashes"] is None and row["input_length"] is None and row["trace_block_size"] is None:
        missing.append("replay")
    if missing:
        return f"{' and '.join(missing)} missing"
    block, length, hashes = row["trace_block_size"], row["input_length"], row["hashes"]
    if not block:
        return "trace_block_size is 0" if block == 0 else "trace_block_size missing"
    if length is None or hashes is None:
        return f"{'input_length' if length is None else 'input_sequence_hashes'} missing"
    needed = -(-length // block)
    return None if hashes == needed else f"{needed} hashes needed, {hashes} given"


def _together(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    """Find what makes rows that are good alone refused as a set."""
    bare = [row for row in rows if row["session_id"] is None]
    if bare and len(bare) < len(rows):
        yield _set_finding("rows with and without a session are mixed; without", bare)
    sizes = sorted({row["trace_block_size"] for row in rows if row["trace_block_size"]})
    if len(sizes) > 1:
        listed = ", ".join(map(str, sizes))
        yield _set_finding(
            f"block sizes {listed} are mixed; not {sizes[0]}",
            [r for r in rows if r["trace_block_size"] in sizes[1:]],
        )
    known = {row["session_id"] for row in rows}
    orphans = [row for row in rows if row["parent_session_id"] and row["parent_session_id"] not in known]
    if orphans:
        yield _set_finding("the parent session has no row of its own", orphans)


def _set_finding(message: str, rows: list[dict[str, Any]]) -> Finding:
    ids = tuple(row["request_id"] for row in rows)
    first = rows[0]
    return Finding(
        message=message,
        severity="failure",
        check=_NAME,
        path=first["source"],
        line=first["line"],
        ids=ids,
        count=len(rows),
    )
