"""Where a loss sits: one worker, one step or one group that stands out, and nothing where all move alike."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gate.series import Series, recorded
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.gate.place import place_of
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.spread import slowest
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline


@cache
def opened(name: str = "baseline_kv_1") -> Capture:
    return open_capture(recorded()[name])


@pytest.fixture
def stored(tmp_path: Path) -> Baseline:
    series = Series(tmp_path)
    assert series.take(opened()).written
    found = series.gate().baseline()
    assert found is not None
    return found


def slowed(*which: int) -> Capture:
    """Triple the prefill of some workers."""
    rows = opened().requests.to_pylist()
    for row in rows:
        if row["decode_worker_id"] in which and row["prefill_time_ms"] is not None:
            row["prefill_time_ms"] *= 3
    return opened().replace(requests=pa.Table.from_pylist(rows, schema=opened().requests.schema))


def earlier(field: str, value: object, seconds: float) -> Capture:
    """Let the attempts of one step or group be open for longer, from before."""
    rows = opened().attempt_events.to_pylist()
    of_it = {row["attempt_id"] for row in rows if row[field] == value}
    for row in rows:
        if row["attempt_id"] in of_it and row["event"] == "dispatched":
            row["t"] -= seconds
    return opened().replace(attempt_events=pa.Table.from_pylist(rows, schema=opened().attempt_events.schema))


def workers() -> list[int]:
    return sorted(set(opened().requests["decode_worker_id"].drop_null().to_pylist()))


def test_the_worker_that_became_slow_is_named(stored: Baseline) -> None:
    """By its first id, since the workers of this run restart under new ones with every update."""
    for worker in workers()[:3]:
        first = int(opened().derive(fleet).origin(str(worker)))
        assert place_of(stored, [slowed(worker)], "prefill", Scope()) == f"on worker {first:x}"


def test_workers_that_all_became_slow_are_not_told_apart(stored: Baseline) -> None:
    assert place_of(stored, [slowed(*workers())], "prefill", Scope()) == ""


def test_a_worker_is_not_named_for_another_stage(stored: Baseline) -> None:
    assert place_of(stored, [slowed(workers()[0])], "queue", Scope()) == ""


def test_a_worker_that_was_as_slow_before_is_not_what_moved(tmp_path: Path) -> None:
    series = Series(tmp_path)
    assert series.take(slowed(workers()[0])).written
    found = series.gate().baseline()
    assert found is not None
    assert place_of(found, [slowed(workers()[0])], "prefill", Scope()) == ""
    assert place_of(found, [opened()], "prefill", Scope()) == ""


@pytest.mark.parametrize("stage", ["queue", "rest"])
def test_the_step_that_became_slow_is_named(stored: Baseline, stage: str) -> None:
    assert place_of(stored, [earlier("step", 2, 3.0)], stage, Scope()) == "in step 2"


def test_the_group_that_became_slow_is_named(stored: Baseline) -> None:
    group = opened().attempt_events["group_id"].drop_null().to_pylist()[0]
    assert place_of(stored, [earlier("group_id", group, 6.0)], "rest", Scope()) == f"in group {group}"


@pytest.mark.parametrize("name", sorted(name for name in recorded() if name.startswith("baseline")))
def test_runs_that_changed_nothing_name_no_place(stored: Baseline, name: str) -> None:
    for stage in ("queue", "prefill", "decode", "rest"):
        assert place_of(stored, [opened(name)], stage, Scope()) == ""


def test_the_slowest_is_the_largest_mean_and_its_share_is_over_the_mean_of_all_times() -> None:
    assert slowest({"a": [1.0, 3.0], "b": [2.0]}) == ("b", pytest.approx(1.0))
    assert slowest({"a": [1.0], "b": [5.0], "c": [1.0, 1.0]}) == ("b", pytest.approx(2.5))
    with pytest.raises(NotMeasurable, match="took any time"):
        slowest({"a": [0.0], "b": [0.0]})


def test_one_worker_has_no_spread() -> None:
    rows = opened().requests.to_pylist()
    for row in rows:
        row["decode_worker_id"] = workers()[0]
    alone = opened().replace(requests=pa.Table.from_pylist(rows, schema=opened().requests.schema))
    found = measure(alone, "prefill_worker_spread")
    assert found.value is None and found.why is not None and "a spread needs two" in found.why
