"""Hypothesis strategies for captures: the life of attempts, the rows of a trace, and whole captures as files.

Test your own metric, check or converter on records that you did not think of::

    from hypothesis import given
    from pytest_rlserve.strategies import captures, write

    @given(files=captures())
    def test_my_metric_stays_between_0_and_1(files, tmp_path_factory):
        capture = open_capture(write(files, tmp_path_factory.mktemp("capture")))
        ...

All that is drawn is valid and free of contradictions: every record fits its schema, every attempt is dispatched
once and ends at most once, no sample is accepted twice. Take from it what should be missed. Needs the extra
``strategies``.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hypothesis.strategies import DrawFn, SearchStrategy

Record = dict[str, Any]
Files = dict[str, bytes]

_EPOCH_MS = 1_790_000_000_000
_LARGEST_U64 = 2**64 - 1
_counts = st.integers(0, 5000)
_millis = st.floats(0, 60_000, allow_nan=False).map(lambda value: round(value, 3))
_unsigned = st.integers(0, _LARGEST_U64) | st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, _LARGEST_U64])
_names = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=8)


@st.composite
def _replays(draw: DrawFn) -> Record:
    """Return what a replay needs, with as many hashes as the length has blocks, the last one begun."""
    block, length = draw(st.sampled_from([1, 16, 64])), draw(st.integers(0, 200))
    blocks = -(-length // block)
    pool = draw(st.lists(_unsigned, min_size=1, max_size=6))
    hashes = [pool[number] if number < len(pool) else number for number in range(blocks)]
    return {"trace_block_size": block, "input_length": length, "input_sequence_hashes": hashes}


_workers = st.fixed_dictionaries(
    {"prefill_worker_id": _unsigned, "decode_worker_id": _unsigned},
    optional={"prefill_dp_rank": st.integers(0, 7), "decode_dp_rank": st.integers(0, 7)},
)
_finishes = st.fixed_dictionaries(
    {"finish_reason": st.sampled_from(["stop", "length"])},
    optional={"backend_finish_reason": st.sampled_from(["eos", "length"])},
)
_MEASURED = {
    "model": st.just("example-1b"),
    "input_tokens": _counts,
    "output_tokens": _counts,
    "cached_tokens": _counts,
    "prefill_wait_time_ms": _millis,
    "prefill_time_ms": _millis,
    "ttft_ms": _millis,
    "total_time_ms": _millis,
    "avg_itl_ms": _millis,
    "kv_hit_rate": st.floats(0, 1),
    "queue_depth": st.integers(0, 100),
    "worker": st.none() | _workers,
    "replay": _replays(),
    "finish_reason_metadata": _finishes,
}


@st.composite
def request_rows(draw: DrawFn) -> Record:
    """Return a strategy of `request_end` records of ``dynamo.request.trace.v1``, bare, one request each.

    What Dynamo leaves out at times is left out at times: session, x-request-id, worker, replay, finish metadata
    and each measured field. Hashes and worker ids reach to 2^64 − 1.
    """
    received = _EPOCH_MS + draw(st.integers(0, 3_600_000))
    request: Record = {"request_id": draw(st.uuids()).hex, "request_received_ms": received}
    row: Record = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": received + draw(st.integers(0, 60_000)),
    }
    if draw(st.booleans()):
        row |= {"event_source": "dynamo", "agent_context": {"session_id": draw(_names)}}
        request["x_request_id"] = draw(_names)
    row["request"] = request | draw(st.fixed_dictionaries({}, optional=_MEASURED))
    return row


@st.composite
def attempt_histories(draw: DrawFn, *, max_samples: int = 4, requests: bool | None = None) -> list[Record]:
    """Return a strategy of ``rlserve.attempt.v1`` events of one run, in the order in which they happened.

    Every sample has one attempt or more: all but the last were canceled or failed and are retried; the last may
    be accepted, rejected, undecided, canceled, failed or still open. No two events share an instant.

    Args:
        max_samples: most samples in a history; it has at least one.
        requests: whether the attempts' HTTP requests are recorded too; drawn if not given.
    """
    with_requests = draw(st.booleans()) if requests is None else requests
    lives = [_life(draw, f"s{number}", with_requests) for number in range(draw(st.integers(1, max_samples)))]
    turns = draw(st.permutations([number for number, life in enumerate(lives) for _ in life]))
    gaps = draw(st.lists(st.integers(1, 2000), min_size=len(turns), max_size=len(turns)))
    upcoming = [iter(life) for life in lives]
    instant, history = _EPOCH_MS, []
    for number, gap in zip(turns, gaps, strict=True):
        instant += gap
        history.append({"t": instant / 1000} | next(upcoming[number]))
    return history


_LAST = ("accepted", "rejected", "completed", "canceled", "failed", "open")


def _life(draw: DrawFn, sample: str, with_requests: bool) -> list[Record]:
    """Return the events of all attempts at one sample, without their times."""
    endings = draw(st.lists(st.sampled_from(["canceled", "failed"]), max_size=2)) + [draw(st.sampled_from(_LAST))]
    events = []
    for number, ending in enumerate(endings):
        attempt = f"{sample}-a{number}"
        about = {"run": "r", "group_id": "g", "sample_id": sample, "attempt_id": attempt}
        decided = ending in ("accepted", "rejected")
        if number:
            events.append({"event": "retried", "retry_of": f"{sample}-a{number - 1}", **about})
        events.append({"event": "dispatched", "session_id": attempt, "step": draw(st.integers(0, 3)), **about})
        if with_requests:
            events += _requests(draw, attempt, ending)
        if ending != "open":
            events.append({"event": "completed" if decided else ending, **about})
        if decided:
            version = draw(st.integers(1, 9))
            policy = draw(st.integers(max(version - 2, 0), version))
            events.append({"event": ending, "trained_version": version, "policy": policy, **about})
    return events


def _requests(draw: DrawFn, attempt: str, ending: str) -> list[Record]:
    """Return the events of an attempt's requests: all completed but the last, which ends as the attempt does."""
    about = {"run": "r", "level": "request", "attempt_id": attempt, "session_id": attempt, "n": 1}
    turns, events = draw(st.integers(1, 2)), []
    for turn in range(turns):
        name = {"x_request_id": f"{attempt}-t{turn}"}
        events.append({"event": "dispatched", **about, **name})
        if turn < turns - 1 or ending not in ("canceled", "failed", "open"):
            prompt = draw(st.integers(1, 5000))
            usage = {"prompt_tokens": prompt, "cached_tokens": draw(st.integers(0, prompt)), "http_status": 200}
            answer = {"response_id": f"chatcmpl-{attempt}-t{turn}", "output_tokens": draw(_counts)}
            events.append({"event": "completed", **about, **name, **usage, **answer})
        elif ending != "open":
            events.append({"event": ending, **about, **name})
    return events


@st.composite
def captures(draw: DrawFn, *, max_samples: int = 4) -> Files:
    """Return a strategy of small whole captures: file name → content, to be written into an empty directory.

    The trace is in one to three gzip shards of several members each. Each completed request has its row, a
    canceled one may have one; rows carry what joins them. One step and one weight update frame the attempts.
    """
    history = draw(attempt_histories(max_samples=max_samples, requests=True))
    rows = draw(st.permutations(list(_rows(draw, history))))
    wrapped = draw(st.booleans())
    lines = [json.dumps({"timestamp": 7, "event": row} if wrapped else row) + "\n" for row in rows]
    edges = sorted(draw(st.lists(st.integers(0, len(lines)), max_size=2)))
    files = {"attempts.jsonl": _jsonl(history), "control.jsonl": _jsonl(_control(draw, history))}
    for number, (start, end) in enumerate(zip([0, *edges], [*edges, len(lines)], strict=True)):
        shard = "".join(lines[start:end]).encode()
        files[f"request-trace.{number:06d}.jsonl.gz"] = draw(gzip_members(shard))
    return files


def _rows(draw: DrawFn, history: Sequence[Record]) -> Iterable[Record]:
    sent: dict[str, float] = {}
    for event in history:
        if event.get("level") != "request":
            continue
        name = event["x_request_id"]
        sent.setdefault(name, event["t"])
        if event["event"] == "completed" or (event["event"] == "canceled" and draw(st.booleans())):
            row = draw(request_rows())
            received, ended = round(sent[name] * 1000), round(event["t"] * 1000)
            row |= {"event_time_unix_ms": ended, "agent_context": {"session_id": event["session_id"]}}
            row["request"] |= {"request_id": name, "x_request_id": name, "request_received_ms": received}
            row["request"] |= {"output_tokens": draw(_counts), "total_time_ms": float(ended - received)}
            yield row


def _control(draw: DrawFn, history: Sequence[Record]) -> list[Record]:
    first, last = history[0]["t"] - 1, history[-1]["t"] + 1
    shut = draw(st.floats(0, 1)) * (last - first) / 2
    update = {"update": 1, "policy_version": 1}
    return [
        {"event": "step_started", "t": first, "step": 0},
        {"event": "gate_closed", "t": first + shut / 2, **update},
        {"event": "gate_opened", "t": first + shut, **update},
        {"event": "step_finished", "t": last, "step": 0},
    ]


def _jsonl(records: Iterable[Record]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def gzip_members(content: bytes) -> SearchStrategy[bytes]:
    """Return a strategy of gzip files that hold `content`, cut into one to five members at any byte."""

    def packed(edges: list[int]) -> bytes:
        cuts = [0, *sorted(edges), len(content)]
        return b"".join(gzip.compress(content[a:b], mtime=0) for a, b in zip(cuts, cuts[1:], strict=False))

    return st.lists(st.integers(0, len(content)), max_size=4).map(packed)


def write(files: Mapping[str, bytes], folder: Path) -> Path:
    """Write the files of a drawn capture into `folder`, which must be there, and return it."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
