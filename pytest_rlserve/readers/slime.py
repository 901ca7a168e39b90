"""slime's timeline cache and the sample lines that an exporter can write (slime 624b824a, 2026-08-21).

`--save-debug-rollout-data` writes a pickle, which is never opened here. slime's `tools/trace_timeline_viewer.py`
turns it into `<stem>.trace_timeline_cache.json`, which is: a row for each sample that a rollout handed to the
trainer, with its `sglang_generate` spans. The lines are the same samples with their weight versions, one JSON object
each, as `docs/frameworks.md` gives them. Give one of the two, not both.

The last attempt at a sample is named by the sample's index, an earlier one `<index>-a<attempt>`. Status `completed`
and `truncated` are completed attempts, which the trainer takes unless a line says `remove_sample`; `aborted` is
canceled. An earlier attempt is canceled if its last generation was aborted, else nothing tells how it ended.

Limits: what the dynamic filter dropped and what went back to the buffer is not in the file, so neither the
dispatched nor the rejected are known. The cache has no versions, and the lines have no times. Spans go straight to
SGLang: their request id is the one of its request log. Detected by `cache_version` and `pt_path` at the start of the
document, and by `rollout_id`, `group_index`, `index` and `weight_versions` in a line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Amount, Count, Id, RecordReader, Whole, word

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "slime"
SAMPLES = "slime.samples"
_VERSION = 1
_JOINS = (
    "slime's spans have SGLang's request id: give SGLang's own request log, or behind Dynamo send X-Dynamo-Session-ID"
)
_COVERS = ("completed", "canceled", "failed", "accepted", "tokens")
_CACHE = re.compile(rb'\{\s*"cache_version"\s*:.*"pt_path"', re.DOTALL)
_OUTCOMES = {"completed": "completed", "truncated": "completed", "aborted": "canceled", "failed": "failed"}
_GENERATE = "sglang_generate"
_ABORT = "abort"

Reward = float | dict[str, Any] | None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    e2e_latency: Amount | None = None
    finish_reason: str | None = None
    sglang_request_id: str | None = None


class _Attrs(msgspec.Struct):
    end_attrs: _Usage | None = None


class _Item(msgspec.Struct):
    name: str
    attempt: Count = 0
    start_ts: Amount | None = None
    end_ts: Amount | None = None
    ts: Amount | None = None
    attrs: _Attrs = msgspec.field(default_factory=_Attrs)


class _Row(msgspec.Struct):
    sample_index: Id
    status: str
    group_index: Id | None = None
    reward: Reward = None
    attempt: Count = 0
    start: Amount | None = None
    end: Amount | None = None
    items: list[_Item] = []


class _Cache(msgspec.Struct):
    cache_version: Count
    pt_path: str
    rows: list[_Row]


@reader(FORMAT, covers=(*_COVERS, "retried"), joins=_JOINS)
def recognises(head: Head) -> bool:
    """Recognise the cache by its first fields."""
    return _CACHE.match(head.start.lstrip()) is not None


@recognises.read
def read(file: File) -> Content:
    """Read the one document."""
    rows = RecordReader(file, FORMAT, _Cache, "attempt_events")
    cache = rows.document()
    if cache is not None and cache.cache_version != _VERSION:
        rows.refuse(1, f"cache_version {cache.cache_version} is not supported, only {_VERSION}")
    elif cache is not None:
        named = re.search(r"rollout_(\d+)", cache.pt_path)
        for row in cache.rows:
            for event in _sample(row, int(named[1]) if named else None):
                rows.put("attempt_events", 1, event)
            rows.count(f"sample {word(row.status)}")
    return rows.done()


def _sample(row: _Row, step: int | None) -> list[dict[str, Any]]:
    """Return the events of every attempt at a sample."""
    events: list[dict[str, Any]] = []
    for number in range(row.attempt + 1):
        items = [item for item in row.items if item.attempt == number]
        about = {"attempt_id": _attempt(row, number), "sample_id": text(row.sample_index), "step": step}
        about |= {"group_id": text(row.group_index), "level": "attempt"}
        start = row.start if number == 0 else min((t for i in items if (t := i.ts or i.start_ts)), default=None)
        if number:
            events.append(about | {"event": "retried", "t": start, "retry_of": _attempt(row, number - 1)})
        events.append(about | {"event": "dispatched", "t": start})
        spans = [item for item in items if item.name == _GENERATE and item.start_ts is not None]
        events += [event for span in spans for event in _request(span, about)]
        if number == row.attempt:
            events += [about | event for event in _end(row.status, row.end, row.reward)]
        elif spans and _aborted(spans[-1]):
            events.append(about | {"event": "canceled", "t": spans[-1].end_ts, "reason": _ABORT})
    return events


def _attempt(row: _Row, number: int) -> str:
    return str(row.sample_index) if number == row.attempt else f"{row.sample_index}-a{number}"


def _aborted(span: _Item) -> bool:
    return span.attrs.end_attrs is not None and span.attrs.end_attrs.finish_reason == _ABORT


def _request(span: _Item, about: dict[str, Any]) -> list[dict[str, Any]]:
    used = span.attrs.end_attrs or _Usage()
    about = about | {"level": "request", "response_id": used.sglang_request_id}
    sent = about | {"event": "dispatched", "t": span.start_ts}
    if span.end_ts is None or span.attrs.end_attrs is None:
        return [sent]
    ended = {
        "event": "canceled" if _aborted(span) else "completed",
        "t": span.end_ts,
        "finish_reason": word(used.finish_reason),
        "prompt_tokens": used.prompt_tokens,
        "output_tokens": used.completion_tokens,
        "cached_tokens": used.cached_tokens,
        "latency_ms": None if used.e2e_latency is None else used.e2e_latency * 1e3,
    }
    return [sent, about | ended]


def _end(status: str, t: float | None, reward: Reward, *, removed: bool = False) -> list[dict[str, Any]]:
    """Return how a sample's last attempt ended, and that it was handed to the trainer; nothing if it is pending."""
    outcome = _OUTCOMES.get(status)
    if outcome is None:
        return []
    ended: dict[str, Any] = {"event": outcome, "t": t, "reward": None if isinstance(reward, dict) else reward}
    if outcome != "completed":
        return [ended | {"reason": status}]
    decided = {"event": "rejected", "reason": "remove_sample"} if removed else {"event": "accepted"}
    return [ended, decided]


class _Prefix(msgspec.Struct):
    cached_tokens: Count | None = None
    total_prompt_tokens: Count | None = None


class _Meta(msgspec.Struct):
    start_rollout_id: Whole | None = None


class _Line(msgspec.Struct):
    rollout_id: Whole
    index: Id
    status: str
    weight_versions: list[Id]
    group_index: Id | None = None
    reward: Reward = None
    response_length: Count | None = None
    session_id: str | None = None
    prefix_cache_info: _Prefix = msgspec.field(default_factory=_Prefix)
    remove_sample: bool = False
    metadata: _Meta = msgspec.field(default_factory=_Meta)


@reader(SAMPLES, covers=(*_COVERS, "policy"), joins=_JOINS)
def recognises_samples(head: Head) -> bool:
    """Recognise a sample by the fields that only slime has together."""
    return {"rollout_id", "group_index", "index", "weight_versions"} <= set(head.row or {})


@recognises_samples.read
def read_samples(file: File) -> Content:
    """Read one sample a line."""
    rows = RecordReader(file, SAMPLES, _Line, "attempt_events")
    for line, sample in rows.records():
        versions = [text(version) for version in sample.weight_versions] or [None]
        about = {
            "level": "attempt",
            "attempt_id": text(sample.index),
            "sample_id": text(sample.index),
            "group_id": text(sample.group_index),
            "session_id": sample.session_id,
            "policy": versions[0],
            "policy_end": versions[-1],
            "prompt_tokens": sample.prefix_cache_info.total_prompt_tokens,
            "cached_tokens": sample.prefix_cache_info.cached_tokens,
            "output_tokens": sample.response_length,
        }
        first = {"event": "dispatched", "step": sample.metadata.start_rollout_id}
        for event in (first, *_end(sample.status, None, sample.reward, removed=sample.remove_sample)):
            rows.put("attempt_events", line, {"step": sample.rollout_id} | about | event)
        rows.count(f"sample {word(sample.status)}")
    return rows.done()
