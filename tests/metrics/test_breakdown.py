"""Tables by worker and step: they add up to the metrics of the whole, and every group agrees with a slow count."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

import kv_oracle
import pytest
from fleets import BLOCK, parts, served, started
from hand_made import control, opened
from oracle import CAPTURES, read_by_time

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.breakdown import By, KvGroup, kv_by, load_by
from pytest_rlserve.metrics.kv_shares import SHARES
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

RECORDED = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir())
BOTH: tuple[By, ...] = ("worker", "step")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


@cache
def recorded(name: str) -> Capture:
    return open_capture(CAPTURES / name)


@cache
def counted(name: str) -> tuple[list[kv_oracle.Prompt], list[dict[str, Any]]]:
    prompts, control_events = kv_oracle.prompts_of(CAPTURES / name)
    return [prompt for prompt in kv_oracle.count(prompts, control_events) if prompt.completed], control_events


def step_of(events: list[dict[str, Any]], received: float) -> str | None:
    """The step during which a request was received, looked up one by one."""
    for event in events:
        if event["event"] == "step_started" and event["t"] <= received:
            ends = [e["t"] for e in events if (e["event"], e.get("step")) == ("step_finished", event["step"])]
            if ends and received <= ends[0]:
                return str(event["step"])
    return None


def first_id(events: list[dict[str, Any]], worker: str | None) -> str | None:
    """The id under which a worker began, back through its restarts."""
    before = {str(e["worker_id"]): str(e["replaced_worker_id"]) for e in events if "replaced_worker_id" in e}
    while worker in before:
        worker = before[worker]
    return worker


@pytest.mark.parametrize("by", BOTH)
@pytest.mark.parametrize("name", RECORDED)
def test_the_groups_agree_with_a_slow_count_of_their_requests(name: str, by: By) -> None:
    prompts, events = counted(name)
    sums: dict[str | None, list[int]] = defaultdict(lambda: [0] * 6)
    for one in prompts:
        key = first_id(events, one.worker) if by == "worker" else step_of(events, one.received)
        figures = one.tokens, one.cached or 0, one.found["fleet"], one.found["worker"], one.tokens - one.found["fleet"]
        sums[key] = [a + b for a, b in zip(sums[key], (1, *figures), strict=True)]
    names = ("kv_reuse_fraction", "kv_reuse_ceiling", "kv_worker_ceiling", "kv_cold_fraction")
    groups = kv_by(recorded(name), Scope(), by)
    found = {one.key: [one.requests, one.prompt_tokens, *(numerator(one, name) for name in names)] for one in groups}
    assert found == dict(sums)


def numerator(group: KvGroup, name: str) -> float:
    part = group.shares[name]
    assert part is not None
    return part[0]


@pytest.mark.parametrize("by", BOTH)
@pytest.mark.parametrize("name", RECORDED)
def test_the_groups_of_every_metric_add_up_to_it(name: str, by: By) -> None:
    groups = kv_by(recorded(name), Scope(), by)
    for metric in SHARES:
        known = [part for one in groups if (part := one.shares[metric]) is not None]
        whole = measure(recorded(name), metric)
        assert (whole.value is None) is (not known)
        if known:
            assert sum(part[0] for part in known) / sum(part[1] for part in known) == pytest.approx(whole.value)


@pytest.mark.parametrize("name", RECORDED)
def test_the_load_of_all_workers_is_that_of_the_whole(name: str) -> None:
    capture = recorded(name)
    groups = load_by(capture, "worker")
    rows = [row for row in capture.requests.to_pylist() if row["decode_worker_id"] is not None]
    mine = [one for one in groups if one.key is not None]
    assert sum(one.requests for one in groups) == capture.requests.num_rows
    assert sum(one.requests for one in mine) == len(rows)
    seconds = [one.serving_seconds or 0 for one in mine]
    assert sum(seconds) == pytest.approx(sum(row["total_time_ms"] for row in rows) / 1e3)
    assert max(seconds) * len(seconds) / sum(seconds) == pytest.approx(measure(capture, "worker_load_imbalance").value)
    queues = [one.queue_depth for one in groups if one.queue_depth is not None]
    depth = sum(q[0] for q in queues) / sum(q[1] for q in queues) if queues else None
    assert depth == measure(capture, "queue_depth.mean").value
    attempts = read_by_time(CAPTURES / name, "attempts")
    completed = {a["x_request_id"] for a in attempts if (a["event"], a.get("level")) == ("completed", "request")}
    assert sum(one.completed or 0 for one in groups) <= len(completed)


def test_a_worker_that_restarted_is_one_row_and_rows_without_a_worker_are_one_of_their_own(folder: Path) -> None:
    lost = served("d", 30, 1, [5], took=1, cached=None)
    del lost[0]["request"]["worker"]
    rows = [served("a", 1, 1, [1], took=1), served("b", 20, 9, [1], took=1), served("c", 1, 2, [1], took=2), lost]
    restart = control("cache_reset", 10, worker_id=9, replaced_worker_id=1, update="u")
    capture = opened(folder, **parts(*rows, control=[*started(1, 2), restart]))
    assert [(one.key, one.requests, one.serving_seconds) for one in load_by(capture, "worker")] == [
        ("1", 2, 2.0),
        ("2", 1, 2.0),
        (None, 1, 1.0),
    ]


def test_workers_stand_in_the_order_of_their_numbers(folder: Path) -> None:
    rows = [served(f"r{n}", n, worker, [n]) for n, worker in enumerate((10, 9, 2**64 - 1), 1)]
    assert [one.key for one in load_by(opened(folder, **parts(*rows)), "worker")] == ["9", "10", str(2**64 - 1)]


def test_a_step_is_known_by_its_number_and_requests_between_steps_are_shown(folder: Path) -> None:
    steps = [
        control(f"step_{word}", t, step=n)
        for n, a, b in ((7, 0, 5), (8, 10, 15))
        for word, t in (("started", a), ("finished", b))
    ]
    rows = [served("a", 1, 1, [1, 2]), served("b", 6, 1, [1, 2], cached=2), served("c", 11, 1, [1, 2], cached=1)]
    capture = opened(folder, **parts(*rows, control=steps))
    reused = [(one.key, one.requests, one.shares["kv_reuse_fraction"]) for one in kv_by(capture, Scope(), "step")]
    assert reused == [("7", 1, (0, 2 * BLOCK)), ("8", 1, (BLOCK, 2 * BLOCK)), (None, 1, (2 * BLOCK, 2 * BLOCK))]


def test_what_a_group_does_not_know_is_none_and_never_zero(folder: Path) -> None:
    capture = opened(folder, **parts(served("r", 1, 1, [1])))
    (kv,), (load,) = kv_by(capture, Scope(), "worker"), load_by(capture, "worker")
    assert (kv.shares["kv_reuse_fraction"], kv.shares["kv_predicted_reuse_fraction"]) == ((0, BLOCK), None)
    assert (load.queue_depth, load.completed) == (None, 1)


def test_what_is_left_out_of_the_metrics_is_left_out_of_the_tables(folder: Path) -> None:
    rows = [served("a", 1, 1, [1, 2]), served("b", 2, 1, [1, 2], cached=3)]
    (group,) = kv_by(opened(folder, **parts(*rows)), Scope(), "worker")
    assert (group.requests, group.prompt_tokens) == (1, 2 * BLOCK)


@pytest.mark.parametrize(
    ("by", "words"), [("worker", "no row names its worker"), ("step", "no step has both step_started")]
)
def test_a_capture_that_tells_no_groups_apart_has_no_table_and_says_why(folder: Path, by: By, words: str) -> None:
    row, events = served("r", 1, 1, [1])
    del row["request"]["worker"]
    capture = opened(folder, **parts((row, events)))
    for table in (lambda: kv_by(capture, Scope(), by), lambda: load_by(capture, by)):
        with pytest.raises(NotMeasurable, match=words):
            table()
