"""Both sides count the same tokens, and a mismatch names both numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hand_made import Record, attempt, completed, opened, request, request_end

from pytest_rlserve.checks import run_check

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.checks import CheckResult


def answered(name: str, outcome: str = "completed", of: str = "a", **usage: int) -> list[Record]:
    return [request("dispatched", name, 0, of=of), request(outcome, name, 2, of=of, **usage)]


def row(name: str, prompt: int | None = 100, output: int | None = 10, **fields: Any) -> Record:
    return request_end(name, 0, 1, session="s", input_tokens=prompt, output_tokens=output, **fields)


def judged(folder: Path, events: list[Record], rows: list[Record]) -> CheckResult:
    return run_check(opened(folder, attempts=events, rows=rows), "tokens_agree")


def test_equal_counts_pass(tmp_path: Path) -> None:
    result = judged(tmp_path, answered("x", prompt_tokens=100, output_tokens=10), [row("x")])
    assert (result.status, result.observed, result.of) == ("pass", 1, 1)


def test_a_mismatch_names_both_numbers_and_which_is_whose(tmp_path: Path) -> None:
    """Dynamo once left out the tokens of the last worker after a migration: 2 counted, 5 delivered."""
    result = judged(tmp_path, answered("x", prompt_tokens=100, output_tokens=5), [row("x", output=2)])
    assert (result.status, result.observed, result.of) == ("fail", 0, 1)
    (finding,) = result.problems
    assert finding.message == "x: 5 output tokens by the framework, 2 by its row"
    assert (finding.path, finding.line, finding.ids) == ("request-trace.jsonl", 1, ("x",))


def test_prompt_and_output_are_told_in_one_finding(tmp_path: Path) -> None:
    result = judged(tmp_path, answered("x", prompt_tokens=1, output_tokens=2), [row("x")])
    assert [finding.message for finding in result.problems] == [
        "x: 1 prompt tokens by the framework, 100 by its row; 2 output tokens by the framework, 10 by its row"
    ]


def test_a_count_that_one_side_does_not_give_is_not_compared(tmp_path: Path) -> None:
    half = judged(tmp_path / "half", answered("x", output_tokens=10), [row("x", prompt=None)])
    assert (half.status, half.of) == ("pass", 1)
    none = judged(tmp_path / "none", answered("x", prompt_tokens=7), [row("x", prompt=None)])
    assert none.status == "inconclusive"
    assert "usage" in (none.why or "")


def test_what_did_not_complete_may_have_been_counted_to_another_moment(tmp_path: Path) -> None:
    result = judged(tmp_path, answered("x", "canceled", output_tokens=3), [row("x", output=9)])
    assert result.status == "inconclusive"


def test_a_request_without_a_row_is_the_joins_affair(tmp_path: Path) -> None:
    events = [*answered("x", output_tokens=10), *answered("y", output_tokens=10)]
    assert judged(tmp_path, events, [row("x")]).status == "pass"


def test_of_a_request_that_was_served_twice_either_row_may_have_answered(tmp_path: Path) -> None:
    twice = [row("r1", output=80, x_request_id="x"), row("r2", output=77, x_request_id="x")]
    assert judged(tmp_path / "one", answered("x", output_tokens=77), twice).status == "pass"
    assert judged(tmp_path / "none", answered("x", output_tokens=60), twice).status == "fail"


def test_an_attempts_sum_is_compared_with_all_its_rows(tmp_path: Path) -> None:
    def events(**usage: int) -> list[Record]:
        first, second, third = completed("a", 0, 5)
        return [first | {"session_id": "s"}, second | usage, third]

    rows = [row("r1", 100, 10, x_request_id=None), row("r2", 120, 20, x_request_id=None)]
    assert judged(tmp_path / "same", events(prompt_tokens=220, output_tokens=30), rows).status == "pass"
    wrong = judged(tmp_path / "wrong", events(output_tokens=31), rows)
    assert [f.message for f in wrong.problems] == ["a: 31 output tokens by the framework, 30 by its rows"]


def test_an_attempt_with_a_row_missing_is_not_accused_of_a_wrong_sum(tmp_path: Path) -> None:
    first, second, third = completed("a", 0, 5)
    events = [first | {"session_id": "s"}, second | {"output_tokens": 30, "turns": 2}, third]
    result = judged(tmp_path, events, [row("r1", output=10, x_request_id=None)])
    assert result.status == "inconclusive"


def test_nobody_trains_on_more_tokens_than_were_served(tmp_path: Path) -> None:
    def trained(**shares: int) -> list[Record]:
        events = completed("a", 0, 5, tokens_by_version={name[1:]: count for name, count in shares.items()})
        return [events[0] | {"session_id": "s"}, *events[1:]]

    rows = [row("r1", output=10, x_request_id=None)]
    assert judged(tmp_path / "fewer", trained(v1=4, v2=5), rows).status == "pass"
    result = judged(tmp_path / "more", trained(v1=9, v2=5), rows)
    assert [f.message for f in result.problems] == ["a: accepted with 14 output tokens, 10 were served for it"]


def test_an_accepted_attempt_has_no_more_output_than_its_requests_were_served(tmp_path: Path) -> None:
    def made(tokens: int) -> list[Record]:
        first, second, third = completed("a", 0, 5)
        return [first, second | {"output_tokens": tokens}, third, *answered("x"), *answered("y")]

    rows = [row("x", output=10), row("y", output=10)]
    assert judged(tmp_path / "fewer", made(19), rows).status == "pass"
    result = judged(tmp_path / "more", made(21), rows)
    assert [f.message for f in result.problems] == ["a: accepted with 21 output tokens, 20 were served for it"]
    assert judged(tmp_path / "lost", made(21), rows[:1]).status == "inconclusive"


def test_many_mismatches_are_named_and_the_rest_is_counted(tmp_path: Path) -> None:
    events = [event for n in range(30) for event in answered(f"x{n}", output_tokens=1)]
    result = judged(tmp_path, events, [row(f"x{n}") for n in range(30)])
    assert (result.observed, result.of, len(result.problems)) == (0, 30, 21)
    assert sum(finding.count for finding in result.problems) == 30


def test_attempts_alone_are_inconclusive(tmp_path: Path) -> None:
    capture = opened(tmp_path / "c", attempts=[attempt("dispatched", "a"), attempt("completed", "a", 1)])
    assert run_check(capture, "tokens_agree").status == "inconclusive"


def test_agreement_on_few_of_many_is_said_to_be_on_few(tmp_path: Path) -> None:
    names = [f"x{number}" for number in range(10)]
    events = [event for name in names for event in answered(name, **({"output_tokens": 10} if name == "x0" else {}))]
    result = judged(tmp_path, events, [row(name) for name in names])
    assert (result.status, result.observed, result.of) == ("pass", 1, 1)
    (warning,) = [finding for finding in result.findings if finding.severity == "warning"]
    assert warning.message == "9 of 10 completed requests with a row tell no token count that the row has too"
