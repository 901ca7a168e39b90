"""Dynamo's request trace: every field lands in its column exactly, and private text lands nowhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import EPOCH, Record, jsonl, members, opened, request_end

from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

LARGEST = 2**64 - 1
FULL: dict[str, Any] = {
    "x_request_id": "x",
    "model": "m",
    "input_tokens": 130,
    "output_tokens": 12,
    "cached_tokens": 64,
    "prefill_wait_time_ms": 2.5,
    "prefill_time_ms": 39.5,
    "ttft_ms": 42,
    "total_time_ms": 412.25,
    "avg_itl_ms": 11.5,
    "kv_hit_rate": 0.5,
    "queue_depth": 3,
}
WORKER = {"prefill_worker_id": LARGEST, "prefill_dp_rank": 1, "decode_worker_id": 2**63 + 1, "decode_dp_rank": 0}
REPLAY = {"trace_block_size": 64, "input_length": 130, "input_sequence_hashes": [LARGEST, 2**63 + 1, 2**53 + 1]}
FINISH = {"finish_reason": "stop", "backend_finish_reason": "eos"}
PRIVATE = "PRIVATE-TEXT"


def payload(name: str = "r1") -> Record:
    body = {"messages": [{"role": "user", "content": PRIVATE}], "tools": {PRIVATE: 1}}
    inner = {
        "request_id": name,
        "request": body,
        "response": PRIVATE,
        "http_request_headers": {"authorization": PRIVATE},
    }
    head = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_payload",
        "event_time_unix_ms": 1_790_000_001_000,
    }
    return head | {"payload": inner}


def tool(event: str, **fields: Any) -> Record:
    head = {"schema": "dynamo.request.trace.v1", "event_type": event, "event_time_unix_ms": 1_790_000_001_000}
    return head | {"tool": {"tool_call_id": "c1", **fields}, "agent_context": {"session_id": "s1"}}


def read(folder: Path, *rows: Record) -> Capture:
    return opened(folder / "capture", rows=rows)


def only_row(capture: Capture) -> Record:
    (row,) = capture.requests.to_pylist()
    return dict(row)


def test_every_field_of_a_full_row_lands_in_its_column(tmp_path: Path) -> None:
    row = request_end("r1", 1, 2.5, session="s", **FULL, worker=WORKER, replay=REPLAY, finish_reason_metadata=FINISH)
    row["agent_context"]["parent_session_id"] = "p"
    place = {"source": "request-trace.jsonl", "line": 1}
    times = {"received_at": EPOCH + 1, "ended_at": EPOCH + 2.5}
    names = {"request_id": "r1", "session_id": "s", "parent_session_id": "p"}
    known = {name: value for name, value in only_row(read(tmp_path, row)).items() if value is not None}
    assert known == names | FULL | WORKER | REPLAY | FINISH | times | place


def test_what_a_row_leaves_out_is_null_and_never_zero(tmp_path: Path) -> None:
    row = request_end("r1", x_request_id=None, output_tokens=None, request_received_ms=None)
    known = {name for name, value in only_row(read(tmp_path, row)).items() if value is not None}
    assert known == {"request_id", "ended_at", "source", "line"}


def test_a_null_worker_is_an_absent_one(tmp_path: Path) -> None:
    row = request_end("r1")
    row["request"]["worker"] = None
    found = read(tmp_path, row)
    assert only_row(found)["decode_worker_id"] is None
    assert found.findings == ()


def test_wrapped_and_bare_rows_read_the_same_and_the_wrappers_clock_is_ignored(tmp_path: Path) -> None:
    rows = [request_end(f"r{number}", number, number + 1) for number in range(3)]
    wrapped = [{"timestamp": 86_400_000 * number, "event": row} for number, row in enumerate(rows)]
    bare, packed = tmp_path / "bare", tmp_path / "packed"
    assert opened(bare, rows=rows).requests.equals(opened(packed, rows=wrapped).requests)


def test_fields_of_a_later_version_are_let_through(tmp_path: Path) -> None:
    row = request_end("r1", new_number=7, new_part={"a": [None]}) | {"new": None}
    assert read(tmp_path, row).findings == ()


def test_a_payload_leaves_its_request_id_and_its_size_and_no_text(tmp_path: Path) -> None:
    found = read(tmp_path, request_end("r1"), payload())
    (row,) = found.payloads.to_pylist()
    assert (row["request_id"], row["received_at"]) == ("r1", EPOCH + 1)
    assert row["size"] == len(json.dumps(payload()))
    assert PRIVATE not in "".join(str(table.to_pydict()) for _, table in found.tables())


def test_a_refused_payload_row_gives_nothing_of_its_text_away(tmp_path: Path) -> None:
    broken = payload() | {"event_time_unix_ms": PRIVATE}
    torn = json.dumps(payload()).encode()[:-9].replace(b'"tools"', b'"messages"')
    file = tmp_path / "request-trace.jsonl"
    file.write_bytes(jsonl([request_end("r1"), broken]) + torn + b"\n" + b'{"payload":{"%s":NaN}}' % PRIVATE.encode())
    found = open_capture(file)
    assert [finding.line for finding in found.findings] == [2, 3, 4]
    assert not [finding for finding in found.findings if PRIVATE in str(finding)]


def test_tool_records_keep_session_call_and_times(tmp_path: Path) -> None:
    times = {"started_at_unix_ms": 1_790_000_001_000, "ended_at_unix_ms": 1_790_000_001_500}
    end = tool("tool_end", tool_class="env_step", status="succeeded", duration_ms=500, **times)
    found = read(tmp_path, request_end("r1"), tool("tool_start"), end)
    start, finish = found.tools.to_pylist()
    assert (start["event"], start["duration_ms"], start["started_at"]) == ("tool_start", None, None)
    assert (finish["session_id"], finish["tool_call_id"], finish["tool_class"]) == ("s1", "c1", "env_step")
    assert (finish["started_at"], finish["ended_at"], finish["duration_ms"]) == (EPOCH + 1, EPOCH + 1.5, 500.0)


def test_a_tool_record_without_context_has_no_session_whatever_else_it_carries(tmp_path: Path) -> None:
    row = tool("tool_end") | {"session_id": 5}
    del row["agent_context"]
    found = read(tmp_path, request_end("r1"), row)
    assert found.tools["session_id"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"schema": "dynamo.request.trace.v2"},
            "schema must be 'dynamo.request.trace.v1', is 'dynamo.request.trace.v2'",
        ),
        ({"schema": "dynamo.agent.trace.v1"}, "schema must be"),
        ({"event_type": "request_begin"}, "event_type must be one of"),
        ({"event_type": "tool_end"}, "tool is missing"),
        ({"agent_context": {"trajectory_id": "t"}}, "agent_context.session_id is missing"),
        ({"request": None}, "request must be object, is null"),
    ],
)
def test_a_row_of_another_layout_is_refused_with_file_and_line(tmp_path: Path, change: Record, reason: str) -> None:
    found = read(tmp_path, request_end("r1"), request_end("r2") | change)
    (finding,) = found.findings
    assert (finding.path, finding.line, finding.severity) == ("request-trace.jsonl", 2, "error")
    assert reason in finding.message
    assert found.requests["request_id"].to_pylist() == ["r1"]


def test_rows_of_every_kind_are_counted_apart(tmp_path: Path) -> None:
    rows = [request_end("r1"), payload(), tool("tool_start"), tool("tool_error")]
    found = read(tmp_path, *rows)
    assert (found.requests.num_rows, found.payloads.num_rows, found.tools.num_rows) == (1, 1, 2)
    assert found.sources[0].rows == 4


def test_after_fifty_bad_lines_the_others_are_counted_in_one_finding(tmp_path: Path) -> None:
    file = tmp_path / "request-trace.jsonl"
    file.write_bytes(jsonl([request_end("r1")]) + b"{}\n" * 60)
    findings = open_capture(file).findings
    assert len(findings) == 51
    assert sum(finding.count for finding in findings) == 60
    assert (findings[-1].count, findings[-1].line) == (10, 61)


def test_a_trace_without_any_request_is_an_error_that_says_what_was_there(tmp_path: Path) -> None:
    (finding,) = read(tmp_path, payload(), payload("r2")).findings
    assert finding.severity == "error"
    assert "no request_end rows (2 request_payload rows seen)" in finding.message


def test_members_of_a_shard_are_read_on(tmp_path: Path) -> None:
    file = tmp_path / "request-trace.000000.jsonl.gz"
    file.write_bytes(members(jsonl([request_end("r1")]), b"", jsonl([request_end("r2"), request_end("r3")])))
    found = open_capture(file)
    assert found.requests["request_id"].to_pylist() == ["r1", "r2", "r3"]
    assert found.requests["line"].to_pylist() == [1, 2, 3]
