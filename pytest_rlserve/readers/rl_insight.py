"""Events of the RL-Insight client (rl-insight 0.3.0), one JSON object a line: spans and plain metrics.

What a span says is told in `spans.py`. A `counter`, `gauge` or `histogram` has no time of day; its numbers go to
`step_metrics` with their labels as the target. Of a histogram each line is one observation.

Detected by `kind` and `name` in the first line. Limits: spans of one name that overlap in a lane were merged into
one by the client, and overlapping spans of different names were dropped, so nothing may be counted by them but
`agent_session`, which has a lane of its own for every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers import Head, reader, spans
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Count, Id, RecordReader, word

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "rl_insight"
_METRICS = ("counter", "gauge", "histogram")


class _Event(msgspec.Struct):
    kind: str
    name: str


class _Attributes(spans.Args):
    state_lane_id: Id | None = None
    process_id: Id | None = None


class _Trace(_Event, kw_only=True):
    start_time_ns: Count
    end_time_ns: Count
    attributes: _Attributes


class _Metric(_Event, kw_only=True):
    value: float
    labels: dict[str, Any] = {}


@reader(FORMAT, covers=spans.COVERS, joins=spans.JOINS)
def recognises(head: Head) -> bool:
    """Recognise the kinds of event that the client knows."""
    row = head.row or {}
    return row.get("kind") in ("trace", *_METRICS) and "name" in row


@recognises.read
def read(file: File) -> Content:
    """Read spans and metrics; an event of an unknown kind is counted and said to be unknown."""
    rows = _Events(file, FORMAT, _Event, *spans.TABLES)
    unknown = 0
    for line, event in rows.records():
        match event:
            case _Trace():
                spans.take(rows, line, _span(event))
            case _Metric():
                labels = ",".join(f"{key}={value}" for key, value in sorted(event.labels.items()) if word(str(key)))
                number = {"name": event.name, "value": event.value, "target": labels or None}
                rows.add("step_metrics", event.kind, line, number)
            case _:
                unknown += 1
                rows.count("event of unknown kind")
    if unknown:
        rows.note(f"{unknown:,} events are neither a span nor a metric and were only counted", "warning")
    return rows.done()


class _Events(RecordReader[_Event]):
    def shape_for(self, row: dict[str, Any]) -> type[_Event]:
        kind = row.get("kind")
        return _Trace if kind == "trace" else _Metric if kind in _METRICS else _Event


def _span(event: _Trace) -> spans.Span:
    said = event.attributes
    return spans.Span(
        name=event.name,
        start=event.start_time_ns / 1e9,
        end=event.end_time_ns / 1e9,
        args=said,
        process=text(said.process_id),
        lane=text(said.state_lane_id),
    )
