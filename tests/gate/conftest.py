"""Captures and gates without pytest around them, and the projects of tests/plugin for what needs one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from plugin.rollout import FIRST_START, write_rollout

from gate.series import Series
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@pytest.fixture(autouse=True)
def _not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Capture]:
    """Write a capture and read it: ``measured(9.5, job="job-b")``; each starts later than the one before."""
    numbers = itertools.count(1)

    def take(rate: float = 10.0, **figures: Any) -> Capture:
        number = next(numbers)
        more = {"start": FIRST_START + 1000.0 * number, **figures}
        return open_capture(write_rollout(tmp_path / f"captures/run-{number}", rate=rate, **more))

    return take


@pytest.fixture
def series(tmp_path: Path) -> Series:
    """The series "s" with a folder for its baseline and nothing in it."""
    return Series(tmp_path / "baselines")
