"""Question 3: the rows that Dynamo's replay would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, opened, request_end

from pytest_rlserve.checks import CheckResult, run_check
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


def row(name: str = "r1", length: int = 96, blocks: int = 3, size: int = 32, **fields: Any) -> Record:
    replay = {"trace_block_size": size, "input_length": length, "input_sequence_hashes": list(range(blocks))}
    return request_end(name, **{"replay": replay, **fields})


def judged(folder: Path, *rows: Record) -> CheckResult:
    return run_check(opened(folder / "c", rows=rows), "replay_ready")


@pytest.mark.parametrize(("length", "blocks"), [(0, 0), (1, 1), (32, 1), (33, 2), (96, 3), (97, 4)])
def test_a_prompt_has_as_many_hashes_as_blocks_whole_or_begun(tmp_path: Path, length: int, blocks: int) -> None:
    found = judged(tmp_path, row(length=length, blocks=blocks))
    assert (found.status, found.observed, found.of) == ("pass", 1, 1)
    for wrong in (blocks + 1, blocks - 1):
        if wrong >= 0:
            refused = judged(tmp_path, row(length=length, blocks=wrong))
            assert refused.status == "fail"
            assert f"{blocks} hashes needed, {wrong} given" in refused.message()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"output_tokens": None}, "output_tokens missing"),
        ({"request_received_ms": None}, "request_received_ms missing"),
        ({"output_tokens": None, "replay": None}, "output_tokens and replay missing"),
        ({"replay": {"input_length": 5}}, "trace_block_size missing"),
        ({"replay": {"trace_block_size": 0, "input_length": 5}}, "trace_block_size is 0"),
        ({"replay": {"trace_block_size": 32, "input_length": 5}}, "input_sequence_hashes missing"),
        ({"replay": {"trace_block_size": 32, "input_sequence_hashes": [1]}}, "input_length missing"),
    ],
)
def test_a_row_that_lacks_something_is_named_with_it(tmp_path: Path, fields: Record, reason: str) -> None:
    found = judged(tmp_path, row("good"), row("bad", **fields))
    (finding,) = found.findings
    assert reason in finding.message
    assert (finding.line, finding.ids) == (2, ("bad",))
    assert (found.observed, found.of) == (1, 2)


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (row("r2", session="s"), "with and without a session are mixed; without: r1"),
        (row("r2", size=16, blocks=6), "block sizes 16, 32 are mixed; not 16: r1"),
    ],
)
def test_rows_that_do_not_fit_together_are_named_as_a_set(tmp_path: Path, second: Record, text: str) -> None:
    found = judged(tmp_path, row("r1"), second)
    assert (found.status, found.observed, found.of) == ("fail", 1, 2)
    assert text in found.message()


def test_a_parent_session_needs_a_row_of_its_own(tmp_path: Path) -> None:
    child, parent = row("r1", session="child"), row("r2", session="parent")
    child["agent_context"]["parent_session_id"] = "parent"
    assert judged(tmp_path, child, parent).status == "pass"
    found = judged(tmp_path, child)
    assert "the parent session has no row of its own: r1" in found.message()


def test_refused_lines_of_the_trace_are_refused_by_the_replay_and_those_of_other_files_are_not(
    tmp_path: Path,
) -> None:
    good = {
        "rows": [row("r1"), row("r2") | {"request": None}],
        "attempts": [attempt("dispatched", "a"), {"event": "x"}],
    }
    found = run_check(opened(tmp_path / "c", **good), "replay_ready")
    assert [finding.path for finding in found.findings] == ["request-trace.jsonl"]
    assert (found.status, found.observed, found.of) == ("fail", 1, 2)
    assert len(open_capture(tmp_path / "c").findings) == 2
