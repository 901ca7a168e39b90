"""Hypothesis strategies for captures: the life of attempts, the rows of a trace, and whole captures as files.

Test your own metric, check or converter on records that you did not think of::

    @given(files=captures())
    def test_my_metric_is_a_fraction(files, tmp_path_factory):
        capture = open_capture(write(files, tmp_path_factory.mktemp("capture")))

All that is drawn is valid and free of contradictions. Needs the extra ``strategies``.
"""

from __future__ import annotations

import gzip
import itertools
import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hypothesis.strategies import DrawFn, SearchStrategy

Record = dict[str, Any]

_EPOCH_MS = 1_790_000_000_000
_counts = st.integers(0, 5000)
_millis = st.floats(0, 60_000, allow_nan=False).map(lambda value: round(value, 3))
_unsigned = st.integers(0, 2**64 - 1) | st.sampled_from([2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1])
_names = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=8)


@st.composite
def _replays(draw: DrawFn) -> Record:
    """Return what a replay needs, with as many hashes as the prompt has blocks, whole or begun."""
    block, blocks = draw(st.sampled_from([1, 16, 64])), draw(st.integers(0, 6))
    prompt = draw(st.lists(st.integers(0, 3), min_size=blocks, max_size=blocks))
    length = blocks * block - draw(st.integers(0, block - 1)) if blocks else 0
    hashes = [_hash(block, prompt[:end]) for end in range(1, blocks + 1)]
    return {"trace_block_size": block, "input_length": length, "input_sequence_hashes": hashes}


def _hash(block: int, prompt: Sequence[int]) -> int:
    """Return what stands for a prompt of such blocks, the same wherever it is drawn: small, large, or between."""
    number = 1
    for one in prompt:
        number = 4 * number + one
    number = 64 * number + block - 1
    return (number, 2**64 + 5 * 64 - 1 - number, 2**63 + number, 2**53 + number)[prompt[0]]


_workers = st.fixed_dictionaries(
    {"prefill_worker_id": _unsigned, "decode_worker_id": _unsigned},
    optional=dict.fromkeys(("prefill_dp_rank", "decode_dp_rank"), st.integers(0, 7)),
)
_TIMES = ("prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms", "avg_itl_ms")
_MEASURED = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cached_tokens", "queue_depth"), _counts),
    **dict.fromkeys(_TIMES, _millis),
    "model": st.just("example-1b"),
    "kv_hit_rate": st.floats(0, 1),
    "worker": st.none() | _workers,
    "replay": _replays(),
    "finish_reason_metadata": st.fixed_dictionaries({"finish_reason": st.sampled_from(["stop", "length"])}),
}


@st.composite
def request_rows(draw: DrawFn) -> Record:
    """Return a strategy of `request_end` records of ``dynamo.request.trace.v1``, bare, one request each.

    What Dynamo leaves out at times is left out at times: session, worker, replay, finish metadata and each measured
    field. Hashes and worker ids reach to 2^64 − 1.
    """
    received = _EPOCH_MS + draw(st.integers(0, 3_600_000))
    request: Record = {"request_id": draw(st.uuids()).hex, "request_received_ms": received}
    row: Record = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
    row["event_time_unix_ms"] = received + draw(st.integers(0, 60_000))
    if draw(st.booleans()):
        row |= {"event_source": "dynamo", "agent_context": {"session_id": draw(_names)}}
        request["x_request_id"] = draw(_names)
    row["request"] = request | draw(st.fixed_dictionaries({}, optional=_MEASURED))
    return row


@st.composite
def attempt_histories(
    draw: DrawFn, *, max_samples: int = 4, requests: bool | None = None, max_runs: int = 1
) -> list[Record]:
    """Return a strategy of ``rlserve.attempt.v1`` events, in the order in which they happened.

    Every sample has one attempt or more: all but the last were canceled or failed and are retried; the last may
    be accepted, rejected, undecided, canceled, failed or still open. No two events share an instant.

    `requests` says whether the attempts' HTTP requests are recorded too; it is drawn if not given. One in four asks for
    several choices. There are up to `max_runs` runs, side by side, which use the same ids for their attempts.
    """
    with_requests = draw(st.booleans()) if requests is None else requests
    runs = [f"r{number}" for number in range(draw(st.integers(1, max_runs)))]
    samples = [f"s{number}" for number in range(draw(st.integers(1, max_samples)))]
    lives = [_life(draw, run, sample, with_requests) for run in runs for sample in samples]
    turns = draw(st.permutations([number for number, life in enumerate(lives) for _ in life]))
    gaps = draw(st.lists(st.integers(1, 2000), min_size=len(turns), max_size=len(turns)))
    upcoming = [iter(life) for life in lives]
    instants = itertools.accumulate(gaps, initial=_EPOCH_MS)
    return [{"t": instant / 1000} | next(upcoming[number]) for number, instant in zip(turns, instants, strict=False)]


def _life(draw: DrawFn, run: str, sample: str, with_requests: bool) -> list[Record]:
    """Return the events of all attempts at one sample, without their times."""
    endings = ("accepted", "rejected", "completed", "canceled", "failed", "open")
    given_up = draw(st.lists(st.sampled_from(["canceled", "failed"]), max_size=2))
    events = list[Record]()
    for number, ending in enumerate([*given_up, draw(st.sampled_from(endings))]):
        attempt = f"{sample}-a{number}"
        about: Record = {"run": run, "group_id": "g", "sample_id": sample, "attempt_id": attempt}
        decided = ending in ("accepted", "rejected")
        if number:
            events.append({"event": "retried", "retry_of": f"{sample}-a{number - 1}"} | about)
        step, session = draw(st.integers(0, 3)), f"{run}-{attempt}"
        events.append({"event": "dispatched", "session_id": session, "step": step} | about)
        if with_requests:
            events += _requests(draw, {"run": run, "attempt_id": attempt, "session_id": session}, ending)
        if ending != "open":
            events.append({"event": "completed" if decided else ending} | about)
        if decided:
            version, lag = draw(st.integers(3, 9)), draw(st.integers(0, 3))
            decision = {"event": ending, "trained_version": version, "policy": version - lag}
            events.append(decision | {"step": step + draw(st.integers(0, 2))} | about)
    return events


def _requests(draw: DrawFn, attempt: Record, ending: str) -> list[Record]:
    """Return the events of an attempt's requests: all completed but the last, which ends as the attempt does."""
    about: Record = {"level": "request", **attempt}
    turns, events = draw(st.integers(1, 2)), list[Record]()
    for turn in range(turns):
        name = f"{attempt['session_id']}-t{turn}"
        named = about | {"x_request_id": name, "n": draw(st.sampled_from([1, 1, 1, 2]))}
        events.append({"event": "dispatched"} | named)
        if turn < turns - 1 or ending not in ("canceled", "failed", "open"):
            prompt = draw(st.integers(1, 5000))
            usage = {"prompt_tokens": prompt, "cached_tokens": draw(st.integers(0, prompt)), "http_status": 200}
            answer = {"response_id": f"chatcmpl-{name}", "output_tokens": draw(_counts)}
            events.append({"event": "completed"} | named | usage | answer)
        elif ending != "open":
            events.append({"event": ending} | named)
    return events


_NAMED = dict.fromkeys(("attempt_id", "session_id", "x_request_id", "purpose"), "probe") | {"level": "request"}
_PROBE: list[Record] = [
    {"event": "dispatched", "t": _EPOCH_MS / 1000 - 2, **_NAMED},
    {"event": "completed", "t": _EPOCH_MS / 1000 - 1, "response_id": "cmpl-probe", **_NAMED},
]


@st.composite
def captures(draw: DrawFn, *, max_samples: int = 4) -> dict[str, bytes]:
    """Return a strategy of small whole captures: file name → content, to be written into an empty directory.

    The trace is in one to three gzip shards of several members each. A probe and every completed request have
    their rows, but for those that asked for several choices; a canceled one may have one. All have what joins them.
    One step and one update frame the attempts of one or two runs.
    """
    history = _PROBE + draw(attempt_histories(max_samples=max_samples, requests=True, max_runs=2))
    rows = draw(st.permutations(list(_rows(draw, history))))
    if draw(st.booleans()):
        rows = [{"timestamp": 7, "event": row} for row in rows]
    edges = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=2)))
    files = {"attempts.jsonl": _jsonl(history), "control.jsonl": _jsonl(_control(draw, history))}
    for number, (start, end) in enumerate(itertools.pairwise([0, *edges, len(rows)])):
        files[f"request-trace.{number:06d}.jsonl.gz"] = draw(gzip_members(_jsonl(rows[start:end])))
    return files


def _rows(draw: DrawFn, history: Sequence[Record]) -> Iterable[Record]:
    sent: dict[str, float] = {}
    for event in history:
        if event.get("level") != "request" or event.get("n", 1) > 1:
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
    opened = first + draw(st.floats(0, 0.9)) * (last - first)
    events = {"step_started": first, "gate_closed": first, "gate_opened": opened, "step_finished": last}
    return [{"event": event, "t": instant, "step": 0, "update": 1} for event, instant in events.items()]


def _jsonl(records: Iterable[Record]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def gzip_members(content: bytes) -> SearchStrategy[bytes]:
    """Return a strategy of gzip files that hold `content`, cut into one to five members at any byte."""
    edges = st.lists(st.integers(0, len(content)), max_size=4).map(sorted)
    parts = edges.map(lambda inner: itertools.pairwise([0, *inner, len(content)]))
    return parts.map(lambda some: b"".join(gzip.compress(content[a:b], mtime=0) for a, b in some))


def write(files: Mapping[str, bytes], folder: Path) -> Path:
    """Write the files of a drawn capture into `folder` and return it."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
