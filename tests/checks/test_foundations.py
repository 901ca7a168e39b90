"""Question 1: whole files, valid rows, every request once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import attempt, jsonl, members, opened, request_end, write

from pytest_rlserve.checks import run_check
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


def test_rows_that_fit_pass_and_are_counted(tmp_path: Path) -> None:
    rows = [request_end("r1"), request_end("r2")]
    found = run_check(opened(tmp_path / "c", rows=rows, attempts=[attempt("dispatched", "a")]), "rows_fit_schema")
    assert (found.status, found.observed, found.of) == ("pass", 3, 3)


@pytest.mark.parametrize("bad", [1, 50, 51, 70])
def test_each_refused_line_counts_however_many_have_a_finding_of_their_own(tmp_path: Path, bad: int) -> None:
    file = tmp_path / "request-trace.jsonl"
    file.write_bytes(jsonl([request_end("r1")]) + b'{"a":1}\n' * bad)
    found = run_check(open_capture(file), "rows_fit_schema")
    assert (found.status, found.observed, found.of) == ("error", 1, 1 + bad)


def test_whole_files_pass_and_are_counted(tmp_path: Path) -> None:
    found = run_check(
        opened(tmp_path / "c", rows=[request_end("r1")], attempts=[attempt("dispatched", "a")]), "shards_are_whole"
    )
    assert (found.status, found.observed, found.of, found.noun) == ("pass", 2, 2, "files")


def test_a_cut_file_is_an_error_and_says_how_much_was_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", attempts=[attempt("dispatched", "a")])
    content = members(jsonl([request_end("r1"), request_end("r2")]), jsonl([request_end("r3")]))
    (folder / "request-trace.000000.jsonl.gz").write_bytes(content[:-5])
    found = run_check(open_capture(folder), "shards_are_whole")
    assert (found.status, found.observed, found.of) == ("error", 1, 2)
    assert "request-trace.000000.jsonl.gz" in found.message()
    assert "3 whole rows were read before that" in found.message()


def test_a_gap_is_a_failure_since_what_is_there_is_sound(tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / f"t.00000{number}.jsonl").write_bytes(jsonl([request_end(f"r{number}")]))
    assert run_check(open_capture(tmp_path), "shards_are_whole").status == "fail"


def test_distinct_requests_are_unique(tmp_path: Path) -> None:
    found = run_check(opened(tmp_path / "c", rows=[request_end("r1"), request_end("r2")]), "requests_are_unique")
    assert (found.status, found.observed, found.of) == ("pass", 2, 2)


def test_a_request_that_is_there_twice_names_both_places_and_what_differs(tmp_path: Path) -> None:
    rows = [request_end("r1", output_tokens=20), request_end("r2"), request_end("r1", output_tokens=999)]
    found = run_check(opened(tmp_path / "c", rows=rows), "requests_are_unique")
    assert (found.status, found.observed, found.of) == ("error", 1, 2)
    (text,) = [finding.message for finding in found.findings]
    assert "request_id r1 appears twice" in text
    assert "request-trace.jsonl:1 and request-trace.jsonl:3" in text
    assert "output_tokens 20 and 999" in text


def test_a_copied_row_is_called_a_copy(tmp_path: Path) -> None:
    found = run_check(opened(tmp_path / "c", rows=[request_end("r1"), request_end("r1")]), "requests_are_unique")
    assert "with the same values" in found.findings[0].message


def test_one_row_that_differs_between_two_copies_is_seen(tmp_path: Path) -> None:
    rows = [request_end("r1"), request_end("r1", output_tokens=999), request_end("r1")]
    found = run_check(opened(tmp_path / "c", rows=rows), "requests_are_unique")
    assert "appears 3 times" in found.findings[0].message
    assert "output_tokens 10 and 999" in found.findings[0].message
    assert "with the same values" not in found.findings[0].message


def test_rows_that_differ_in_their_hashes_alone_say_so_without_listing_them(tmp_path: Path) -> None:
    rows = [request_end("r1", replay={"input_sequence_hashes": [number] * 999}) for number in (777, 778)]
    found = run_check(opened(tmp_path / "c", rows=rows), "requests_are_unique")
    assert "input_sequence_hashes" in found.findings[0].message
    assert "777" not in found.findings[0].message


def test_many_copies_do_not_make_a_message_of_pages(tmp_path: Path) -> None:
    found = run_check(opened(tmp_path / "c", rows=[request_end("r1")] * 500), "requests_are_unique")
    assert found.findings[0].count == 499
    assert len(found.findings[0].message) < 400
