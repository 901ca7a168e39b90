"""How evenly workers were loaded, and the tables that show it worker by worker and step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fleets import parts, served, started
from hand_made import control, opened
from oracle import CAPTURES

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.balance import by_step, by_worker
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

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


def test_tables_add_up_to_the_whole() -> None:
    capture = open_capture(CAPTURES / "baseline_kv_1")
    for table, count in ((by_worker(capture, Scope()), 4), (by_step(capture, Scope()), 3)):
        assert len(table) == count
        assert sum(row["requests"] for row in table) == 784
        whole = sum(row["prompt_tokens"] for row in table)
        for name in ("kv_reuse_fraction", "kv_reuse_ceiling", "kv_worker_ceiling", "kv_predicted_reuse_fraction"):
            share = sum(row[name] * row["prompt_tokens"] for row in table) / whole
            assert share == pytest.approx(measure(capture, name).value)


def test_what_a_group_does_not_know_is_none(tmp_path: Path) -> None:
    (row,) = by_worker(opened(tmp_path / "c", **parts(served("r", 1, 1, [1]))), Scope())
    assert (row["worker"], row["requests"], row["kv_reuse_fraction"]) == ("1", 1, 0.0)
    assert (row["queue_depth"], row["kv_predicted_reuse_fraction"]) == (None, None)


def test_a_capture_without_a_completed_request_has_no_table(tmp_path: Path) -> None:
    row, events = served("r", 1, 1, [1])
    canceled = [events[0], events[1] | {"event": "canceled"}]
    with pytest.raises(NotMeasurable):
        by_worker(opened(tmp_path / "c", **parts((row, canceled))), Scope())
