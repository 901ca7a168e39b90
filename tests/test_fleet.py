"""From control events to updates, and to what every worker had loaded and cached when."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fleets import moved, served, started, update, without
from fleets import parts as made
from hand_made import EPOCH, Record, control, opened, request_end

from pytest_rlserve.fleet import Fleet, fleet, serving_workers
from pytest_rlserve.missed import missed, served_by

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def told(folder: Path, events: list[Record]) -> Fleet:
    return opened(folder, control=events).derive(fleet)


def after(times: list[float]) -> list[float]:
    return [round(t - EPOCH, 3) for t in times]


def test_what_was_loaded_at_the_start_is_no_update(folder: Path) -> None:
    found = told(folder, [*started(1, 2), *update(1, 2)])
    assert [(one.name, one.opening) for one in found.updates] == [("start", True), ("u1", False)]
    assert [one.name for one in found.finished] == ["u1"]
    assert after(found.changes("1")) == [10.6]
    assert [found.version_at("1", EPOCH + t) for t in (-2, 0, 10.5, 11)] == [None, "0", "0", "1"]


def test_an_update_at_the_instant_of_a_step_of_the_opening_is_a_change(folder: Path) -> None:
    resumed = control("resume", 10.6, worker_id=1, update="start")  # when update 1 brings its version
    found = opened(folder, control=[*started(1), resumed, *update(1)]).derive(fleet)
    assert found.changes("1") == [pytest.approx(EPOCH + 10.6)]


def test_the_same_version_again_is_no_change(folder: Path) -> None:
    found = told(folder, [*started(1), *update(1, version=1), *update(1, t=20, version=1, update="again")])
    assert after(found.changes("1")) == [10.6]


def test_an_event_without_a_worker_is_everyones(folder: Path) -> None:
    events = [control(name, 10 + n, policy_version=3) for n, name in enumerate(("transfer", "cache_reset", "version"))]
    found = told(folder, [*events, control("ready", 14, worker_id=1)])
    assert found.version_at("1", EPOCH + 20) == found.version_at("99", EPOCH + 20) == "3"
    assert after(found.emptied("99", valid=True)) == [11]
    assert found.updates[0].reached("99") is True


def test_the_fleet_is_only_its_targets_where_the_records_name_them(folder: Path) -> None:
    found = told(folder, [control("version", 10, policy_version=3, target_workers=[1, "0x2"])])
    assert [found.version_at(worker, EPOCH + 20) for worker in ("1", "2", "3")] == ["3", "3", None]


def test_a_reset_before_the_end_of_the_transfer_clears_but_is_not_valid(folder: Path) -> None:
    found = told(folder, [*started(1), *moved(update(1), "cache_reset", 1, -0.3)])
    assert after(found.emptied("1")) == [10.2]
    assert found.emptied("1", valid=True) == []


def test_what_reports_an_error_did_not_happen(folder: Path) -> None:
    events = [event | ({"status": "error"} if event["event"] == "version" else {}) for event in update(1)]
    found = told(folder, [*started(1), *events])
    assert found.version_at("1", EPOCH + 99) == "0"
    assert found.finished[0].reached("1") is False


def test_a_worker_that_comes_back_under_a_new_id_is_the_same_worker(folder: Path) -> None:
    events = [
        *started(1, 2),
        control("transfer_finished", 10.4, worker_id=1, update="u1"),
        control("cache_reset", 12, worker_id=7, replaced_worker_id=1, update="u1"),
        control("version", 12, worker_id=7, policy_version=1, update="u1"),
        control("cache_reset", 22, worker_id=9, replaced_worker_id=7, update="u2"),
    ]
    found = told(folder, events)
    (way,) = found.finished[0].workers
    assert (way.earlier, way.worker) == ("1", "7")
    assert found.finished[0].passage("1") is found.finished[0].passage("7")
    assert after(way.valid_resets) == [12]
    assert [found.origin(worker) for worker in ("1", "2", "7", "9")] == ["1", "2", "1", "1"]


@pytest.mark.parametrize("gap", [5.0, 0.5])
def test_updates_without_a_name_are_told_apart_by_time(folder: Path, gap: float) -> None:
    first, second = update(1, 2), update(1, 2, t=11 + gap, version=2)
    nameless = [{key: value for key, value in event.items() if key != "update"} for event in [*first, *second]]
    found = told(folder, nameless)
    assert [(one.name, one.version) for one in found.updates] == [("to version 1", "1"), ("to version 2", "2")]


def test_what_was_loaded_at_first_is_no_part_of_an_update_without_a_name(folder: Path) -> None:
    events = [*started(1, 2), *without(update(1, 2), "version", 2)]
    nameless = [{key: value for key, value in event.items() if key != "update"} for event in events]
    found = told(folder, nameless)
    assert [(one.opening, one.reached("2")) for one in found.updates] == [(True, True), (False, False)]


def test_a_rolling_update_is_one_update(folder: Path) -> None:
    rolling = [event for n in (1, 2, 3) for event in update(n, t=10.0 * n, version=1)]
    nameless = [
        {key: value for key, value in event.items() if key != "update"}
        for event in rolling
        if not event["event"].startswith("gate")
    ]
    found = told(folder, nameless)
    assert [len(one.workers) for one in found.updates] == [3]


def test_an_update_that_the_records_cut_off_is_not_judged(folder: Path) -> None:
    cut = [event for event in update(1, t=20, version=2) if event["t"] < EPOCH + 20.45]
    found = told(folder, [*started(1), *update(1), *cut])
    assert [one.name for one in found.updates] == ["start", "u1", "u2"]
    assert [one.name for one in found.finished] == ["u1"]


def test_workers_that_served_are_counted_once_whatever_ids_they_had(folder: Path) -> None:
    restart = control("cache_reset", 12, worker_id=7, replaced_worker_id=1, update="u1")
    rows = [served(f"r{n}", float(n), worker, [n]) for n, worker in enumerate((1, 2, 7))]
    assert serving_workers(opened(folder, **made(*rows, control=[restart]))) == 2


def behind(capture: Capture) -> list[tuple[str, str, str | None, tuple[int, ...]]]:
    return [(str(one.update), one.worker, one.version, one.rows) for one in capture.derive(missed)]


def test_a_worker_is_behind_from_the_end_of_the_update_it_missed_to_the_next_one(folder: Path) -> None:
    rows = [
        served(f"r{n}", t, worker, [n]) for n, (t, worker) in enumerate([(1, 1), (12, 1), (12, 2), (13, 2), (32, 2)])
    ]
    events = [*started(1, 2), *update(1), *update(1, 2, t=30, version=2)]
    assert behind(opened(folder, **made(*rows, control=events))) == [("update u1", "2", "0", (2, 3))]


def test_a_worker_that_missed_two_updates_is_counted_once_for_each_request(folder: Path) -> None:
    rows = [served(f"r{n}", t, 2, [n]) for n, t in enumerate((1.0, 12.0, 32.0))]
    events = [*started(1, 2), *update(1), *update(1, t=30, version=2)]
    found = behind(opened(folder, **made(*rows, control=events)))
    assert [(name, rows) for name, _, _, rows in found] == [("update u1", (1,)), ("update u2", (2,))]


@pytest.mark.parametrize(
    ("t", "more"),
    [
        (1.0, []),  # it served before the update only, and was taken away
        (12.0, [control("worker_lost", 10.5, worker_id=2)]),
    ],
)
def test_who_is_gone_missed_nothing(folder: Path, t: float, more: list[Record]) -> None:
    events = [*started(1, 2), *update(1), *more]
    assert behind(opened(folder, **made(served("r", t, 2, [1]), control=events))) == []


def test_who_came_later_missed_nothing(folder: Path) -> None:
    rows = [served("r1", 1.0, 1, [1]), served("r2", 12.0, 3, [1])]
    assert behind(opened(folder, **made(*rows, control=[*started(1), *update(1)]))) == []


@pytest.mark.parametrize("declared", [[1, 2], [1]])
def test_declared_targets_decide_who_had_to_be_reached(folder: Path, declared: list[int]) -> None:
    events = [*started(1, 2), *update(1, target_workers=declared)]
    found = behind(opened(folder, **made(served("r", 12.0, 2, [1]), control=events)))
    assert [worker for _, worker, _, _ in found] == (["2"] if 2 in declared else [])


def test_without_versions_the_transfer_says_who_was_reached(folder: Path) -> None:
    steps: Any = [("transfer", 0.1), ("cache_reset", 0.2), ("resume", 0.3)]
    events = [*started(1, 2), *update(1, steps=steps), *update(2, steps=steps[1:], update="u1")]
    rows = [served("r1", 12.0, 1, [1]), served("r2", 12.0, 2, [1])]
    assert [worker for _, worker, _, _ in behind(opened(folder, **made(*rows, control=events)))] == ["2"]


@pytest.mark.parametrize("seed", range(5))
def test_what_ran_at_an_instant_and_what_came_between_two_is_what_a_look_at_every_row_finds(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    times = [(at := draw.randrange(60), at + draw.choice([1, 2, 30])) for _ in range(50)]
    rows = [request_end(f"r{n}", start, end, worker={"decode_worker_id": 7}) for n, (start, end) in enumerate(times)]
    (of_worker,) = opened(tmp_path / "c", rows=rows).derive(served_by).values()
    arrivals = sorted(range(50), key=lambda n: times[n][0])
    for instant in range(0, 90, 5):
        running = [n for n in arrivals if times[n][0] < instant < times[n][1] or times[n][0] < 31 < times[n][1]]
        assert of_worker.running_at([EPOCH + instant, EPOCH + 31]) == running
        came = [n for n in arrivals if instant <= times[n][0] < instant + 7]
        assert of_worker.between(EPOCH + instant, EPOCH + instant + 7) == came
