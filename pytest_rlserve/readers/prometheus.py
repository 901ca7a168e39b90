"""Prometheus scrapes in text form: of a frontend, a router or an engine, one file a scrape.

The file's name says whose scrape it is and when it was taken: `frontend.start.prom`, `worker0.mid.prom`,
`before.prom`. Worker ids in labels become decimal text, as in every table: Dynamo's `dynamo_component_*` series write
them in hexadecimal. Of histograms the sum, the count and the last bucket are kept. A value that is not a number is
kept as null: it was asked for and not known.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.control import decimal
from pytest_rlserve.readers.jsonl import Content, File, RowReader

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = "prometheus.text"
_SUFFIX = re.compile(r"(\.prom|\.metrics|\.txt|\.gz)+$")
_TAGS = ("before", "start", "begin", "mid", "during", "after", "end", "stop")
_WORKERS = ("worker_id", "router_worker_id", "instance_id")
_HEX = re.compile(r"[0-9a-fA-F]{1,16}")
_INNER_BUCKET = re.compile(rb'_bucket\{(?!.*\ble="\+Inf")')


@reader(FORMAT, covers=())
def recognises(head: Head) -> bool:
    """Recognise the comment that a scrape begins with, or a scrape's usual file name."""
    start = head.start.lstrip()
    return start.startswith((b"# HELP ", b"# TYPE ")) or (head.name.endswith(".prom") and not start.startswith(b"{"))


@recognises.read
def read(file: File) -> Content:
    """Read the samples of one scrape."""
    rows = RowReader(file, FORMAT, msgspec.Struct, "scrapes")
    target, tag = _named(file.path.name)
    kept = [(number, line) for number, line in rows.lines() if not _INNER_BUCKET.search(line)]
    for number, sample in _samples(rows, kept):
        labels = {
            name: _worker(sample.name, value) if name in _WORKERS else value for name, value in sample.labels.items()
        }
        row: dict[str, Any] = {
            "target": target,
            "tag": tag,
            "t": sample.timestamp,
            "name": sample.name,
            "labels": json.dumps(labels, sort_keys=True),
            "value": None if math.isnan(sample.value) else sample.value,
        }
        rows.add("scrapes", "sample", number, row)
    return rows.done()


def _samples(rows: RowReader, lines: list[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
    """Yield line number and sample; the parser keeps the order of lines, one sample each."""
    numbers = [number for number, line in lines if not line.startswith(b"#")]
    try:
        found = list(_parsed(b"\n".join(line for _, line in lines)))
    except ValueError:  # a line is no sample: find which, and keep the others
        for number, line in lines:
            try:
                yield from ((number, sample) for sample in _parsed(line))
            except ValueError:
                rows.refuse(number, "is no sample of Prometheus' text format")
    else:
        yield from zip(numbers, found, strict=True)


def _parsed(text: bytes) -> Iterator[Any]:
    for family in text_string_to_metric_families(text.decode() + "\n"):
        yield from family.samples


def _named(name: str) -> tuple[str, str]:
    """Return whose scrape a file holds, and when in the run it was taken, as its name says."""
    target, _, tag = _SUFFIX.sub("", name).rpartition(".")
    return ("", tag) if not target and tag in _TAGS else (target or tag, tag if target else "")


def _worker(name: str, value: str) -> str:
    if name.startswith("dynamo_component_") and _HEX.fullmatch(value):
        return str(int(value, 16))
    return decimal(value)
