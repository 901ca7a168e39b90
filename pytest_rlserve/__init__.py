"""Gate the serving plane of RL post-training in pytest and CI.

The public names are loaded when first used, so that importing the plugin costs nothing to test runs that
judge no capture.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pytest_rlserve.version import __version__ as __version__

if TYPE_CHECKING:
    from pytest_rlserve.asserts import (
        assert_joined,
        assert_kv_reuse,
        assert_latency,
        assert_limit,
        assert_no_stale_kv,
        assert_reconciled,
        assert_updates,
        assert_valid,
    )
    from pytest_rlserve.capture import Capture, Finding, Source, Window
    from pytest_rlserve.checks import check, run_checks
    from pytest_rlserve.errors import (
        BaselineError,
        EvidenceError,
        FactorsWarning,
        InconclusiveWarning,
        NotMeasurable,
        RlserveError,
        RlserveWarning,
        UsageError,
    )
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.gate.judging import compare
    from pytest_rlserve.metrics import metric
    from pytest_rlserve.metrics.measuring import measure
    from pytest_rlserve.readers import open_capture, reader
    from pytest_rlserve.recorder import AttemptRecorder, ControlRecorder
    from pytest_rlserve.reports import render, report

_HOMES = {
    "AttemptRecorder": "recorder",
    "Baseline": "gate.baseline",
    "BaselineError": "errors",
    "Capture": "capture",
    "ControlRecorder": "recorder",
    "EvidenceError": "errors",
    "Finding": "capture",
    "FactorsWarning": "errors",
    "InconclusiveWarning": "errors",
    "NotMeasurable": "errors",
    "RlserveError": "errors",
    "RlserveWarning": "errors",
    "Source": "capture",
    "UsageError": "errors",
    "Window": "capture",
    "assert_joined": "asserts",
    "assert_kv_reuse": "asserts",
    "assert_latency": "asserts",
    "assert_limit": "asserts",
    "assert_no_stale_kv": "asserts",
    "assert_reconciled": "asserts",
    "assert_updates": "asserts",
    "assert_valid": "asserts",
    "check": "checks",
    "compare": "gate.judging",
    "measure": "metrics.measuring",
    "metric": "metrics",
    "open_capture": "readers",
    "reader": "readers",
    "render": "reports",
    "report": "reports",
    "run_checks": "checks",
}

__all__ = [
    "AttemptRecorder",
    "Baseline",
    "BaselineError",
    "Capture",
    "ControlRecorder",
    "EvidenceError",
    "FactorsWarning",
    "Finding",
    "InconclusiveWarning",
    "NotMeasurable",
    "RlserveError",
    "RlserveWarning",
    "Source",
    "UsageError",
    "Window",
    "assert_joined",
    "assert_kv_reuse",
    "assert_latency",
    "assert_limit",
    "assert_no_stale_kv",
    "assert_reconciled",
    "assert_updates",
    "assert_valid",
    "check",
    "compare",
    "measure",
    "metric",
    "open_capture",
    "reader",
    "render",
    "report",
    "run_checks",
]


def __getattr__(name: str) -> object:
    try:
        module = import_module(f"pytest_rlserve.{_HOMES[name]}")
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
