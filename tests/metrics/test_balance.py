"""How evenly workers were loaded, and how long requests queued for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fleets import parts, served, started
from hand_made import control, opened

from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from pathlib import Path


def test_imbalance_is_the_busiest_workers_time_over_the_mean(tmp_path: Path) -> None:
    rows = [served("a", 1, 1, [1], took=3), served("b", 1, 2, [1], took=1), served("c", 2, 2, [1], took=1)]
    measured = measure(opened(tmp_path / "c", **parts(*rows)), "worker_load_imbalance")
    assert (measured.value, measured.n, measured.unit) == (pytest.approx(3 / 2.5), 2, "times the mean")


def test_a_worker_that_restarted_is_one_worker(tmp_path: Path) -> None:
    rows = [served("a", 1, 1, [1], took=1), served("b", 20, 9, [1], took=1), served("c", 1, 2, [1], took=2)]
    restart = control("cache_reset", 10, worker_id=9, replaced_worker_id=1, update="u")
    capture = opened(tmp_path / "c", **parts(*rows, control=[*started(1, 2), restart]))
    assert measure(capture, "worker_load_imbalance").value == 1.0


def test_one_worker_cannot_be_out_of_balance(tmp_path: Path) -> None:
    measured = measure(opened(tmp_path / "c", **parts(served("a", 1, 1, [1]))), "worker_load_imbalance")
    assert measured.why == "rows name 1 workers; balance needs two"


@pytest.mark.parametrize("depths", [[0] * 4, [0, 1, 2, 5]])
def test_queue_depth_may_be_zero_but_not_absent(tmp_path: Path, depths: list[int]) -> None:
    rows = [served(f"r{n}", n, 1, [1], queue_depth=depth) for n, depth in enumerate(depths)]
    assert measure(opened(tmp_path / "c", **parts(*rows)), "queue_depth.mean").value == sum(depths) / 4
    bare = measure(opened(tmp_path / "d", **parts(served("r", 1, 1, [1]))), "queue_depth.mean")
    assert bare.why == "queue_depth is there for 0 of 1 completed requests"
