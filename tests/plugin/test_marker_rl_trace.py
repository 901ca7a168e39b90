"""@pytest.mark.rl_trace(path): a capture of a test's own, relative to its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import both_ways, ids, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import Run, Write


def test_of(path: str, body: str = "assert rl_trace.name == 'one'") -> str:
    return f"import pytest\n\n@pytest.mark.rl_trace({path})\ndef test_own(rl_trace): {body}\n"


test_of.__test__ = False  # type: ignore[attr-defined]


@both_ways
def test_the_capture_is_found_beside_the_test_file(
    run: Run, pytester: pytest.Pytester, capture: Write, workers: tuple[str, ...]
) -> None:
    capture("tests/data/one")
    (pytester.path / "tests" / "test_own.py").write_text(test_of("'data/one'"))
    result = run(*workers)
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(result) == {"passed": 1}


def test_the_id_names_the_capture(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own=test_of("'data/one'"))
    assert ids(run("--collect-only", "-q")) == ["test_own.py::test_own[one]"]


def test_it_wins_over_the_captures_of_the_run(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("one")
    capture("two")
    pytester.makepyfile(test_own=test_of("'one'") + "\ndef test_other(rl_trace): assert rl_trace.name == 'two'")
    assert outcomes(run("--rl-trace=two", "--no-rl-suite")) == {"passed": 2}


def test_a_path_object_and_an_absolute_path_will_do(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    one = capture("one")
    pytester.makepyfile(test_own=test_of(f"__import__('pathlib').Path({str(one)!r})"))
    assert outcomes(run()) == {"passed": 1}


def test_a_path_that_is_not_there_is_an_error_without_a_traceback(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own=test_of("'nowhere'"))
    result = run("-q")
    assert outcomes(result) == {"errors": 1}
    assert f"there is no file or directory {pytester.path / 'nowhere'}" in result.outlines
    assert "fixtures.py" not in result.stdout.str()


def test_broken_evidence_is_an_error_that_says_where(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("torn", torn=True)
    pytester.makepyfile(test_own=test_of("'torn'", "pass"))
    result = run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result) == {"errors": 1}
    result.stdout.fnmatch_lines(["not judged: rows_fit_schema *", "  request-trace.jsonl:40: *"])


@pytest.mark.parametrize("args", ["", "path='one'", "'one', 'two'", "3"])
def test_a_marker_that_names_no_path_is_told_in_one_line(run: Run, pytester: pytest.Pytester, args: str) -> None:
    pytester.makepyfile(test_own=test_of(args))
    result = run("-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "test_own.py::test_own: the marker rl_trace takes one path" in result.outlines
    assert "plugin.py" not in result.stdout.str()


def test_it_makes_no_capture_of_the_run(run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path) -> None:
    """Once a marked test has run, tests without a capture must err as before."""
    capture("one")
    pytester.makepyfile(
        test_own=test_of("'one'")
        + "\ndef test_captures(rl_captures): assert all(one.has('requests') for one in rl_captures)"
        + "\ndef test_baseline(rl_baseline): rl_baseline.check('ttft')"
    )
    assert outcomes(run()) == {"passed": 1, "errors": 2}
