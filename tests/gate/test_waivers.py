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
