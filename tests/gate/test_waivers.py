"""What a waiver covers, and what it does not."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING

from pytest_rlserve.gate.policy import Waiver

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from gate.series import Series
    from pytest_rlserve.capture import Capture

    Measured = Callable[..., Capture]

RATE = "accepted_trajectory_throughput"


def test_a_waiver_does_not_stand_in_for_a_baseline(
    series: Series, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiver = Waiver(metric=RATE, until=datetime.date(2999, 1, 1), owner="x", reason="y")
    series.policy = dataclasses.replace(series.policy, waivers=(waiver,))
    monkeypatch.setenv("CI", "true")
    assert series.gate(measured(10.0)).compare(RATE).verdict == "failed"


def test_one_that_has_run_out_excuses_nothing_and_says_so(series: Series, measured: Measured) -> None:
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    waiver = Waiver(metric=RATE, until=datetime.date(2020, 1, 31), owner="oncall", reason="tracked in #1")
    series.policy = dataclasses.replace(series.policy, waivers=(waiver,))
    found = series.gate(measured(8.0, job="d")).compare(RATE)
    assert found.verdict == "regressed"
    assert found.message.splitlines()[-1] == "  the waiver of oncall ran out on 2020-01-31: tracked in #1"
    assert "ran out" not in series.gate(measured(10.0, job="e")).compare(RATE).message
