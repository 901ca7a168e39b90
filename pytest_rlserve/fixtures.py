"""What the plugin's fixtures give to tests. Broken evidence errs in set-up; a bad value fails in the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_rlserve import units
from pytest_rlserve.errors import EvidenceError, UsageError
from pytest_rlserve.gate.judgement import Judgement
from pytest_rlserve.metrics import measuring
from pytest_rlserve.session import RUN, note

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.judgement import Verdict
    from pytest_rlserve.gate.verdicts import Gate
    from pytest_rlserve.session import Run

_WORST_FIRST: tuple[Verdict, ...] = (
    "invalid",
    "not_comparable",
    "regressed",
    "failed",
    "inconclusive",
    "no_baseline",
    "waived",
)


def _stop(message: str) -> NoReturn:
    raise pytest.fail.Exception(message, pytrace=False) from None


def _run_of(config: pytest.Config, no_capture: str) -> Run:
    run = config.stash.get(RUN, None)
    if run is None or not run.asked.traces:
        _stop(no_capture)
    return run


def one_capture(config: pytest.Config, param: int | str | None, no_capture: str) -> Capture:
    """Return the capture a parameter stands for: a number for those of the run, a path for a marker's own."""
    if isinstance(param, str):
        from pytest_rlserve.session import Run

        run = config.stash.get(RUN, None) or config.stash.setdefault(RUN, Run.for_markers(config))
        try:
            gate = run.marked(param)
        except (UsageError, pytest.UsageError) as error:
            _stop(str(error))
        _require_trust(gate, whole=True)
        return gate.captures[0]
    run = _run_of(config, no_capture)
    if param is None:
        _stop(no_capture)
    _require_trust(run.gate, whole=not run.asked.suite)
    return run.gate.captures[param]


def all_captures(config: pytest.Config, no_capture: str) -> tuple[Capture, ...]:
    """Return all captures of the run."""
    run = _run_of(config, no_capture)
    _require_trust(run.gate, whole=not run.asked.suite)
    return tuple(run.gate.captures)


def _require_trust(gate: Gate, *, whole: bool) -> None:
    """Err where the evidence is broken: in one line, or as a `whole` where no item of the suite says the rest."""
    for result in (result for name in gate.foundations() for result in gate.results(name)):
        if result.status in ("error", "fail"):
            _stop(f"not judged: {result.message() if whole else result.message().splitlines()[0]}")


class BaselineFixture:
    """The baseline of the run's series, for tests of one's own."""

    def __init__(self, request: pytest.FixtureRequest, no_capture: str) -> None:
        """Read the baseline, so that one that cannot be trusted errs in set-up."""
        run = _run_of(request.config, no_capture)
        _require_trust(run.gate, whole=not run.asked.suite)
        self._gate = run.gate
        self._item: pytest.Item = request.node
        try:
            self._gate.baseline()
        except (EvidenceError, UsageError) as error:
            if not self._gate.update.wanted:
                _stop(str(error))

    def check(self, *keys: str, regression: str | float | None = None) -> None:
        """Compare metrics with the baseline; all are compared before the first failure is raised.

        Args:
            *keys: metrics, e.g. "ttft.p95".
            regression: the change that is allowed, e.g. "10%"; by default the policy's.
        """
        __tracebackhide__ = True
        from pytest_rlserve.suite import conclude

        if not keys:
            raise UsageError("rl_baseline.check() names no metric")
        try:
            allowed = None if regression is None else units.parse(regression, "fraction")
            judged = [self._gate.compare(measuring.canonical(key), allowed) for key in keys]
        except UsageError as error:
            raise UsageError(f"rl_baseline.check(): {error}") from None
        for judgement in judged:
            note(self._item, judgement)
        caution = next((one.caution for one in judged if one.caution), None)
        for verdict in _WORST_FIRST:
            worst = [one for one in judged if one.verdict == verdict]
            if worst:
                final: Verdict = "failed" if verdict in ("invalid", "not_comparable") else verdict
                text = "\n".join(one.message for one in worst)
                conclude(
                    self._item,
                    Judgement(kind="metrics", name=worst[0].name, verdict=final, message=text, caution=caution),
                )
                return
        conclude(
            self._item, Judgement(kind="metrics", name=judged[0].name, verdict="pass", message="", caution=caution)
        )
