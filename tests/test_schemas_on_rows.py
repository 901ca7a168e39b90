"""What the schemas say of rows: implausible ones pass, foreign ones do not, those of real captures all do."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
TRACE, ATTEMPT, CONTROL = "dynamo.request.trace.v1", "rlserve.attempt.v1", "rlserve.control.v1"
CAPTURE = "rlserve.capture.v1"
SCHEMAS: dict[str, dict[str, Any]] = {
    name: json.loads((HERE.parent / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    for name in (TRACE, ATTEMPT, CONTROL, CAPTURE)
}
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
CAPTURES = [
    folder
    for root in (HERE / "data" / "captures", HERE.parents[1] / "shared" / "captures")
    for folder in sorted(root.glob("*/"))
]


def request_end(**request: Any) -> dict[str, Any]:
    head = {"schema": TRACE, "event_type": "request_end", "event_time_unix_ms": 1}
    return head | {"request": {"request_id": "r1"} | request}


@pytest.mark.parametrize(
    "row",
    [
        request_end(kv_hit_rate=1.5),
        request_end(kv_hit_rate=-0.1),
        request_end(input_tokens=600, cached_tokens=1229),
        request_end(replay={"trace_block_size": 0, "input_length": 10, "input_sequence_hashes": [1, 2, 3]}),
        request_end(replay={"input_sequence_hashes": [0, 2**64 - 1]}),
        request_end(worker=None),
        request_end() | {"field_of_a_later_version": {"a": None}},
        request_end(field_of_a_later_version=None),
        request_end() | {"agent_context": {"session_id": "run", "trajectory_id": "rollout"}},
    ],
)
def test_a_trace_row_may_be_implausible_or_newer_than_the_schema(row: dict[str, Any]) -> None:
    VALIDATORS[TRACE].validate(row)


@pytest.mark.parametrize(
    "row",
    [
        request_end() | {"schema": "dynamo.agent.trace.v1"},
        request_end() | {"schema": "dynamo.request.trace.v2"},
        request_end() | {"event_type": "request_begin"},
        request_end() | {"agent_context": {"trajectory_id": "rollout"}},
        request_end(replay={"input_sequence_hashes": [2**64]}),
        request_end(total_time_ms=float("1e400")),
        request_end(x_request_id=None),
        {"timestamp": 12, "event": request_end()},
    ],
)
def test_a_trace_row_of_another_layout_or_out_of_range_is_refused(row: dict[str, Any]) -> None:
    assert not VALIDATORS[TRACE].is_valid(row)


def test_a_step_is_asked_for_only_where_a_step_starts_or_ends() -> None:
    VALIDATORS[CONTROL].validate({"event": "resume", "t": 1.0})
    assert not VALIDATORS[CONTROL].is_valid({"event": "step_finished", "t": 1.0})


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a file that may be compressed and cut, as rows without their wrapper."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        plain = b""
        while data:
            member = zlib.decompressobj(31)
            plain, data = plain + member.decompress(data), member.unused_data if member.eof else b""
        data = plain[: plain.rfind(b"\n") + 1]
    for line in data.split(b"\n"):
        if line.strip():
            row = json.loads(line)
            yield row["event"] if isinstance(row.get("event"), dict) else row


@pytest.fixture(params=["the examples", *CAPTURES], ids=lambda param: Path(param).name)
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a capture: the examples written down as one, then each real one that is at hand."""
    if isinstance(request.param, Path):
        return request.param
    wrapped = [json.dumps({"timestamp": 5, "event": row}) + "\n" for row in SCHEMAS[TRACE]["examples"]]
    members = b"".join(gzip.compress(line.encode()) for line in wrapped)
    (tmp_path / "request-trace.000000.jsonl.gz").write_bytes(members)
    for file, name in (("attempts.jsonl", ATTEMPT), ("control.jsonl", CONTROL)):
        (tmp_path / file).write_text("".join(json.dumps(row) + "\n" for row in SCHEMAS[name]["examples"]))
    (tmp_path / "rlserve.json").write_text(json.dumps(SCHEMAS[CAPTURE]["examples"][0]))
    return tmp_path


def test_every_row_of_the_captures_at_hand_is_accepted(capture: Path) -> None:
    patterns = {"*request[-_]trace*.jsonl*": TRACE, "attempts.jsonl": ATTEMPT, "control.jsonl": CONTROL}
    judged = 0
    for pattern, name in patterns.items():
        for path in capture.glob(pattern):
            for number, row in enumerate(rows(path), 1):
                error = next(VALIDATORS[name].iter_errors(row), None)
                assert error is None, f"{path.name}, row {number}: {error.message}"
                judged += 1
    for path in capture.glob("rlserve.json"):
        VALIDATORS[CAPTURE].validate(json.loads(path.read_text()))
    assert judged
