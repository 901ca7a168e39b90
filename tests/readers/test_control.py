"""`rlserve.control.v1`: one worker is one id, however its source writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest
from hand_made import EPOCH, Record, control, opened, request_end

from pytest_rlserve import schema
from pytest_rlserve.readers.control import Event, decimal

if TYPE_CHECKING:
    from pathlib import Path


def only(folder: Path, event: Record) -> dict[str, Any]:
    capture = opened(folder / "capture", control=[event])
    assert capture.findings == ()
    (row,) = capture.control_events.to_pylist()
    return dict(row)


def test_every_listed_field_lands_in_its_column(tmp_path: Path) -> None:
    written = control(
        "verified",
        1.5,
        run=3,
        worker_id=2**64 - 1,
        replaced_worker_id="0xff",
        target_workers=[2**63 + 1, "c000000000000001"],
        update="u1",
        policy_version=8.0,
        step=4,
        in_flight="keep",
        status="timeout",
        reason="slow",
        bytes=2**63 - 1,
    )
    assert only(tmp_path, written) == {
        "event": "verified",
        "t": EPOCH + 1.5,
        "run": "3",
        "worker_id": "18446744073709551615",
        "replaced_worker_id": "255",
        "target_workers": ["9223372036854775809", "13835058055282163713"],
        "update": "u1",
        "policy_version": "8",
        "step": 4,
        "in_flight": "keep",
        "status": "timeout",
        "reason": "slow",
        "bytes": 2**63 - 1,
        "source": "control.jsonl",
        "line": 1,
    }


def test_an_event_without_a_worker_is_about_the_whole_fleet(tmp_path: Path) -> None:
    assert only(tmp_path, control("resume", 0))["worker_id"] is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (13835058055282163713, "13835058055282163713"),
        ("13835058055282163713", "13835058055282163713"),
        ("c000000000000001", "13835058055282163713"),
        ("0xC000000000000001", "13835058055282163713"),
        ("6db3a1e0eed1", "120618282446545"),
        ("0xa", "10"),
        (7.0, "7"),
        ("a", "a"),
        ("face", "face"),
        ("worker-1", "worker-1"),
        ("c0000000000000001", "c0000000000000001"),
    ],
)
def test_hexadecimal_ids_become_decimal_and_names_stay_names(written: str | int, read: str) -> None:
    assert decimal(written) == read


def test_the_reader_knows_the_events_of_the_schema() -> None:
    assert list(get_args(Event)) == schema.load("rlserve.control.v1")["properties"]["event"]["enum"]


def test_a_step_event_without_its_step_is_refused(tmp_path: Path) -> None:
    capture = opened(tmp_path / "capture", control=[control("step_started", 0)])
    assert [str(finding) for finding in capture.findings] == ["control.jsonl:1: step is missing"]


HEX = 0x1234567890123456


@pytest.mark.parametrize(
    ("served", "read"), [(HEX, str(HEX)), (1234567890123456, "1234567890123456"), (7, "1234567890123456")]
)
def test_sixteen_digits_without_a_letter_are_the_worker_that_served(tmp_path: Path, served: int, read: str) -> None:
    events = [
        control("version", 0, worker_id="1234567890123456", target_workers=["1234567890123456", "7"]),
        control("resume", 1, worker_id="0012"),
        control("gate_opened", 2),
    ]
    rows = [request_end("r", worker={"decode_worker_id": served})]
    found = opened(tmp_path / "c", control=events, rows=rows).control_events.to_pylist()
    assert [row["worker_id"] for row in found] == [read, "0012", None]
    assert found[0]["target_workers"] == [read, "7"]
