"""Why a row does not fit: field, rule and kind of value, never private text."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_rlserve import schema

TRACE, ATTEMPT, CONTROL, CAPTURE = (
    "dynamo.request.trace.v1",
    "rlserve.attempt.v1",
    "rlserve.control.v1",
    "rlserve.capture.v1",
)
EVENT = {"event": "completed", "t": 1.0, "attempt_id": "a"}
PRIVATE = "what the user asked: private text"


def row(kind: str = "request_end", **fields: Any) -> dict[str, Any]:
    return {"schema": TRACE, "event_type": kind, "event_time_unix_ms": 1, **fields}


@pytest.mark.parametrize("name", [TRACE, ATTEMPT, CONTROL, CAPTURE])
def test_what_fits_has_no_problem(name: str) -> None:
    for example in schema.load(name)["examples"]:
        assert schema.problems(name, example) == []


@pytest.mark.parametrize(
    ("name", "document", "sentence"),
    [
        (ATTEMPT, {"event": "completed", "t": 1.0}, "attempt_id is missing"),
        (ATTEMPT, EVENT | {"turns": "3"}, "turns must be integer, is string"),
        (ATTEMPT, EVENT | {"run": 1.5}, "run must be string or integer, is number"),
        (ATTEMPT, EVENT | {"run": None}, "run must be string or integer, is null"),
        (ATTEMPT, EVENT | {"n": True}, "n must be integer, is boolean"),
        (ATTEMPT, EVENT | {"http_status": 99}, "http_status must be at least 100, is 99"),
        (ATTEMPT, EVENT | {"event": "done"}, "event must be one of dispatched, completed"),
        (ATTEMPT, EVENT | {"event": "done"}, "is 'done'"),
        (ATTEMPT, EVENT | {"x_request_ids": ["a", 2]}, "x_request_ids.1 must be string, is integer"),
        (ATTEMPT, [], "the row must be object, is array"),
        (TRACE, row(), "request is missing"),
        (TRACE, row(request={}), "request.request_id is missing"),
        (TRACE, row() | {"schema": "x.v2"}, "schema must be 'dynamo.request.trace.v1', is 'x.v2'"),
        (CONTROL, {"event": "step_started", "t": 1}, "step is missing"),
        (CAPTURE, {"sereis": "x"}, "the row has the unknown key 'sereis'; did you mean 'series'?"),
        (CAPTURE, {"identity": {"model": None}}, "identity.model must be string or number or boolean, is null"),
    ],
)
def test_a_problem_is_one_sentence_with_field_rule_and_kind(name: str, document: Any, sentence: str) -> None:
    assert any(found.startswith(sentence) or sentence in found for found in schema.problems(name, document))


def test_every_problem_is_told_once() -> None:
    found = schema.problems(ATTEMPT, {"event": "completed", "n": 0, "turns": -1})
    assert sorted(found) == [
        "attempt_id is missing",
        "n must be at least 1, is 0",
        "t is missing",
        "turns must be at least 0, is -1",
    ]


@pytest.mark.parametrize(
    "document",
    [
        row("request_payload", payload=PRIVATE),
        row("request_payload", payload={"request_id": [PRIVATE]}),
        row("request_payload", payload={"request": {"messages": [PRIVATE]}, "response": PRIVATE}),
        row("request_payload", payload={"request_id": ""}, request={PRIVATE: PRIVATE}),
        row(PRIVATE),
        row(request={"request_id": "r", "model": [PRIVATE], "x_request_id": {PRIVATE: 1}}),
        row(agent_context={"agent_headers": PRIVATE, "session_id": [PRIVATE]}, request={"request_id": "r"}),
        row("tool_end", tool={"tool_call_id": "c", "error_type": [PRIVATE], "duration_ms": PRIVATE}),
        row() | {"schema": PRIVATE},
        row() | {"event_time_unix_ms": PRIVATE},
    ],
)
def test_no_value_of_a_private_field_is_in_a_message(document: dict[str, Any]) -> None:
    found = schema.problems(TRACE, document)
    assert found
    assert "private" not in " ".join(found)


@pytest.mark.parametrize("name", [TRACE, ATTEMPT, CONTROL, CAPTURE, "rlserve.baseline.v1", "rlserve.report.v1"])
def test_every_schema_ships_with_the_package_and_is_made_once(name: str) -> None:
    assert schema.load(name)["properties"]["schema"]["const"] == name
    assert schema.validator(name) is schema.validator(name)
