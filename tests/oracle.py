"""A slow, plain count of one capture: what the tests hold the package's fast code against.

Written from the formats alone, sharing no code with the package: json, zlib, lists and dicts, every figure by
its definition. It judges nothing and prints no payload. It knows only what the recorded captures hold: whole
steps, every ending with its dispatch, traced routes; n > 1 or a 404 is why a request rightly has no row.

    python tests/oracle.py CAPTURE...    a table, one column per capture
    python tests/oracle.py --write       tests/data/captures/expected.json anew
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]
CAPTURES = Path(__file__).parent / "data" / "captures"
ENDED = ("completed", "canceled", "failed")
LATENCIES = ("ttft_ms", "total_time_ms", "avg_itl_ms", "prefill_wait_time_ms", "prefill_time_ms")


@dataclass
class Request:
    """One HTTP request: its dispatch and ending as the client saw them, and the `request` part of its row."""

    sent: Line
    ended: Line = field(default_factory=dict)
    outcome: str = "open"
    row: Line | None = None


def read(path: Path) -> tuple[list[Line], bool]:
    """Whole lines of one file, and whether the file itself is whole. The rest of a cut line is left out."""
    raw, whole = path.read_bytes(), True
    if path.suffix == ".gz":
        packed, raw = raw, b""
        while packed and whole:
            member = zlib.decompressobj(wbits=31)
            raw += member.decompress(packed)
            packed, whole = member.unused_data, member.eof
    *lines, tail = raw.split(b"\n")
    return [json.loads(line) for line in [*lines, *([tail] if whole else [])] if line.strip()], whole


def read_by_time(capture: Path, stem: str) -> list[Line]:
    lines = [line for file in capture.glob(f"{stem}.jsonl*") for line in read(file)[0]]
    return sorted(lines, key=lambda line: float(line["t"]))


def pair(lines: list[Line]) -> list[Request]:
    """Each dispatch with its ending; of an x_request_id sent twice, the oldest open dispatch ends first."""
    requests, waiting = [], defaultdict(list)
    for line in lines:
        key = line["attempt_id"], line["x_request_id"]
        if line["event"] == "dispatched":
            requests.append(Request(line))
            waiting[key].append(requests[-1])
        elif line["event"] in ENDED:
            request = waiting[key].pop(0)
            request.ended, request.outcome = line, line["event"]
    return requests


def join(rows: list[Line], requests: list[Request]) -> Counter[str]:
    """Give each request its row, and count the rows by the strongest key that joins them.

    The response id decides. An x_request_id gives its row to the oldest dispatch that has none yet and saw no
    response id (a request that saw another response id is another request). A session only names the attempt.
    """
    by_response, by_x = {}, defaultdict(list)
    for request in requests:
        by_response[request.ended.get("response_id")] = request
        by_x[request.sent["x_request_id"]].append(request)
    sessions = {request.sent.get("session_id") for request in requests} - {None}
    keys: Counter[str] = Counter(response_id=0, x_request_id=0, session=0, none=0)
    rest = []
    for row in rows:
        server_id = row["request"]["request_id"]
        answered = by_response.get(f"chatcmpl-{server_id}") or by_response.get(f"cmpl-{server_id}")
        if answered:
            answered.row = row["request"]
            keys["response_id"] += 1
        else:
            rest.append(row)
    for row in rest:
        named = by_x.get(row["request"].get("x_request_id"), [])
        free = [request for request in named if request.row is None and "response_id" not in request.ended]
        if free:
            free[0].row = row["request"]
        known = row.get("agent_context", {}).get("session_id") in sessions
        keys["x_request_id" if named else "session" if known else "none"] += 1
    return keys


def ratio(numerator: float, denominator: float) -> float | None:
    return round(numerator / denominator, 6) if denominator else None


def tally(lines: list[Line]) -> Line:
    """Dispatched = completed + canceled + failed + open; retries beside it; shares of the dispatched."""
    events = Counter(line["event"] for line in lines)
    sent, counts = events["dispatched"], {name: events[name] for name in (*ENDED, "retried")}
    shares = {f"{name}_fraction": ratio(number, sent) for name, number in counts.items()}
    return {"dispatched": sent, **counts, "open": sent - sum(events[name] for name in ENDED), **shares}


def listed(requests: list[Request]) -> Line:
    return {"count": len(requests), "ids": sorted(request.sent["x_request_id"] for request in requests)}


def without_row(requests: list[Request]) -> Line:
    """Requests that the trace does not know, by the outcome that the client saw."""
    missing = {end: [r for r in requests if r.row is None and r.outcome == end] for end in ENDED}
    statuses = Counter(str(request.ended.get("http_status")) for request in missing["failed"])
    return {
        "completed_n": listed([request for request in missing["completed"] if request.sent["n"] > 1]),
        "completed_lost": listed([request for request in missing["completed"] if request.sent["n"] == 1]),
        "canceled": listed(missing["canceled"]),
        "failed_404": statuses.pop("404", 0),
        "failed_by_other_status": dict(statuses),
    }


def window(control: list[Line], decided: list[Line]) -> Line:
    """From the first step_started to the last step_finished, and how long the update gate was open within."""
    start = min(line["t"] for line in control if line["event"] == "step_started")
    end = max(line["t"] for line in control if line["event"] == "step_finished")
    closed, since = 0.0, None
    for line in [*control, {"event": "gate_opened", "t": end}]:
        if line["event"] == "gate_closed" and since is None:
            since = line["t"]
        elif line["event"] == "gate_opened" and since is not None:
            closed += max(0.0, min(line["t"], end) - max(since, start))
            since = None
    accepted = sum(line["event"] == "accepted" and start <= line["t"] <= end for line in decided)
    wall = end - start
    return {
        "start": start,
        "end": end,
        "accepted": accepted,
        "wall_seconds": round(wall, 6),
        "wall_rate": ratio(accepted, wall),
        "gate_open_seconds": round(wall - closed, 6),
        "gate_open_rate": ratio(accepted, wall - closed),
    }


def output_tokens(requests: list[Request], outcome: dict[str, str], accepted: set[str]) -> Line:
    """By the client's own count (completed requests only) and by the rows' (canceled ones too).

    Wasted is what attempts that were not accepted made; requests of no attempt (priming, probes) have no part
    in its share. `unknown` counts the requests without a number.
    """
    parts = ("completed_requests", "completed_attempts", "accepted", "attempts", "no_attempt", "unknown")
    result = {}
    for source in ("client", "rows"):
        made = dict.fromkeys(parts, 0)
        for request in requests:
            attempt = request.sent["attempt_id"]
            record = (request.ended if source == "client" else request.row) or {}
            output = record.get("output_tokens", 0)
            made["unknown"] += "output_tokens" not in record
            made["completed_requests"] += output * (request.outcome == "completed")
            made["completed_attempts"] += output * (outcome.get(attempt) == "completed")
            made["accepted"] += output * (attempt in accepted)
            made["attempts" if attempt in outcome else "no_attempt"] += output
        wasted = made["attempts"] - made["accepted"]
        result[source] = {**made, "wasted": wasted, "wasted_fraction": ratio(wasted, made["attempts"])}
    return result


def reuse(records: list[Line], prompt: str) -> Line:
    """Cached tokens over prompt tokens of the records that carry cached_tokens."""
    known = [record for record in records if "cached_tokens" in record]
    cached, total = sum(record["cached_tokens"] for record in known), sum(record[prompt] for record in known)
    return {"n": len(known), "cached_tokens": cached, prompt: total, "fraction": ratio(cached, total)}


def spread(values: list[float]) -> Line:
    """Percentiles by nearest rank (the smallest value with q % at or below it) and linear between ranks."""
    values, last = sorted(values), len(values) - 1
    result: Line = {"n": len(values), "mean": ratio(math.fsum(values), len(values))}
    for q in (50, 95, 99) if values else ():
        low, part = divmod(last * q, 100)
        linear = values[low] + (values[min(low + 1, last)] - values[low]) * part / 100
        nearest = values[math.ceil(len(values) * q / 100) - 1]
        result[f"p{q}"] = {"nearest": round(nearest, 6), "linear": round(linear, 6)}
    return result


def count(path: Path | str) -> Line:
    """Every figure of one capture directory, in seconds, milliseconds (`_ms`) and tokens."""
    files = {file.name: read(file) for file in sorted(Path(path).glob("request-trace*"))}
    events = [line.get("event", line) for lines, _ in files.values() for line in lines]
    repeated = [event for event in events if event["event_type"] == "request_end"]
    rows = list({row["request"]["request_id"]: row for row in repeated}.values())
    lines = read_by_time(Path(path), "attempts")
    of_requests = [line for line in lines if line.get("level") == "request"]
    of_attempts = [line for line in lines if line.get("level") != "request"]
    requests = pair(of_requests)
    keys = join(rows, requests)
    completed = [request for request in requests if request.outcome == "completed"]
    served = [request for request in completed if request.row is not None]
    records = [request.row for request in served if request.row is not None]
    finished = [r for r in requests if "finish_reason" in (r.row or {}).get("finish_reason_metadata", {})]
    sent = {line["attempt_id"]: line["t"] for line in of_attempts if line["event"] == "dispatched"}
    ends = {line["attempt_id"]: line for line in of_attempts if line["event"] in ENDED}
    outcome = {attempt: str(ends.get(attempt, {"event": "open"})["event"]) for attempt in sent}
    accepted = {line["attempt_id"] for line in of_attempts if line["event"] == "accepted"}
    rejected = {line["attempt_id"] for line in of_attempts if line["event"] == "rejected"}
    done = {attempt for attempt in sent if outcome[attempt] == "completed"}
    apart = Counter(r.sent.get("purpose", "unnamed") for r in requests if r.sent["attempt_id"] not in sent)
    return {
        "segments": {name: {"lines": len(found), "whole": whole} for name, (found, whole) in files.items()},
        "kinds": dict(Counter(event["event_type"] for event in events)),
        "requests": tally(of_requests),
        "requests_of_no_attempt": dict(apart),
        "attempts": {
            **tally(of_attempts),
            "accepted": len(accepted),
            "rejected": len(rejected),
            "pending": len(done - accepted - rejected),
            "acceptance_fraction": ratio(len(accepted), len(done)),
        },
        "rows": len(rows),
        "rows_repeated": len(repeated) - len(rows),
        "rows_joined": len(rows) - keys["none"],
        "rows_joined_by": dict(keys),
        "without_row": without_row(requests),
        "canceled_yet_finished": listed([request for request in finished if request.outcome == "canceled"]),
        "traceable_served": {
            "numerator": sum(request.sent["n"] == 1 for request in served),
            "denominator": sum(request.sent["n"] == 1 for request in completed),
        },
        "window": window(read_by_time(Path(path), "control"), of_attempts),
        "output_tokens": output_tokens(requests, outcome, accepted),
        "engine_reuse": reuse([request.ended for request in completed], "prompt_tokens"),
        "engine_reuse_with_row": reuse([request.ended for request in served], "prompt_tokens"),
        "row_reuse": reuse(records, "input_tokens"),
        "latency": {name: spread([one[name] for one in records if name in one]) for name in LATENCIES},
        "trajectory_latency_seconds": spread([ends[attempt]["t"] - sent[attempt] for attempt in done]),
    }


def flat(value: Any, name: str = "") -> Line:
    """Dotted names with one value each, lists left out: what a table shows."""
    if not isinstance(value, dict):
        return {} if isinstance(value, list) else {name.strip("."): value}
    return {key: leaf for part in value for key, leaf in flat(value[part], f"{name}.{part}").items()}


def expected() -> str:
    """What expected.json holds: every committed capture, keys sorted, one value a line."""
    figures = {path.name: count(path) for path in CAPTURES.iterdir() if path.is_dir()}
    return json.dumps(figures, indent=1, sort_keys=True) + "\n"


def main(arguments: list[str]) -> None:
    if arguments == ["--write"]:
        (CAPTURES / "expected.json").write_text(expected(), encoding="utf-8", newline="\n")
        return
    captures = {Path(path).name: flat(count(path)) for path in arguments}
    names = list(dict.fromkeys(name for figures in captures.values() for name in figures))
    print(f"{'':47}", *(f"{capture:>24}" for capture in captures))
    for name in names:
        print(f"{name:47}", *(f"{figures.get(name, '')!s:>24}" for figures in captures.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
