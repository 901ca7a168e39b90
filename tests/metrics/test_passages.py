"""Each worker's way through each update: phases in seconds after the update began, missed workers among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fleets import GOOD, moved, started, update, without
from hand_made import Record, control, opened
from oracle import CAPTURES, read_by_time

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics.passages import Way, ways
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


def told(folder: Path, events: list[Record]) -> list[Way]:
    return ways(opened(folder / "c", control=events))


def test_every_phase_stands_at_its_time_after_the_gate_closed(tmp_path: Path) -> None:
    first, second = told(tmp_path, [*started(1, 2), *moved(update(1, 2), "cache_reset", 2, 0.05)])
    expected = {"gate_closed": 0.0, **dict(GOOD), "gate_opened": 1.0}
    assert first.phases == pytest.approx(expected)
    assert second.phases == pytest.approx(expected | {"cache_reset": 0.55})
    assert list(first.phases) == ["gate_closed", *(name for name, _ in GOOD), "gate_opened"]
    assert [(one.update, one.worker, one.version, one.reached) for one in (first, second)] == [
        ("u1", "1", "1", True),
        ("u1", "2", "1", True),
    ]


def test_a_phase_that_failed_or_is_not_recorded_has_no_time(tmp_path: Path) -> None:
    events = [event | ({"status": "error"} if event["event"] == "pause" else {}) for event in update(1)]
    (way,) = told(tmp_path, [*started(1), *without(events, "ready", 1)])
    assert {"pause", "ready"}.isdisjoint(way.phases)


def test_a_worker_that_was_missed_is_there_without_a_version(tmp_path: Path) -> None:
    targets = {"target_workers": [1, 2]}
    first, second = told(tmp_path, [*started(1, 2), *update(1, **targets)])
    assert (first.reached, second.reached, second.version) == (True, False, None)


def test_a_worker_that_restarted_has_both_ids(tmp_path: Path) -> None:
    restart = control("cache_reset", 10.5, worker_id=9, replaced_worker_id=1, update="u1")
    loaded = control("version", 10.6, worker_id=9, policy_version=1, update="u1")
    (way,) = told(tmp_path, [*started(1), *update(1, steps=GOOD[:3]), restart, loaded])
    assert (way.worker, way.replaced, way.version) == ("9", "1", "1")


def test_without_an_update_there_is_no_way(tmp_path: Path) -> None:
    with pytest.raises(NotMeasurable, match="no weight update that ended"):
        told(tmp_path, started(1))


@pytest.mark.parametrize("name", ["baseline_kv_1", "stale_worker_1", "worker_lost_1"])
def test_the_ways_of_a_recorded_run_are_those_of_its_lines(name: str) -> None:
    events = [event for event in read_by_time(CAPTURES / name, "control") if event.get("update") not in (None, 0)]
    begun = {update: min(e["t"] for e in events if e["update"] == update) for update in {e["update"] for e in events}}
    found = [way for way in ways(open_capture(CAPTURES / name)) if way.update != "0"]
    assert {way.update for way in found} == {str(update) for update in begun}
    for way in found:
        for phase in ("cache_reset", "version"):
            times = [
                event["t"] - begun[event["update"]]
                for event in events
                if (event["event"], str(event["update"]), str(event.get("worker_id")))
                == (phase, way.update, way.worker)
            ]
            assert way.phases.get(phase) == (pytest.approx(max(times)) if times else None)
    missed = [way.worker for way in found if way.reached is False]
    assert missed == (["3264423129048537586"] if name == "stale_worker_1" else [])
