"""Question 2, second half: two shares are judged, and equal counts are never taken for a join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, completed, jsonl, members, opened, request_end, write

from pytest_rlserve import assert_joined
from pytest_rlserve.checks import CheckResult, Evidence, run_check
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

NAME = "requests_are_joined"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def attempts(count: int) -> list[Record]:
    return [
        event | {"x_request_id": f"x{number}"} for number in range(count) for event in completed(f"a{number}", 0, 5)
    ]


def rows(*numbers: int, **fields: Any) -> list[Record]:
    return [request_end(f"r{number}", **{"x_request_id": f"x{number}", **fields}) for number in numbers]


def judged(folder: Path, evidence: Evidence | None = None, **parts: Any) -> CheckResult:
    return run_check(opened(folder, **parts), NAME, evidence)


def test_rows_and_attempts_that_match_pass(folder: Path) -> None:
    found = judged(folder, attempts=attempts(3), rows=rows(0, 1, 2))
    assert (found.status, found.observed, found.of, found.findings) == ("pass", 3, 3, ())


def test_no_rows_or_no_attempts_is_inconclusive(folder: Path) -> None:
    assert "no served requests" in str(judged(folder, attempts=attempts(1)).why)
    assert "no attempt records" in str(judged(folder.with_name("d"), rows=rows(0)).why)


def test_equal_counts_without_a_common_key_are_inconclusive_and_say_what_to_send(folder: Path) -> None:
    found = judged(folder, attempts=attempts(4), rows=rows(0, 1, 2, 3, x_request_id=None))
    assert (found.status, found.observed, found.of) == ("inconclusive", 0, 4)
    assert "joined 0 of 4 rows" in str(found.why)
    assert "X-Dynamo-Session-ID" in str(found.why)


def test_a_row_of_no_attempt_fails_and_is_named(folder: Path) -> None:
    found = judged(folder, attempts=attempts(1), rows=rows(0, 7))
    assert (found.status, found.observed, found.of) == ("fail", 1, 2)
    (finding,) = found.findings
    assert "1 of 2 rows belong to no attempt: foreign row (1: carries ids that no attempt knows" in finding.message
    assert finding.ids == ("r7",)


@pytest.mark.parametrize(("needed", "status"), [(0.5, "pass"), (0.51, "fail")])
def test_the_policy_says_how_many_rows_must_be_joined(folder: Path, needed: float, status: str) -> None:
    found = judged(folder, Evidence(rows_joined=needed), attempts=attempts(1), rows=rows(0, 7))
    assert found.status == status


@pytest.mark.parametrize(
    ("needed", "shares"),
    [(0.9, "50.0 % joined, 90.0 % needed"), (0.50001, "50.000 % joined, 50.001 % needed")],
)
def test_a_share_that_misses_its_limit_by_little_does_not_read_like_it(
    folder: Path, needed: float, shares: str
) -> None:
    found = judged(folder, Evidence(rows_joined=needed), attempts=attempts(1), rows=rows(0, 7))
    assert shares in found.message()


@pytest.mark.parametrize(("needed", "status"), [(0.75, "pass"), (0.76, "fail")])
def test_the_policy_says_how_many_completed_requests_must_have_their_row(
    folder: Path, needed: float, status: str
) -> None:
    found = judged(folder, Evidence(traceable_served=needed), attempts=attempts(4), rows=rows(0, 1, 2))
    assert (found.status, found.observed, found.of, found.noun) == (status, 3, 4, "traceable requests")
    (finding,) = found.findings
    assert "lost row" in finding.message
    assert "3 of 4 traceable ones have a row" in finding.message
    assert finding.ids == ("a3",)


def test_what_dynamo_never_traces_is_a_note_and_costs_nothing(folder: Path) -> None:
    several = [event | {"n": 4, "x_request_id": "many"} for event in completed("many", 0, 5)]
    found = judged(folder, attempts=attempts(1) + several, rows=rows(0))
    assert found.status == "pass"
    assert [finding.severity for finding in found.findings] == ["note"]
    assert "n>1" in found.findings[0].message


def test_a_shared_key_is_told_as_ambiguous_not_as_lost(folder: Path) -> None:
    twins = [event | {"x_request_id": "x0"} for event in completed("twin", 0, 5)]
    found = judged(folder, attempts=attempts(1) + twins, rows=rows(0))
    assert found.status == "fail"
    assert "several attempts share its key" in found.message()
    assert "ambiguous key" in found.message()
    assert "lost row" not in found.message()


def test_rows_lost_beside_a_truncated_shard_may_lie_in_it(folder: Path) -> None:
    write(folder, attempts=attempts(2))
    content = members(jsonl(rows(0)), jsonl(rows(1)))
    (folder / "request-trace.000000.jsonl.gz").write_bytes(content[:-20])
    found = run_check(open_capture(folder), NAME)
    assert found.status == "fail"
    assert "they may lie in the truncated request-trace.000000.jsonl.gz" in found.message()


@pytest.mark.parametrize(("needed", "status"), [(0.25, "pass"), (0.26, "fail")])
def test_the_policy_says_how_much_of_what_completed_the_rows_must_show(
    folder: Path, needed: float, status: str
) -> None:
    several = [event | {"n": 4, "x_request_id": name} for name in ("b", "c", "d") for event in completed(name, 0, 5)]
    found = judged(folder, Evidence(completed_served=needed), attempts=attempts(1) + several, rows=rows(0))
    assert found.status == status
    if status == "fail":
        assert "3 of 4 completed attempts have no serving row: n>1 (3)" in found.message()
        assert "(25.0 % have a row, 26.0 % needed)" in found.message()
        capture = open_capture(folder)
        assert_joined(capture, completed=0.25)
        with pytest.raises(AssertionError, match="have no serving row"):
            assert_joined(capture)


VERL = {"input": "p", "output": "o", "gts": None, "score": 1.0, "step": 3}


@pytest.mark.parametrize(
    ("name", "records", "said"),
    [
        ("3.jsonl", [VERL | {"uid": f"u_{n}_0"} for n in range(2)], "session header of its Dynamo recipe"),
        (
            "rollout_trace.jsonl",
            [{"t": 1_790_000_000.0, "run": "r", "event": "trace_opened", "pid": 1}],
            "X-Dynamo-Session-ID <group>_g<generation>[-a<attempt>]",
        ),
    ],
    ids=["verl", "nemo_rl"],
)
def test_what_cannot_be_joined_names_the_header_that_its_framework_would_have_to_send(
    folder: Path, name: str, records: list[Record], said: str
) -> None:
    write(folder, rows=rows(0, 1, x_request_id=None))
    (folder / name).write_bytes(jsonl(records))
    found = run_check(open_capture(folder), NAME)
    assert (found.status, found.observed) == ("inconclusive", 0)
    assert said in str(found.why)
    assert "X-Dynamo-Session-ID" in str(found.why)


def test_an_engines_own_request_id_is_no_key_that_dynamo_shares(folder: Path) -> None:
    events = [event | {"response_id": "rid-1", "level": "request"} for event in completed("a", 0, 5)[:2]]
    assert judged(folder, attempts=events, rows=rows(0, x_request_id=None)).status == "inconclusive"
    events = [event | {"response_id": "chatcmpl-1"} for event in events]
    assert judged(folder.with_name("d"), attempts=events, rows=rows(0, x_request_id=None)).status == "fail"
