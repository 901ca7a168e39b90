"""How evenly workers were loaded, and how long requests queued for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleets import parts, served, started
from hand_made import control, opened
from oracle import CAPTURES, read, read_by_time

from pytest_rlserve.metrics.breakdown import load_by
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture


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


# -- against a count of the recorded rows, one by one --------------------------------------------------------------

SHARED = Path(__file__).parents[3] / "shared" / "captures"
RECORDED = [
    folder
    for root in (CAPTURES, SHARED)
    if root.is_dir()
    for folder in sorted(root.iterdir())
    if list(folder.glob("control.jsonl*"))
]
every_run = pytest.mark.parametrize("folder", RECORDED, ids=lambda path: f"{path.parent.parent.name}-{path.name}")


def first_ids(folder: Path) -> dict[str, str]:
    """Every worker id with the id under which that worker began."""
    before = {
        str(event["worker_id"]): str(event["replaced_worker_id"])
        for event in read_by_time(folder, "control")
        if "replaced_worker_id" in event
    }
    found = {}
    for worker in before:
        first = worker
        while first in before:
            first = before[first]
        found[worker] = first
    return found


def counted(folder: Path) -> dict[str, dict[str, float]]:
    """Seconds, requests and tokens of each worker, and the queue as its completed requests met it."""
    first, workers = first_ids(folder), dict[str, dict[str, float]]()
    attempts = read_by_time(folder, "attempts")
    done = {e["response_id"].split("-", 1)[1] for e in attempts if e["event"] == "completed" and "response_id" in e}
    for line in (line for file in sorted(folder.glob("request-trace*")) for line in read(file)[0]):
        event = line.get("event", line)
        request = event.get("request", {})
        worker = request.get("worker", {}).get("decode_worker_id")
        if event["event_type"] != "request_end" or worker is None:
            continue
        mine = workers.setdefault(first.get(str(worker), str(worker)), dict.fromkeys(COUNTED, 0.0))
        mine["seconds"] += request["total_time_ms"] / 1e3
        mine["requests"] += 1
        mine["output"] += request.get("output_tokens", 0)
        if request["request_id"] in done and "queue_depth" in request:
            mine["queue"] += request["queue_depth"]
            mine["told"] += 1
    return workers


COUNTED = ("seconds", "requests", "output", "queue", "told")


@every_run
def test_load_and_queue_of_each_worker_are_those_of_its_rows(folder: Path) -> None:
    capture, expected = open_capture(folder), counted(folder)
    found = {one.key: one for one in load_by(capture, "worker") if one.key is not None}
    assert found.keys() == expected.keys()
    for key, one in found.items():
        mine = expected[key]
        assert (one.requests, one.output_tokens) == (mine["requests"], mine["output"])
        assert one.serving_seconds == pytest.approx(mine["seconds"])
        assert (one.queue_depth or (0, 0)) == (mine["queue"], mine["told"])
    seconds = [mine["seconds"] for mine in expected.values()]
    imbalance = max(seconds) / (sum(seconds) / len(seconds))
    assert measure(capture, "worker_load_imbalance").value == pytest.approx(imbalance)


@every_run
def test_the_queue_is_the_mean_over_completed_requests_or_not_observable(folder: Path) -> None:
    queues = [(mine["queue"], mine["told"]) for mine in counted(folder).values()]
    total, told = map(sum, zip(*queues, strict=True))
    measured = measure(open_capture(folder), "queue_depth.mean")
    assert measured.value == (pytest.approx(total / told) if told else None)
    assert (folder.name == "router_queue_1") is (total > 0.1 * told)
