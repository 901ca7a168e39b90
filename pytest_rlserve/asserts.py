"""Assertions for test functions: each judges one capture and says what is wrong, where, and by how much.

They raise `AssertionError` where the capture falls short. Where the capture cannot tell, they raise as well, as
an assertion must hold; the message then says what the capture would have to hold.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pytest_rlserve.checks import CheckResult, Evidence, run_check
from pytest_rlserve.errors import UsageError, nearest, require_capture
from pytest_rlserve.gate.limits import parse_limit
from pytest_rlserve.joins.reconciliation import PARTS, Part, reconcile
from pytest_rlserve.metrics import Scope, measuring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture

_FOUNDATION = ("rows_fit_schema", "shards_are_whole", "requests_are_unique")


def assert_valid(capture: Capture) -> None:
    """Assert that every row fits its schema, every file is whole, and no request is there twice."""
    __tracebackhide__ = True
    results = [run_check(capture, name) for name in _FOUNDATION]
    if capture.has("requests"):
        _hold(results)
    else:
        _hold([result for result in results if result.name != "requests_are_unique"])


def assert_reconciled(capture: Capture, *, open_attempts: float = 0, by: Part | None = None) -> None:
    """Assert that every dispatched attempt is completed, canceled, failed, or one of a few still open.

    Args:
        capture: the capture to judge.
        open_attempts: how many may be open at the end: a number, or a fraction of those dispatched if below 1.
        by: "step", "group" or "run" judges each of them by itself: the sums must come out there, and `open_attempts`
            holds there. An attempt belongs to the step that it was dispatched for.
    """
    __tracebackhide__ = True
    if by is not None and by not in PARTS:
        raise UsageError(f"by must be one of {', '.join(PARTS)}, is {by!r}{nearest(str(by), PARTS)}")
    _hold([run_check(capture, "attempts_reconcile", Evidence(open_attempts=math.inf if by else open_attempts))])
    if by and (problems := list(_in_parts(capture, by, open_attempts))):
        raise AssertionError("\n".join(problems))


def _in_parts(capture: Capture, by: Part, open_attempts: float) -> Iterator[str]:
    parts = reconcile(capture, by)
    if all(one.part is None for one in parts):
        yield f"{capture.name} cannot be reconciled by {by}: no attempt names its {by}"
    for one in parts:
        place = f"{by} {one.part}" if one.part else f"what names no {by}"
        left, dispatched = one.counts.open or 0, one.counts.dispatched or 0
        allowed = open_attempts * dispatched if 0 < open_attempts < 1 else open_attempts
        if left > allowed:
            yield (
                f"attempts do not reconcile in {place} of {capture.name}: {left:,} of {dispatched:,} dispatched "
                f"{one.level}s never ended ({allowed:g} may be open)"
            )
        for text, whole, total in one.sums():
            if whole != total:
                yield f"{one.level}s do not reconcile in {place} of {capture.name}: {text}, yet {whole:,} ≠ {total:,}"


def assert_joined(capture: Capture, *, rows: float = 0.999, traceable: float = 0.999, completed: float = 0.5) -> None:
    """Assert that served rows have an attempt, and completed requests a row.

    Args:
        capture: the capture to judge.
        rows: smallest share of rows that must have an attempt.
        traceable: smallest share of completed, traceable requests that must have a row.
        completed: smallest share of all completed requests that must have a row, those that are never traced included.
    """
    __tracebackhide__ = True
    evidence = Evidence(rows_joined=rows, traceable_served=traceable, completed_served=completed)
    _hold([run_check(capture, "requests_are_joined", evidence)])


def assert_kv_reuse(capture: Capture, *, floor: float | str) -> None:
    """Assert that at least `floor` of all prompt tokens came from the KV cache, by the engine's own number."""
    __tracebackhide__ = True
    assert_limit(capture, "kv_reuse_fraction", floor)


def assert_no_stale_kv(capture: Capture) -> None:
    """Assert that no request reused KV blocks which its worker had computed under an earlier policy version."""
    __tracebackhide__ = True
    _hold([run_check(capture, "no_stale_kv")])


def assert_updates(capture: Capture, *, in_flight: Literal["drain", "keep"] = "drain") -> None:
    """Assert that every weight update reached all of its workers in order, and that none served while behind.

    Args:
        capture: the capture to judge.
        in_flight: "keep" if requests may run through an update.
    """
    __tracebackhide__ = True
    evidence = Evidence(in_flight=in_flight)
    _hold([run_check(capture, name, evidence) for name in ("updates_are_ordered", "workers_are_current")])


def assert_latency(capture: Capture, metric: str, **budgets: float | str) -> None:
    """Assert latency budgets: ``assert_latency(capture, "ttft", p50="300ms", p95="1.5s")``."""
    __tracebackhide__ = True
    if not budgets:
        raise UsageError(f"assert_latency({metric!r}) names no budget: write for example p95='1.5s'")
    missed = []
    for statistic, budget in budgets.items():
        try:
            assert_limit(capture, f"{metric}.{statistic}", budget)
        except AssertionError as error:
            missed.append(str(error))
    if missed:
        raise AssertionError("\n".join(missed))


def assert_limit(capture: Capture, metric: str, limit: float | str, *, scope: Scope | None = None) -> None:
    """Assert that a metric keeps within a limit, e.g. ``"<= 1.5s"``.

    Without a sign the metric's own direction decides: at most for latencies, at least for throughputs.

    Raises:
        EvidenceError: block hashes were left in the capture's files, and these have changed, or hold hashes that are
            none.
    """
    __tracebackhide__ = True
    try:
        parsed = parse_limit(metric, limit)
    except UsageError as error:
        raise UsageError(str(error)) from None  # without this package's frames
    require_capture(capture)
    _ = capture.chains  # no verdict on rows that are counted and perhaps none, as for checks
    measured = measuring.measure(capture, metric, scope)
    if parsed.judge(measured) != "pass":
        raise AssertionError(parsed.message(measured))


def _hold(results: list[CheckResult]) -> None:
    __tracebackhide__ = True
    problems = [result.message() for result in results if result.status != "pass"]
    if problems:
        raise AssertionError("\n".join(problems))
