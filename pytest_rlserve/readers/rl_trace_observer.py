"""RL Trace Observer's files (Luosuu/rl-trace-observer, several commits of 2026; its span fields still move).

`rl-insight-<host>-pid-<pid>.chrome.jsonl` has one Chrome event a line, in microseconds since the Unix epoch; what its
spans say is told in `spans.py`. `rl-trace-process-<host>-pid-<pid>.json` describes one process: the offset between
its wall clock and its monotonic clock goes to `step_metrics`, and files that it names and that are not there are
reported.

Detected by the category `rl_insight.…` of the first event, and by `schema_version` and `os_pid` at the start of the
document. Only complete events (`"ph": "X"`) are known; others are counted. The merger's manifest is not read.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from pytest_rlserve.capture import Finding
from pytest_rlserve.readers import Head, reader, spans
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Amount, Count, Id, RecordReader, word

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "rl_trace_observer"
PROCESS = "rl_trace_observer.process"
_VERSION = 1
_PROCESS = re.compile(rb'"schema_version"\s*:.*"os_pid"\s*:|"os_pid"\s*:.*"schema_version"\s*:', re.DOTALL)


class _Event(msgspec.Struct):
    ph: str
    name: str
    ts: Amount
    dur: Amount = 0.0
    pid: Id | None = None
    tid: Id | None = None
    args: spans.Args = msgspec.field(default_factory=spans.Args)


class _Clock(msgspec.Struct):
    wall_time_ns: Count
    monotonic_ns: Count


class _Artifact(msgspec.Struct):
    file: str


class _Process(msgspec.Struct):
    schema_version: Count
    os_pid: Count
    host: str
    clock: _Clock
    artifacts: list[_Artifact] = []


@reader(FORMAT, covers=spans.COVERS, joins=spans.JOINS)
def recognises(head: Head) -> bool:
    """Recognise a Chrome event of RL-Insight's category."""
    row = head.row or {}
    return "ph" in row and str(row.get("cat", "")).startswith("rl_insight")


@recognises.read
def read(file: File) -> Content:
    """Read the spans of one process."""
    rows = RecordReader(file, FORMAT, _Event, *spans.TABLES)
    for line, event in rows.records():
        if event.ph != "X":
            rows.count(f"event of phase {word(event.ph)}")
            continue
        start, end = event.ts / 1e6, (event.ts + event.dur) / 1e6
        process, lane = text(event.pid), text(event.tid)
        spans.take(
            rows,
            line,
            spans.Span(name=event.name, start=start, end=end, args=event.args, process=process, lane=lane),
        )
    return rows.done()


@reader(PROCESS, covers=())
def recognises_process(head: Head) -> bool:
    """Recognise the description of a process by its fields, which stand before its list of files."""
    return head.start.startswith(b"{") and _PROCESS.search(head.start) is not None


@recognises_process.read
def read_process(file: File) -> Content:
    """Read the one document."""
    rows = RecordReader(file, PROCESS, _Process, "step_metrics")
    process = rows.document()
    if process is None:
        return rows.done()
    if process.schema_version != _VERSION:
        rows.refuse(1, f"schema_version {process.schema_version} is not supported, only {_VERSION}")
        return rows.done()
    wall, name = process.clock.wall_time_ns / 1e9, f"{process.host}_{process.os_pid}"
    offset = (process.clock.wall_time_ns - process.clock.monotonic_ns) / 1e9
    clock = {"name": "wall clock − monotonic clock (s)", "t": wall, "target": name, "value": offset}
    rows.add("step_metrics", "process", 1, clock)
    for artifact in process.artifacts:
        if not (file.path.parent / PurePath(artifact.file).name).is_file():
            rows.content.findings.append(_missing(file, artifact.file))
    return rows.done()


def _missing(file: File, name: str) -> Finding:
    text_ = f"the process wrote {PurePath(name).name}, which is not in the capture"
    return Finding(message=text_, severity="warning", check="shards_are_whole", path=file.label)
