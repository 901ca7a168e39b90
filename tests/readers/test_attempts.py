"""`rlserve.attempt.v1`: ids are text, numbers are exact, what is not listed is not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import EPOCH, Record, attempt, control, opened

from pytest_rlserve.errors import UsageError
from pytest_rlserve.model import ATTEMPT_EVENTS
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


def read(folder: Path, *events: Record) -> Capture:
    return opened(folder / "capture", attempts=events)


def only(capture: Capture) -> dict[str, Any]:
    assert capture.findings == ()
    (row,) = capture.attempt_events.to_pylist()
    return dict(row)


FULL = {
    "run": "r",
    "group_id": "g",
    "sample_id": "s",
    "level": "request",
    "step": -3,
    "target_policy": "7",
    "policy": "6",
    "policy_end": "7",
    "trained_version": "8",
    "session_id": "se",
    "x_request_id": "x",
    "x_request_ids": ["x", "y"],
    "response_id": "chatcmpl-1",
    "retry_of": "a0",
    "reason": "why",
    "purpose": "probe",
    "endpoint": "/v1/completions",
    "n": 2,
    "turns": 3,
    "reward": -0.5,
    "http_status": 200,
    "finish_reason": "stop",
    "prompt_tokens": 2**63 - 1,
    "output_tokens": 2**53 + 1,
    "cached_tokens": 0,
    "ttft_ms": 44.5,
    "latency_ms": 415.0,
}


def test_every_listed_field_lands_in_its_column(tmp_path: Path) -> None:
    row = only(read(tmp_path, attempt("accepted", "a1", 2.25, tokens_by_version={"6": 90, "7": 38}, **FULL)))
    found = {name: value for name, value in row.items() if value is not None}
    assert found.pop("tokens_by_version") == [("6", 90), ("7", 38)]
    place = {"source": "attempts.jsonl", "line": 1}
    assert found == FULL | {"event": "accepted", "t": EPOCH + 2.25, "attempt_id": "a1"} | place


def test_an_event_is_of_an_attempt_unless_it_says_otherwise(tmp_path: Path) -> None:
    found = only(read(tmp_path, attempt("dispatched", "a1")))
    assert found["level"] == "attempt"
    known = {name for name, value in found.items() if value is not None}
    assert known == {"event", "t", "level", "attempt_id", "source", "line"}


@pytest.mark.parametrize(("written", "text"), [(7, "7"), (7.0, "7"), (10**30, str(10**30)), ("07", "07"), (-1, "-1")])
def test_ids_may_be_numbers_and_are_text(tmp_path: Path, written: object, text: str) -> None:
    fields = dict.fromkeys(["attempt_id", "run", "group_id", "sample_id", "policy", "retry_of"], written)
    found = only(read(tmp_path, {"event": "completed", "t": EPOCH} | fields))
    assert {found[name] for name in fields} == {text}


@pytest.mark.parametrize("t", [0, 2**53 + 1, 2**70, 10**300])
def test_an_instant_may_be_any_number_that_json_can_write(tmp_path: Path, t: int) -> None:
    assert only(read(tmp_path, {"event": "completed", "t": t, "attempt_id": "a"}))["t"] == float(t)


def test_fields_that_are_not_listed_are_accepted_and_not_kept(tmp_path: Path) -> None:
    found = only(read(tmp_path, attempt("completed", "a", prompt="PRIVATE", turn=1, parent_session_id="p")))
    assert set(found) == set(ATTEMPT_EVENTS.names)


def test_an_event_without_the_schemas_name_is_known_by_event_and_attempt(tmp_path: Path) -> None:
    file = tmp_path / "whatever.jsonl"
    file.write_text('{"event": "dispatched", "t": 1, "attempt_id": "a"}\n', encoding="utf-8")
    assert open_capture(file).sources[0].format == "rlserve.attempt.v1"


def test_another_version_of_the_schema_is_refused_not_passed_over(tmp_path: Path) -> None:
    found = read(tmp_path, attempt("dispatched", "a", schema="rlserve.attempt.v2"))
    (finding,) = found.findings
    assert (finding.severity, finding.line) == ("error", 1)
    assert "schema must be 'rlserve.attempt.v1', is 'rlserve.attempt.v2'" in finding.message


@pytest.mark.parametrize("event", ["{}", "[]", "5", "null"])
@pytest.mark.parametrize("more", ["", ', "attempt_id": "a"'])
def test_an_event_that_is_no_word_is_nobodys_format(tmp_path: Path, event: str, more: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(f'{{"event": {event}{more}}}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="no file that this version can read"):
        open_capture(file)


@pytest.mark.parametrize("name", ["attempts.7.jsonl", "control.7.jsonl"])
def test_a_file_of_a_process_that_died_before_its_first_event_is_reported_as_that(tmp_path: Path, name: str) -> None:
    opened(tmp_path, attempts=[attempt("dispatched", "a")], control=[control("pause", 1)])
    (tmp_path / name).touch()
    (finding,) = open_capture(tmp_path).findings
    assert (finding.severity, finding.path) == ("error", name)
    assert "its process ended before it wrote one" in finding.message
