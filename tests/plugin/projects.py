"""What tests of the plugin say again and again: where recorded captures lie, what runs are, what they printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_rlserve.gate.items import items
from pytest_rlserve.gate.policy import Policy

RECORDED = Path(__file__).parents[1] / "data" / "captures"
"""Captures recorded from a real Dynamo."""
PRIMARY = "accepted_trajectory_throughput"
ITEMS = [f"{kind}::{name}" for kind, name in items(Policy())]
"""What the default policy has judged: the checks, foundations first, and two metrics."""
CHECKS = [item.removeprefix("checks::") for item in ITEMS if item.startswith("checks::")]
ALL = len(ITEMS)

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
ReadReport = Callable[..., dict[str, Any]]
Plain = Callable[[pytest.RunResult], str]

both_ways = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
"""The test runs without and with xdist."""


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    """Return the counts of the last line but warnings."""
    counts = result.parseoutcomes()
    return {name: count for name, count in counts.items() if name != "warnings"}


def ids(result: pytest.RunResult) -> list[str]:
    """Return the node ids that ``--collect-only -q`` lists."""
    return [line for line in result.outlines if "::" in line]


def error_lines(result: pytest.RunResult) -> list[str]:
    """Return what wrong use printed, having made sure that it was no traceback."""
    printed = "\n".join([*result.outlines, *result.errlines])
    assert "Traceback" not in printed
    assert "INTERNALERROR" not in printed
    return [line for line in result.errlines if line]
