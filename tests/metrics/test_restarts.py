"""A step that came again counts once, with its later time and acceptances; no process, no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hand_made import EPOCH, Record, attempt, control, opened, request_end
from samples import sample

from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.restarts import Restart, restarts, undone
from pytest_rlserve.metrics.window import step_spans, window

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


def step(number: int, start: float, finish: float | None, **fields: Any) -> list[Record]:
    first = control("step_started", start, step=number, **fields)
    return [first] if finish is None else [first, control("step_finished", finish, step=number, **fields)]


def accepted(name: str, end: float, **fields: Any) -> list[Record]:
    """An attempt of 5 s that is accepted as soon as it ends."""
    events = ("dispatched", end - 5), ("completed", end), ("accepted", end)
    return [attempt(event, name, t, session_id=name, **fields) for event, t in events]


def batch(prefix: str, end: float, count: int = 40, **fields: Any) -> list[Record]:
    return [event for number in range(count) for event in accepted(f"{prefix}{number}", end, **fields)]


def killed(folder: Path, *, run: str | None = None, again: str | None = None) -> Capture:
    """Steps 0 and 1 of 10 s, a step 2 that is killed at 25; from 125 on step 1 and 2 again."""
    old, new = ({"run": one} if one else {} for one in (run, again))
    steps = [*step(0, 0, 10, **old), *step(1, 10, 20, **old), *step(2, 20, None, **old)]
    steps += [*step(1, 125, 135, **new), *step(2, 135, 145, **new)]
    attempts = batch("a", 10, **old) + batch("b", 20, **old) + batch("c", 135, **new) + batch("d", 145, **new)
    attempts += [attempt("dispatched", "open", 22, **old)]
    return opened(folder, control=steps, attempts=attempts)


def test_a_capture_without_a_restart_has_none(tmp_path: Path) -> None:
    capture = opened(tmp_path, control=[*step(0, 0, 10), *step(1, 10, 20), *step(2, 15, 30)])
    assert capture.derive(restarts) == ()


def test_a_step_that_begins_again_undoes_all_from_its_first_beginning(tmp_path: Path) -> None:
    capture = killed(tmp_path)
    assert capture.derive(restarts) == (Restart(EPOCH + 10, EPOCH + 125, (1, 2)),)
    assert step_spans(capture) == [(EPOCH, EPOCH + 10), (EPOCH + 125, EPOCH + 135), (EPOCH + 135, EPOCH + 145)]


@pytest.mark.parametrize(("run", "again"), [(None, None), ("r", "r"), ("r", "s")])
def test_the_window_leaves_out_what_was_undone_and_says_so(tmp_path: Path, run: str | None, again: str | None) -> None:
    capture = killed(tmp_path, run=run, again=again)
    found = window(capture)
    assert found.seconds == pytest.approx(30)
    assert found.excluded == ((EPOCH + 10, EPOCH + 125),)
    assert "3 whole steps; a restart left out: 115.0 s, 2 steps that came again" in found.reason


def test_an_attempt_of_an_undone_step_counts_for_nothing(tmp_path: Path) -> None:
    capture = killed(tmp_path)
    measured = measure(capture, "accepted_trajectory_throughput")
    assert (measured.value, measured.n) == (pytest.approx(120 / 30), 120)
    assert measured.excluded == "115.00 s that a restart undid or in which no process ran"
    assert measure(capture, "accepted_trajectory_wall_throughput").value == pytest.approx(4)
    assert measure(capture, "step_makespan").n == 3
    counts = capture.derive(ledger).counts("attempt")
    assert counts is not None
    assert counts.accepted == 160  # the trainer did accept them, for what it was worth


def test_its_tokens_are_waste(tmp_path: Path) -> None:
    steps = [*step(0, 0, 10), *step(1, 10, 20), *step(1, 125, 135)]
    attempts = accepted("a", 10) + accepted("b", 20) + accepted("c", 135)
    rows = [request_end(n, end - 4, end - 1, session=n) for n, end in (("a", 10), ("b", 20), ("c", 135))]
    capture = opened(tmp_path, control=steps, attempts=attempts, rows=rows)
    assert measure(capture, "wasted_token_fraction").value == pytest.approx(1 / 3)


def test_its_lag_is_no_lag_of_the_run(tmp_path: Path) -> None:
    steps = [*step(0, 0, 10), *step(1, 10, 20), *step(1, 125, 135)]
    attempts = [
        event
        for name, end, policy in (("a", 10, 1), ("b", 20, 0), ("c", 135, 1))
        for event in accepted(name, end, policy=policy, trained_version=1)
    ]
    measured = measure(opened(tmp_path, control=steps, attempts=attempts), "policy_lag.max")
    assert (measured.value, measured.n) == (0, 2)
    assert measured.excluded == "1 accepted by a step that a restart undid"


def test_a_gap_between_processes_is_left_out_even_where_no_step_comes_again(tmp_path: Path) -> None:
    steps = [*step(0, 0, 10, run="r"), *step(1, 300, 310, run="s")]
    attempts = batch("a", 10, run="r") + batch("b", 310, run="s")
    capture = opened(tmp_path, control=steps, attempts=attempts)
    assert capture.derive(restarts) == (Restart(EPOCH + 10, EPOCH + 300, ()),)
    assert window(capture).seconds == pytest.approx(20)


def test_two_runs_at_once_are_no_restart(tmp_path: Path) -> None:
    steps = [*step(0, 0, 10, run="r"), *step(1, 10, 20, run="s"), *step(2, 20, 30, run="r")]
    attempts = batch("a", 5, run="s") + batch("b", 25, run="r")
    assert opened(tmp_path, control=steps, attempts=attempts).derive(restarts) == ()


def test_a_step_told_by_two_sources_is_one_step(tmp_path: Path) -> None:
    capture = opened(tmp_path, control=[*step(0, 0, 10), *step(0, 0.2, 10.1), *step(1, 10.2, 20)])
    assert capture.derive(restarts) == ()


def test_a_gate_that_a_killed_process_had_shut_is_open_again_in_the_next(tmp_path: Path) -> None:
    capture = killed(tmp_path / "a")
    shut = [control("gate_closed", 24, update=2)]
    steps = [*step(0, 0, 10), *step(1, 10, 20), *step(2, 20, None), *step(2, 125, 135), *shut]
    attempts = batch("a", 10) + batch("b", 20) + batch("c", 135)
    found = window(opened(tmp_path / "b", control=steps, attempts=attempts))
    assert found.closed == ()
    assert found.open_seconds == pytest.approx(30)
    assert window(capture).closed == ()


def test_where_only_trained_steps_are_told_the_step_before_shows_the_beginning() -> None:
    capture = sample("nemo_rl.jsonl")
    assert capture.derive(restarts) == (Restart(1_790_000_061.0, 1_790_000_600.0, (3,)),)
    thrown_away, stands, trained_again = 1_790_000_081.0, 1_790_000_061.0, 1_790_000_650.0
    assert undone(capture, np.array([thrown_away, stands, trained_again])).tolist() == [True, False, False]


def test_two_restarts_are_two_spans(tmp_path: Path) -> None:
    steps = [*step(0, 0, 10), *step(1, 10, None), *step(1, 50, None), *step(1, 90, 100)]
    found = opened(tmp_path, control=steps).derive(restarts)
    assert found == (Restart(EPOCH + 10, EPOCH + 50, (1,)), Restart(EPOCH + 50, EPOCH + 90, (1,)))
