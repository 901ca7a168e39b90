"""The JSON lines of verl-recipe's `dynamo/metrics_sidecar.py` (48ea0a79, 2026-08-05): scrapes of `/metrics`.

A line is one scrape of one endpoint, and its numbers go to `step_metrics` with the endpoint as their target. The
sidecar has added up all series of a name, so labels, types and buckets are lost: `vllm:kv_cache_usage_perc` of two
engines may exceed 1, and no rate can be told from these numbers where a counter was reset. They are kept to be
looked at; the checks and metrics of router and engine need scrapes in Prometheus' own text.

Detected by `ts`, `target`, `source` and `metrics`. A scrape that failed is reported, without the error's text.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  msgspec reads the annotation
from typing import TYPE_CHECKING

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.records import RecordReader

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "verl_sidecar"


class _Scrape(msgspec.Struct):
    ts: datetime
    target: str
    metrics: dict[str, float]
    error: str | None = None


@reader(FORMAT, covers=())
def recognises(head: Head) -> bool:
    """Recognise the fields that every scrape has."""
    return {"ts", "target", "source", "metrics"} <= set(head.row or {})


@recognises.read
def read(file: File) -> Content:
    """Read every scrape's numbers, each into a row of its own."""
    rows = RecordReader(file, FORMAT, _Scrape, "step_metrics")
    failed: dict[str, int] = {}
    for line, scrape in rows.records():
        if scrape.ts.tzinfo is None:
            rows.refuse(line, "ts does not say its time zone")
            continue
        if scrape.error is not None:
            failed.setdefault(scrape.target, line)
        for name, value in scrape.metrics.items():
            number = {"t": scrape.ts.timestamp(), "target": scrape.target, "name": name, "value": value}
            rows.put("step_metrics", line, number)
        rows.count("scrape" if scrape.error is None else "failed scrape")
    for target, line in failed.items():
        rows.note(f"{target} could not be scraped every time, first here", "warning", line=line)
    return rows.done()
