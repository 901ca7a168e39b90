"""The inventory of trace shards: gaps, doubles and strangers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import jsonl, members, request_end

from pytest_rlserve.readers import open_capture
from pytest_rlserve.readers.shards import Shard, inventory, parse

if TYPE_CHECKING:
    from pathlib import Path


def found(*labels: str, expected: int | None = None, empty: tuple[str, ...] = ()) -> tuple[set[str], list[str]]:
    foreign, findings = inventory({label: int(label not in empty) for label in labels}, expected)
    return set(foreign), [str(finding) for finding in findings]


@pytest.mark.parametrize(
    ("label", "shard"),
    [
        ("request-trace.000003.jsonl.gz", Shard("request-trace.000003.jsonl.gz", "request-trace", 3)),
        ("request-trace.1000000.jsonl", Shard("request-trace.1000000.jsonl", "request-trace", 1_000_000)),
        ("a/trace.jsonl", Shard("a/trace.jsonl", "a/trace", None)),
        ("trace.v2.000000.ndjson", Shard("trace.v2.000000.ndjson", "trace.v2", 0)),
        ("trace.12.jsonl", Shard("trace.12.jsonl", "trace.12", None)),
        ("trace.log", Shard("trace.log", "trace.log", None)),
    ],
)
def test_a_shards_name_is_taken_apart(label: str, shard: Shard) -> None:
    assert parse(label) == shard


def test_all_segments_from_zero_on_are_whole() -> None:
    assert found("t.000001.jsonl.gz", "t.000000.jsonl.gz", "t.000002.jsonl") == (set(), [])


def test_a_missing_segment_is_named() -> None:
    assert found("t.000000.jsonl", "t.000002.jsonl") == (set(), ["segment 000001 of 't' is missing: 000001"])


def test_the_first_segments_are_missed_too() -> None:
    (text,) = found("t.000002.jsonl")[1]
    assert text == "2 segments of 't' are missing: 000000, 000001"


def test_a_date_in_the_place_of_the_number_is_a_gap_and_does_not_fill_the_memory() -> None:
    (text,) = found("t.20260821123456.jsonl")[1]
    assert text.startswith("20,260,821,123,456 segments of 't' are missing: 000000, 000001")


@pytest.mark.parametrize("pair", [("t.jsonl", "t.jsonl.gz"), ("t.000000.jsonl", "t.000000.jsonl.gz")])
def test_a_segment_that_is_there_twice_is_an_error(pair: tuple[str, str]) -> None:
    _, findings = inventory(dict.fromkeys(pair, 1), None)
    assert [finding.severity for finding in findings] == ["error"]
    assert all(name in findings[0].message for name in pair)


def test_the_prefix_with_most_shards_stays_and_the_other_is_left_out() -> None:
    foreign, texts = found("t.000000.jsonl", "t.000001.jsonl", "canary.000000.jsonl")
    assert foreign == {"canary.000000.jsonl"}
    assert "a second prefix is present: 'canary' beside 't'" in texts[0]


def test_a_file_without_a_row_is_no_producer_and_is_told() -> None:
    foreign, texts = found("attempts.jsonl", "trace.jsonl", empty=("attempts.jsonl",))
    assert foreign == {"attempts.jsonl"}
    assert texts == ["attempts.jsonl: no row could be read from it, so nothing says what it is"]


def test_a_promise_of_shards_is_held_against_what_is_there() -> None:
    assert found("t.000000.jsonl", "t.000001.jsonl", expected=2) == (set(), [])
    assert found("t.000000.jsonl", expected=2)[1] == ["the manifest promises 2 shards, 1 is there"]


def test_without_a_trace_there_is_nothing_to_take_stock_of() -> None:
    assert found() == (set(), [])


def test_rows_of_a_strangers_shards_are_left_out_of_the_capture(tmp_path: Path) -> None:
    for name in ("t.000000", "t.000001", "canary.000000"):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(members(jsonl([request_end(name)])))
    capture = open_capture(tmp_path)
    assert capture.requests["request_id"].to_pylist() == ["t.000000", "t.000001"]
    assert capture.not_read == (("canary.000000.jsonl.gz", "another producer's shard"),)
