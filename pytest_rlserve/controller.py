"""The controller of a run: it reads captures once, gathers verdicts, and alone writes reports and baselines."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rlserve.engine import progress
from pytest_rlserve.errors import RlserveError, UsageError
from pytest_rlserve.session import PROPERTY, WORKER_FOLDER, noted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.gate.verdicts import Gate
    from pytest_rlserve.session import Run


class Controller:
    """Reads captures before any worker starts, gathers verdicts, and alone writes reports and baselines."""

    def __init__(self, run: Run) -> None:
        """Prepare for a run; the plugin manager calls the hooks below."""
        self.run = run
        self.judged: dict[str, list[dict[str, Any]]] = {}
        self.failed: dict[str, str] = {}
        self.ran: set[str] = set()
        self.lines: list[str] = []
        self.report: dict[str, Any] | None = None
        self.keys: list[str] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Note which metrics there are, and with xdist, read the captures now and lay them out for the workers.

        Metrics that test modules register later are judged where they are used but not listed: with xdist the
        controller never sees those modules, and the report must not depend on that.
        """
        from pytest_rlserve.metrics.measuring import all_keys

        self.keys = all_keys()
        config = session.config
        _ = self.run.policy  # one that is wrong stops the run here
        if config.getoption("numprocesses", None) and not config.option.collectonly:
            from pytest_rlserve.engine.share import save
            from pytest_rlserve.recurring import left_there

            captures = self._open().captures
            self.run.folder = tempfile.mkdtemp(prefix="rlserve-")
            for number, capture in enumerate(captures):
                save(left_there(capture), Path(self.run.folder, f"{number:04d}"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker where the captures are."""
        node.workerinput[WORKER_FOLDER] = self.run.folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Without xdist, read the captures before the first test, so that wrong use stops the run here."""
        if not session.config.option.collectonly:
            self._open()

    def _open(self) -> Gate:
        config = self.run.config
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        stream = terminal._tw._file if terminal else sys.stderr  # standard error itself is captured
        try:
            with progress.shown(stream, quiet=config.get_verbosity() < 0):
                gate = self.run.gate
            gate.require_use()
        except UsageError as error:
            raise pytest.UsageError(f"rlserve: {error}") from None
        return gate

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test's verdict from its last report."""
        if report.outcome not in ("passed", "failed", "skipped"):
            return  # a rerun that will be reported again
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self.judged[report.nodeid] = noted(report)
            if report.failed or self.judged[report.nodeid]:
                self.ran.add(report.nodeid)  # one that a marker skips has not run
            self.failed.pop(report.nodeid, None)
            if report.failed and PROPERTY in report.keywords:
                self.failed[report.nodeid] = "failed" if report.when == "call" else "invalid"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the baseline, then the reports; what cannot be written fails the run and stops nothing else."""
        broken = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR)
        if exitstatus == pytest.ExitCode.INTERRUPTED and not self.run.has_read:
            self.lines.append("interrupted before the captures were read: nothing was judged, and no report is written")
        elif not session.config.option.collectonly and exitstatus not in broken:
            with self._failing(session):
                self._finish(session)

    def _finish(self, session: pytest.Session) -> None:
        from pytest_rlserve.gate import report as reports
        from pytest_rlserve.reports.files import write

        judged = [one for some in self.judged.values() for one in some]
        mute = {
            nodeid: verdict
            for nodeid, verdict in sorted(self.failed.items())
            if not any(_speaks(one) for one in self.judged[nodeid])
        }
        judged += [{"kind": "checks", "name": name, "verdict": mute[name], "records": []} for name in mute]
        not_run = [nodeid for nodeid in self.run.expected() if nodeid not in self.ran]
        changes: tuple[dict[str, Any], ...] = ()
        with self._failing(session):
            changes = self._update(session, judged, not_run)
        self.report = reports.build(
            self.run.gate, judged, keys=self.keys, not_run=not_run, failed_tests=mute, baseline_changes=changes
        )
        for spec in self.run.asked.reports:
            with self._failing(session):
                self.lines.append(write(self.report, spec, self.run.config.invocation_params.dir))
        if self.run.asked.selftest:
            self._selftest(session)
        short = self.report["verdict"] in ("incomplete", "inconclusive", "no_baseline")
        if self.run.asked.strict and short and session.exitstatus == pytest.ExitCode.OK:
            self.lines.append(f"--rl-strict: the verdict {self.report['verdict']!r} is not a pass")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @contextlib.contextmanager
    def _failing(self, session: pytest.Session) -> Iterator[None]:
        """Turn an error into a line of the summary and a failed run."""
        try:
            yield
        except RlserveError as error:
            self.lines.append(f"error: {error}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _update(
        self, session: pytest.Session, judged: list[dict[str, Any]], not_run: list[str]
    ) -> tuple[dict[str, Any], ...]:
        asked = self.run.asked
        if not (asked.update or asked.update_new):
            return ()
        ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if not ended or session.shouldfail or session.shouldstop:
            self.lines.append("baseline left as it is: the session did not run to its end")
            return ()
        from pytest_rlserve.gate.refresh import refresh
        from pytest_rlserve.metrics import METRICS

        whole = asked.suite and not not_run
        partial = None if whole else {one["name"] for one in judged if one["kind"] == "metrics"}
        also: dict[str, float] = {}
        for one in judged:
            if one["kind"] == "metrics" and one["records"]:  # of several tests of a metric, the strictest counts
                allowed = one["records"][0]["allowed"]
                also[one["name"]] = min(allowed, also.get(one["name"], allowed))
        known = {key: allowed for key, allowed in also.items() if key.partition(".")[0] in METRICS}
        done = refresh(self.run.gate, only=partial, also=known)
        self.lines.append(done.summary)
        if not done.written and done.refused:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return done.changes

    def _selftest(self, session: pytest.Session) -> None:
        """Show on damaged copies of the captures that every item can fail; one that cannot fails the run."""
        from tabulate import tabulate

        from pytest_rlserve.gate.selftest import selftest

        trials = selftest(self.run.gate)
        rows = [(trial.id, trial.fired_on or f"NOTHING ({trial.why_not})") for trial in trials]
        silent = sum(trial.fired_on is None for trial in trials)
        self.lines.append(tabulate(rows, ["selftest", "fires on"], disable_numparse=True))
        self.lines.append(f"selftest: {len(trials) - silent} of {len(trials)} items can fail")
        if silent and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the verdict and its tables."""
        if self.report is None and not self.lines:
            return
        terminalreporter.section("rlserve")
        verbosity = terminalreporter.config.get_verbosity()
        if self.report is not None and verbosity < -1:
            from pytest_rlserve.reports.wording import headline

            terminalreporter.write_line(headline(self.report))
        elif self.report is not None:
            from pytest_rlserve.reports.terminal import terminal

            verbose = verbosity > 0
            terminalreporter.write_line(terminal(self.report, verbose=verbose, columns=terminalreporter._tw.fullwidth))
        for line in self.lines:
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Remove what was laid out for workers."""
        if self.run.folder:
            shutil.rmtree(self.run.folder, ignore_errors=True)


def _speaks(judgement: dict[str, Any]) -> bool:
    """Tell whether a verdict already says that its test failed."""
    return judgement["verdict"] not in ("pass", "waived")
