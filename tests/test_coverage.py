"""What could be observed is said for each source and each check, for how many of how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hand_made import completed, opened, request, request_end, write

from pytest_rlserve import cli
from pytest_rlserve.checks import run_check
from pytest_rlserve.gate.coverage import coverage
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_each_question_is_answered_for_how_many_of_how_many(tmp_path: Path) -> None:
    events = [*completed("a", 0, 5, policy=1), *completed("b", 0, 5, "rejected"), *completed("c", 0, 5)[:2]]
    events += [*completed("d", 0, 5)[:1], *completed("e", 0, 5)]
    for name in ("a", "b"):
        events += [request("dispatched", name, 1, of=name)]
        events += [request("completed", name, 2, of=name, **({"cached_tokens": 3} if name == "a" else {}))]
    rows = [request_end("a", ttft_ms=5.0), request_end("x")]
    found = {
        (one.question, one.of): (one.observed, one.total)
        for one in coverage(opened(tmp_path, attempts=events, rows=rows))
    }
    assert found == {
        ("how did attempts end", "recorded attempts"): (4, 5),
        ("what did the trainer decide", "completed attempts"): (3, 4),
        ("which policy version generated", "accepted attempts"): (1, 2),
        ("which attempt was served", "rows"): (1, 2),
        ("was every completed request traced", "traceable requests"): (1, 2),
        ("how was latency made up", "rows"): (1, 2),
        ("what did the engine reuse", "completed requests"): (1, 2),
        ("which weights did each worker have", "workers that served"): (0, 0),
    }


def test_the_command_says_what_each_source_tells_and_leaves_out_what_there_is_none_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "c", attempts=completed("a", 0, 5))
    cli.main(["check", str(tmp_path / "c")])
    head = capsys.readouterr().out.split("requests_are_unique")[0].splitlines()
    assert head[0] == "c"
    assert head[1].startswith(
        "  read attempts.jsonl: 3 rows of rlserve.attempt.v1; tells dispatched, completed, canceled,"
    )
    assert head[-1] == "  what did the engine reuse: 0 of 1 completed attempts"
    assert head[2:-1] == [
        "  how did attempts end: 1 of 1 recorded attempts",
        "  what did the trainer decide: 1 of 1 completed attempts",
        "  which policy version generated: 0 of 1 accepted attempts",
    ]


def test_a_check_that_cannot_be_told_says_of_how_many(tmp_path: Path) -> None:
    (tmp_path / "3.jsonl").write_text('{"input": "p", "output": "o", "score": 1.0, "step": 3, "uid": "u_0_0"}\n')
    message = run_check(open_capture(tmp_path), "attempts_reconcile").message()
    assert message.startswith("attempts_reconcile cannot be told for ")
    assert message.endswith("(0 of 1 dispatched attempts)")
