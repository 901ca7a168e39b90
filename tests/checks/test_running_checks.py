"""What a check's findings make of its status, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import completed, opened, request_end

from pytest_rlserve.capture import Capture, Finding
from pytest_rlserve.checks import CHECKS, CheckResult, default_checks, run_check, run_checks
from pytest_rlserve.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Severity


def noticed(*severities: Severity, check: str = "rows_fit_schema") -> CheckResult:
    findings = tuple(Finding(message=one, severity=one, check=check, path="f", line=1) for one in severities)
    return run_check(Capture(name="c", findings=findings), check)


@pytest.mark.parametrize(
    ("severities", "status"),
    [
        (["error"], "error"),
        (["failure", "error", "note"], "error"),
        (["failure", "warning"], "fail"),
    ],
)
def test_the_worst_finding_gives_the_status(severities: list[Severity], status: str) -> None:
    found = noticed(*severities)
    assert found.status == status
    assert {finding.severity for finding in found.problems} <= {"error", "failure"}


def test_warnings_and_notes_do_not_fail_a_check(tmp_path: Path) -> None:
    capture = opened(tmp_path / "c", rows=[request_end("r1")])
    note = Finding(message="m", severity="warning", check="rows_fit_schema")
    found = run_check(capture.replace(findings=(note,)), "rows_fit_schema")
    assert (found.status, found.problems, len(found.findings)) == ("pass", [], 1)


@pytest.mark.parametrize("name", list(CHECKS))
def test_no_check_passes_on_nothing(name: str) -> None:
    found = run_check(Capture(name="c"), name)
    assert found.status == "inconclusive"
    assert found.why
    assert found.why in found.message()


def test_a_message_shows_ten_findings_and_counts_the_others() -> None:
    lines = noticed(*["failure"] * 12).message().splitlines()
    assert len(lines) == 12
    assert lines[1] == "  f:1: failure"
    assert lines[-1] == "  +2 more findings"


def test_a_finding_shows_five_ids_and_counts_the_others() -> None:
    finding = Finding(message="m", severity="note", check="c", ids=tuple("abcdefg"))
    assert str(finding) == "m: a, b, c, d, e +2 more"


def test_the_default_checks_run_foundations_first(tmp_path: Path) -> None:
    names = default_checks()
    questions = [CHECKS[name].question for name in names]
    assert questions == sorted(questions)
    assert {"requests_are_unique", "rows_fit_schema", "shards_are_whole"} <= set(names[: questions.count(1)])
    capture = opened(
        tmp_path / "c", rows=[request_end("r1", session="a")], attempts=completed("a", 0, 1, session_id="a")
    )
    results = run_checks(capture)
    assert [result.name for result in results] == names
    assert {result.status for result in results} <= {"pass", "inconclusive"}
    assert {result.status for result in results if CHECKS[result.name].foundation} == {"pass"}
    assert "replay_ready" not in names


def test_a_replay_is_not_asked_for_attempts(tmp_path: Path) -> None:
    capture = opened(tmp_path / "c", rows=[request_end("r1")], manifest={"kind": "replay"})
    names = {result.name for result in run_checks(capture)}
    assert names >= {"rows_fit_schema", "shards_are_whole", "requests_are_unique"}
    assert not names & {"attempts_reconcile", "requests_are_joined"}


def test_an_unknown_check_is_wrong_use_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'shards_are_whole'"):
        run_check(Capture(name="c"), "shards_are_hole")


@pytest.mark.parametrize("name", list(CHECKS))
def test_a_check_says_what_it_asks(name: str) -> None:
    found = CHECKS[name]
    assert found.question in (1, 2, 3)
    assert found.foundation is (found.question == 1)
    assert len(found.doc) > 40
    assert set(found.kinds) <= {"rollout", "replay"}
