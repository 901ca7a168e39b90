"""From what a user types to captures and their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import attempt, jsonl, members, request_end, write

from pytest_rlserve.checks import run_check
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import open_capture
from pytest_rlserve.readers.discover import captures_in

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [request_end("r1")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "run-1", rows=ROWS, attempts=[attempt("dispatched", "a")])


def test_a_directory_a_file_and_a_pattern_name_a_capture(folder: Path) -> None:
    assert captures_in(folder) == [str(folder)]
    assert open_capture(folder).name == "run-1"
    one = open_capture(folder / "request-trace.jsonl")
    assert (one.name, one.attempt_events.num_rows) == ("request-trace", 0)
    several = open_capture(folder / "*.jsonl")
    assert (several.name, several.requests.num_rows, several.attempt_events.num_rows) == ("run-1", 1, 1)


def test_a_folder_of_captures_counts_as_several(folder: Path) -> None:
    write(folder.parent / "run-2", rows=ROWS)
    (folder.parent / "notes").mkdir()
    (folder.parent / "notes" / "why.md").write_text("about one run\n", encoding="utf-8")
    (folder.parent / "README.md").write_text("about these runs\n", encoding="utf-8")
    assert captures_in(folder.parent) == [str(folder.parent / name) for name in ("run-1", "run-2")]


def test_an_empty_folder_beside_captures_is_a_capture_that_did_not_arrive(folder: Path) -> None:
    (folder.parent / "run-2").mkdir()
    with pytest.raises(UsageError, match="run-2 is empty, beside captures"):
        captures_in(folder.parent)


def test_a_capture_may_keep_files_in_folders(folder: Path) -> None:
    (folder / "trace").mkdir()
    (folder / "request-trace.jsonl").rename(folder / "trace" / "request-trace.jsonl")
    found = open_capture(folder)
    assert [source.path for source in found.sources] == ["attempts.jsonl", "trace/request-trace.jsonl"]


def test_hidden_files_are_passed_over(folder: Path) -> None:
    (folder / ".request-trace.jsonl.swp.jsonl").write_bytes(jsonl(ROWS))
    (folder / ".cache").mkdir()
    (folder / ".cache" / "request-trace.000000.jsonl").write_bytes(jsonl(ROWS))
    assert len(open_capture(folder).sources) == 2


def test_files_of_no_known_format_are_listed_with_the_reason(folder: Path) -> None:
    (folder / "frontend.log").write_text("started\n", encoding="utf-8")
    (folder / "other.jsonl").write_text('{"msg": "hello"}\n', encoding="utf-8")
    assert open_capture(folder).not_read == (("frontend.log", "unknown format"), ("other.jsonl", "unknown format"))


def test_what_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file or directory"):
        captures_in(tmp_path / "gone")
    with pytest.raises(UsageError, match="no file matches"):
        captures_in(tmp_path / "*.jsonl")


@pytest.mark.parametrize("name", ["empty", "empty/x.jsonl"])
def test_nothing_at_all_is_wrong_use_that_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "x.jsonl").touch()
    with pytest.raises(UsageError, match="is empty: no request_end rows"):
        open_capture(tmp_path / name)


def test_a_folder_without_a_known_file_says_what_it_saw_and_what_it_knows(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n", encoding="utf-8")
    with pytest.raises(UsageError) as error:
        open_capture(tmp_path)
    assert "notes.txt (unknown format)" in str(error.value)
    assert "dynamo.request.trace.v1" in str(error.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"", None), (b'{"event": "dispa', 1), (b"torn\n", 1), (members(b""), None), (members(b'{"event"')[:-5], None)],
    ids=["empty", "torn object", "no JSON", "gzip of nothing", "cut gzip"],
)
def test_records_that_cannot_be_read_break_the_evidence_and_hide_nothing_else(
    folder: Path, content: bytes, line: int | None
) -> None:
    (folder / "attempts.jsonl").write_bytes(content)
    found = open_capture(folder)
    assert found.requests.num_rows == 1
    about = [finding for finding in found.findings if finding.path == "attempts.jsonl"]
    assert {finding.severity for finding in about} == {"error"}
    assert line in {finding.line for finding in about}
    assert run_check(found, "shards_are_whole").status == "error"


def test_the_first_row_that_can_be_read_tells_the_format(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b"\n{torn\n" + jsonl([attempt("dispatched", "a")]))
    found = open_capture(file)
    assert found.sources[0].format == "rlserve.attempt.v1"
    assert [finding.line for finding in found.findings] == [2]


def test_the_digest_of_a_capture_is_its_content_whatever_the_files_are_called(folder: Path) -> None:
    first = open_capture(folder).digest
    (folder / "attempts.jsonl").rename(folder / "records.jsonl")
    assert open_capture(folder).digest == first
    (folder / "records.jsonl").write_bytes(b"\n" + (folder / "records.jsonl").read_bytes())
    assert open_capture(folder).digest != first
