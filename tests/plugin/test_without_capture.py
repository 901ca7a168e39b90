"""Without a capture: tests that need one err, and everybody else's run is what it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from plugin.projects import both_ways, error_lines, ids, outcomes

if TYPE_CHECKING:
    from plugin.projects import Plain, Run

NO_CAPTURE = (
    "no capture to judge: pass --rl-trace=PATH, set rl_trace in the pytest configuration, "
    'or leave these tests out with -m "not rlserve"'
)
MIXED = """
    def test_of_a_capture(rl_trace): pass
    def test_of_all_captures(rl_captures): pass
    def test_of_the_baseline(rl_baseline): pass
    def test_of_something_else(): pass
"""


@pytest.mark.parametrize(
    ("fixture", "workers"),
    [("rl_trace", ()), ("rl_captures", ()), ("rl_baseline", ()), ("rl_trace", ("-n", "2"))],
    ids=["rl_trace", "rl_captures", "rl_baseline", "rl_trace-xdist"],
)
def test_a_test_that_needs_a_capture_errs_and_is_never_skipped(
    run: Run, pytester: pytest.Pytester, fixture: str, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(f"def test_it({fixture}): pass")
    result = run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result) == {"errors": 1}
    assert NO_CAPTURE in result.outlines


def test_a_parametrized_test_errs_although_there_is_no_capture_to_parametrize_it_with(
    run: Run, pytester: pytest.Pytester
) -> None:
    """An empty parameter list would skip the test, and the run would be green."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("metric", ["ttft", "itl"])
        def test_it(rl_trace, metric): pass
        """
    )
    result = run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result) == {"errors": 2}


def test_the_message_is_the_whole_message(run: Run, pytester: pytest.Pytester, messages: Plain) -> None:
    pytester.makepyfile(test_it="def test_it(rl_trace): pass")
    lines = messages(run("-q", "--no-header")).splitlines()
    assert [line.strip("_ =") for line in lines] == ["ERRORS", "ERROR at setup of test_it[no-trace]", NO_CAPTURE]


@both_ways
def test_not_rlserve_leaves_them_out(run: Run, pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makepyfile(MIXED)
    result = run("-m", "not rlserve", *workers)
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(result).pop("passed") == 1


def test_rlserve_selects_them(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=MIXED)
    assert ids(run("-m", "rlserve", "--collect-only", "-q")) == [
        "test_it.py::test_of_a_capture[no-trace]",
        "test_it.py::test_of_all_captures",
        "test_it.py::test_of_the_baseline",
    ]


def test_a_fixture_of_a_users_own_that_asks_for_a_capture_marks_its_tests(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def rows(rl_trace): return rl_trace.requests

        def test_it(rows): pass
        """
    )
    assert outcomes(run("-m", "not rlserve")) == {"deselected": 1}


def test_a_project_that_does_not_use_the_plugin_sees_nothing_of_it(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_good(): pass\ndef test_bad(): assert 0")
    (pytester.path / "rlserve.toml").write_text("this is no policy")
    with_it, without = run("-v", "-ra"), run("-v", "-ra", "-p", "no:rlserve")
    assert with_it.ret == without.ret
    assert printed(with_it) == printed(without)


def printed(result: pytest.RunResult) -> list[str]:
    lines = [re.sub(r"in \d+\.\d+s", "in TIME", line).strip(" =") for line in result.outlines]
    return [line for line in lines if not line.startswith("plugins:")]


@pytest.mark.parametrize(
    "flag",
    [
        "--rl-baseline-update",
        "--rl-baseline-update-new",
        "--rl-strict",
        "--rl-selftest",
        "--rl-report=json:report.json",
        "--rl-policy=rlserve.toml",
        "--rl-gate=report",
    ],
)
def test_a_flag_that_needs_a_capture_is_wrong_use_without_one(run: Run, pytester: pytest.Pytester, flag: str) -> None:
    """A forgotten --rl-trace must not leave a run green that was asked to be strict, or without its report."""
    pytester.makepyfile("def test_good(): pass")
    result = run(flag)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    typed = flag.partition("=")[0]
    assert error_lines(result) == [f"ERROR: rlserve: {typed} without a capture to judge: pass --rl-trace=PATH"]


def test_standing_settings_need_no_capture(run: Run, pytester: pytest.Pytester) -> None:
    """What the configuration says for all runs is for those that judge one."""
    pytester.makepyfile("def test_good(): pass")
    pytester.makeini("[pytest]\nrl_strict = true\nrl_report = json:report.json\naddopts = --rl-gate=report\n")
    result = run()
    assert result.ret == pytest.ExitCode.OK


def test_the_markers_are_registered(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MIXED)
    result = run("--strict-markers", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.rlserve: *", "@pytest.mark.rl_trace(path): *"])
