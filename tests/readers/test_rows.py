"""From a line to a row: what strict JSON is here, and what a refusal says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_schemas import INLINED, mutations

from pytest_rlserve import schema
from pytest_rlserve.readers import attempts, control, dynamo, rows
from pytest_rlserve.readers.rows import Refusal, decode, fit

if TYPE_CHECKING:
    import msgspec


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1,"a":2}', "a field given twice"),
        (b'{"step":1,"step":2,"alice":1,"alice":2}', "step and a field given twice"),
        (b'{"request":{"step":NaN}}', "step is not a finite number"),
        (b'{"a" : 1,"a":2}', "a field given twice"),
        (b'{"a"\t:1,"b":2,"b":3}', "a field given twice"),
        (b'{"a":"\\":","b" :1,"b":2}', "a field given twice"),
        (b'{"a":" :","b" :1,"b":2}', "a field given twice"),
        (b'{"a":"\\"  :","b"  :1,"b":2}', "a field given twice"),
        (b'{"a\\\\":1,"b":1,"b":2}', "a field given twice"),
        (b'{"a":"\\\\","b":1,"b":2}', "a field given twice"),
        (b'{"a":{"b":1,"b":2}}', "a field given twice"),
        (b'{"a":[1,{"b":1,"b":1}]}', "a field given twice"),
        (b'{"\\u0061":1,"a":2}', "a field given twice"),
        (b'{"a":NaN}', "a field is not a finite number"),
        (b'{"a":-Infinity}', "a field is not a finite number"),
        (b'{"a":1e400}', "a field is not a finite number"),
        (b'{"a":[[1,[NaN]]]}', "a field is not a finite number"),
        (b'{"a":"\\ud800"}', "a field holds half of a surrogate pair"),
        (b'{"a":[["\\udc00"]]}', "a field holds half of a surrogate pair"),
        (b'{"\\ud800":1}', "name holds half of a surrogate pair"),
        (b'{"a":"\xff"}', "is not UTF-8 at byte 7"),
        (b'{"a":"x', "is cut off"),
        (b'{"a":1', "is cut off"),
        (b'{"a":01}', "is not JSON"),
        (b"{'a':1}", "is not JSON"),
        (b'{"a":1}{"b":2}', "more than one JSON value"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "cannot be decoded"),
        (b'{"a":' + b"9" * 5000 + b"}", "cannot be decoded"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_a_line_that_is_no_strict_json_object_is_refused(line: bytes, reason: str) -> None:
    found = decode(line)
    assert isinstance(found, Refusal)
    assert reason in str(found)


@pytest.mark.parametrize(
    "line",
    [
        b'{"a" :1, "b"\t: [{"c":1},{"c":2}], "d":"\\":"}',
        b'{"a":{"a":{"a":1}},"b":":::\\":\\":"}',
        b'{"a":18446744073709551615,"b":-0.0,"c":1E5,"d":[],"e":{},"":1}',
        '{"a":"\u2028\u0085\U0001f600\\ud83d\\ude00\\u0000"}'.encode(),
        b'{"a":340282366920938463463374607431768211456}',
        b'{"a":' * 500 + b"1" + b"}" * 500,
    ],
    ids=lambda line: line[:24].decode("latin-1"),
)
def test_any_other_object_is_what_json_says_it_is(line: bytes) -> None:
    assert repr(decode(line)) == repr(json.loads(line))


@pytest.mark.parametrize("text", ['{"cmd":"ls","n":1}', "a ? b : c", "π :", "\\\\", 'a "b": c'])
def test_what_strings_hold_of_quotes_and_colons_does_not_need_a_closer_look(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_explain", lambda line: pytest.fail(f"looked closely at {line!r}"))
    row = {"a": text, "b": [{"c": text}, {"c": 1}]}
    for separators in ((",", ":"), (", ", ": ")):
        for ascii in (True, False):
            assert decode(json.dumps(row, separators=separators, ensure_ascii=ascii).encode()) == row


_ODD = st.text(st.sampled_from('"\\: ab'), max_size=4)


@given(
    keys=st.lists(_ODD, max_size=4),
    values=st.lists(_ODD, min_size=4, max_size=4),
    colon=st.sampled_from([":", " :", "\t: "]),
)
def test_a_key_given_twice_is_found_whatever_it_is_called(keys: list[str], values: list[str], colon: str) -> None:
    fields = (f"{json.dumps(key)}{colon}{json.dumps(value)}" for key, value in zip(keys, values, strict=False))
    found = decode(f"{{{','.join(fields)}}}".encode())
    assert isinstance(found, Refusal) == (len(set(keys)) < len(keys))


def test_a_refusal_does_not_name_a_key_that_may_be_private() -> None:
    found = decode(b'{"payload":{"My Secret":1,"My Secret":2}}')
    assert "Secret" not in str(found)


ATTEMPT = {"event": "completed", "t": 1.0, "attempt_id": "a"}
CONTROL = {"event": "resume", "t": 1.0}
ROW = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1}
REQUEST = {"request_id": "r"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"attempt_id": None}, "attempt_id must be string or integer, is null"),
        ({"attempt_id": ""}, "attempt_id does not satisfy minLength"),
        ({"t": -1}, "t must be at least 0"),
        ({"step": 2**63}, "step must be at most 9223372036854775807"),
        ({"step": 1e17}, "step is not exact"),
        ({"tokens_by_version": {"3": 1e17}}, "tokens_by_version.3 is not exact"),
        ({"n": 0}, "n must be at least 1"),
        ({"event": "finished"}, "event must be one of"),
        ({"session_id": 3}, "session_id must be string, is integer"),
    ],
)
def test_an_attempt_event_that_does_not_fit_is_refused(fields: dict[str, Any], reason: str) -> None:
    assert reason in str(fit(ATTEMPT | fields, attempts.AttemptEvent, attempts.FORMAT))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"worker_id": 2**64}, "worker_id must be at most 18446744073709551615"),
        ({"target_workers": [-1]}, "target_workers.0 must be at least 0"),
        ({"event": "step_started"}, "step is missing"),
        ({"status": "fine"}, "status must be one of"),
    ],
)
def test_a_control_event_that_does_not_fit_is_refused(fields: dict[str, Any], reason: str) -> None:
    assert reason in str(fit(CONTROL | fields, control.ControlEvent, control.FORMAT))


def test_a_whole_number_written_as_a_float_does_not_need_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_rlserve.schema.problems", lambda *_: pytest.fail("takes a hundred times as long"))
    assert fit(ATTEMPT | {"step": 7.0, "run": 7.0}, attempts.AttemptEvent, attempts.FORMAT) is None
    part = {"worker": None, "queue_depth": 0.0, "replay": {"input_sequence_hashes": [1.0, 2**64 - 1]}}
    assert fit(ROW | {"request": REQUEST | part}, dynamo.RequestEnd, dynamo.FORMAT) is None


def test_the_schema_is_not_asked_about_every_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("pytest_rlserve.schema.problems", lambda _, row: asked.append(row) or ["a reason"])
    for hashes in ([1, 2, 2**64 - 1], [1, 2, 2**64], [-1, 2, 3], [1, True, 2]):
        part = {"model": None, "replay": {"input_sequence_hashes": hashes}}
        assert fit(ROW | {"request": REQUEST | part}, dynamo.RequestEnd, dynamo.FORMAT) is not None
    assert [len(row["request"]["replay"]["input_sequence_hashes"]) for row in asked] == [1, 3, 3, 3]


def test_large_numbers_that_need_not_be_whole_are_no_reason_to_refuse() -> None:
    large = {"reward": 1e300, "unknown": 1e300, "more": [{"x": 1e300}]}
    assert fit(ATTEMPT | large | {"step": 7.0}, attempts.AttemptEvent, attempts.FORMAT) is None


@pytest.mark.parametrize(
    ("request_fields", "reason"),
    [
        ({"replay": {"input_sequence_hashes": [1, 2**64]}}, "input_sequence_hashes.1 must be at most"),
        ({"replay": {"input_sequence_hashes": [-1]}}, "input_sequence_hashes.0 must be at least 0"),
        ({"replay": {"input_sequence_hashes": [1e19]}}, "input_sequence_hashes.0 is not exact"),
        ({"finish_reason_metadata": {"choices": [{"choice_index": 1e17}]}}, "choices.0.choice_index is not exact"),
        ({"worker": {"decode_worker_id": 2**64}}, "decode_worker_id must be at most"),
        ({"ttft_ms": "12"}, "ttft_ms must be number, is string"),
        ({"output_tokens": 1.5}, "output_tokens must be integer, is number"),
        ({"output_tokens": True}, "output_tokens must be integer, is boolean"),
        ({"request_id": ""}, "request_id does not satisfy minLength"),
    ],
)
def test_a_request_row_that_does_not_fit_is_refused(request_fields: dict[str, Any], reason: str) -> None:
    row = ROW | {"request": REQUEST | request_fields}
    assert reason in str(fit(row, dynamo.RequestEnd, dynamo.FORMAT))


@pytest.mark.parametrize("part", ["payload", "tool"])
@pytest.mark.parametrize("value", [None, 0, 1, "", {}])
def test_a_part_of_another_kind_of_row_is_judged_like_everything_else(part: str, value: object) -> None:
    row = ROW | {"request": REQUEST, part: value}
    assert str(fit(row, dynamo.RequestEnd, dynamo.FORMAT)) == "; ".join(schema.problems(dynamo.FORMAT, row))


@pytest.mark.parametrize(
    "request_fields",
    [
        {"worker": None},
        {"output_tokens": 12.0},
        {"kv_hit_rate": -3},
        {"field_of_tomorrow": None},
        {"replay": {"input_sequence_hashes": [0, 2**64 - 1]}},
    ],
)
def test_what_the_schema_allows_is_allowed_whatever_the_shape_says(request_fields: dict[str, Any]) -> None:
    row = ROW | {"request": REQUEST | request_fields}
    assert fit(row, dynamo.RequestEnd, dynamo.FORMAT) is None


@pytest.mark.parametrize("shape", [attempts.AttemptEvent, control.ControlEvent, dynamo.RequestEnd])
def test_the_typed_shape_refuses_every_violation_of_its_schema(
    shape: type[msgspec.Struct], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "problems", lambda name, row: ["is left to the schema"])
    name = {attempts.AttemptEvent: attempts.FORMAT, control.ControlEvent: control.FORMAT}.get(shape, dynamo.FORMAT)
    examples = [row for row in schema.load(name)["examples"] if row.get("event_type", "request_end") == "request_end"]
    faults = [fault for row in examples for fault in mutations(INLINED[name], row) if finite(fault.document)]
    missed = [(fault.rule, fault.place) for fault in faults if fit(fault.document, shape, name) is None]
    assert len(faults) > 100
    assert missed == []
    assert {fit(row, shape, name) for row in examples} == {None}


def finite(row: object) -> bool:
    """Tell whether a row can come out of a line: decoding has refused infinity before."""
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        return False
    return True


def test_every_reason_is_given() -> None:
    found = fit({"event": "completed", "n": 0}, attempts.AttemptEvent, attempts.FORMAT)
    assert isinstance(found, Refusal)
    assert set(found.reasons) == {"t is missing", "attempt_id is missing", "n must be at least 1, is 0"}
