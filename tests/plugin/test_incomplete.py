"""A run that leaves something out lists it, and is never a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, ITEMS, PRIMARY, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

REPORT = "--rl-report=json:report.json"


def all_but(*items: str) -> list[str]:
    return sorted(f"rlserve.toml::{item}" for item in ITEMS if item not in items)


@both_ways
def test_what_k_leaves_out_is_listed(
    run: Run, capture: Write, three_runs: Path, report_of: ReadReport, workers: tuple[str, ...]
) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "-k", PRIMARY, REPORT, *workers)
    assert result.ret == pytest.ExitCode.OK
    assert report_of()["verdict"] == "incomplete"
    assert report_of()["not_run"] == all_but(f"metrics::{PRIMARY}")
    result.stdout.fnmatch_lines([f"INCOMPLETE: 1 unchanged; {ALL - 1} not run"])


def test_what_m_and_deselect_leave_out_is_listed(
    run: Run, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    capture("run-1")
    run("--rl-trace=run-1", "-m", "not rlserve", REPORT)
    assert report_of()["not_run"] == all_but()
    run("--rl-trace=run-1", "--deselect=rlserve.toml::checks", REPORT)
    assert report_of()["not_run"] == all_but(f"metrics::{PRIMARY}", "metrics::update_downtime")
    assert report_of()["verdict"] == "incomplete"


def test_what_x_leaves_out_is_listed(run: Run, capture: Write, three_runs: Path, report_of: ReadReport) -> None:
    capture("run-1", open_attempts=1, rate=8.0)
    assert run("--rl-trace=run-1", "-x", REPORT).ret == pytest.ExitCode.TESTS_FAILED
    assert report_of()["not_run"] == all_but(*ITEMS[: ITEMS.index("checks::attempts_reconcile") + 1])
    assert report_of()["verdict"] == "failed"


def test_what_a_failing_test_of_ones_own_kept_from_running_is_listed(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport
) -> None:
    pytester.makepyfile("def test_own(): assert 0")
    capture("run-1")
    assert run("--rl-trace=run-1", "-x", REPORT).ret == pytest.ExitCode.TESTS_FAILED
    assert (report_of()["verdict"], report_of()["not_run"]) == ("incomplete", all_but())


def test_what_lf_leaves_out_is_listed(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    capture("run-1", rate=8.0)
    run("--rl-trace=run-1")
    capture("run-2", rate=10.0)
    assert outcomes(run("--rl-trace=run-2", "--lf", REPORT)) == {"passed": 1, "deselected": ALL - 1}
    assert (report_of()["verdict"], report_of()["not_run"]) == ("incomplete", all_but(f"metrics::{PRIMARY}"))


@pytest.mark.parametrize("verdict", ["regressed", "invalid", "failed"])
def test_a_worse_verdict_is_not_softened_to_incomplete(
    run: Run, capture: Write, three_runs: Path, report_of: ReadReport, verdict: str
) -> None:
    figures = {"regressed": {"rate": 8.0}, "invalid": {"torn": True}, "failed": {"open_attempts": 1}}[verdict]
    capture("run-1", **figures)
    run("--rl-trace=run-1", "--deselect=rlserve.toml::metrics::update_downtime", REPORT)
    assert report_of()["verdict"] == verdict
    assert report_of()["not_run"] == ["rlserve.toml::metrics::update_downtime"]


def test_a_test_module_that_cannot_be_imported_stops_the_run_and_it_is_no_pass(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    pytester.makepyfile("import nothing_of_this_name")
    capture("run-1")
    assert run("--rl-trace=run-1", REPORT).ret == pytest.ExitCode.INTERRUPTED
    assert (report_of()["verdict"], report_of()["not_run"]) == ("incomplete", all_but())


def test_an_interrupted_run_is_no_pass(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    pytester.makeconftest(
        "import pytest\ndef pytest_runtest_setup(item):\n    if item.name == 'update_downtime': pytest.exit('enough')"
    )
    capture("run-1")
    result = run("--rl-trace=run-1", REPORT, "--rl-baseline-update")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert report_of()["verdict"] == "incomplete"
    assert "baseline left as it is: the session did not run to its end" in result.outlines


def test_what_was_interrupted_while_it_was_read_is_not_read_again_for_the_report(
    pytester: pytest.Pytester, capture: Write
) -> None:
    pytester.makeconftest(
        """
        from pytest_rlserve import readers

        def interrupted(*_, **__):
            print("reads", flush=True)
            raise KeyboardInterrupt

        readers.open_capture = interrupted
        """
    )
    capture("run-1")
    result = pytester.runpytest_subprocess("-s", "--rl-trace=run-1", REPORT)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert result.outlines.count("reads") == 1
    assert "interrupted before the captures were read: nothing was judged, and no report is written" in result.outlines


def test_a_skipped_item_is_one_that_did_not_run(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                if item.name == "update_downtime":
                    item.add_marker(pytest.mark.skip(reason="not today"))
        """
    )
    capture("run-1")
    assert outcomes(run("--rl-trace=run-1", REPORT)) == {"passed": ALL - 1, "skipped": 1}
    assert report_of()["verdict"] == "incomplete"
    assert report_of()["not_run"] == ["rlserve.toml::metrics::update_downtime"]
