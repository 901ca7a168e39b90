"""Rates count what happened in the window over the seconds with the gate open."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hand_made import Record, attempt, completed, control, opened, request_end

from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


STEP = [control("step_started", 0, step=0), control("step_finished", 10, step=0)]
GATE = [control("gate_closed", 2, update=1), control("gate_opened", 4, update=1)]


def fleet(folder: Path, decided: dict[str, int], *, tokens: int | None = 10, **parts: Any) -> Capture:
    """So many attempts of each decision, each with one row; one more of each is decided after the window."""
    events: list[Record] = []
    rows = []
    for decision, count in decided.items():
        for number in range(count + 1):
            name, end = f"{decision}{number}", 5.0 if number < count else 10.5
            events += [event | {"session_id": name} for event in completed(name, 1, end, decision)]
            rows.append(request_end(f"r-{name}", 1, end, session=name, output_tokens=tokens))
    return opened(folder, attempts=events, rows=rows, control=[*STEP, *GATE], **parts)


def value(capture: Capture, name: str) -> float | None:
    return measure(capture, name).value


def test_each_rate_has_its_own_numerator(folder: Path) -> None:
    capture = fleet(folder, {"accepted": 24, "rejected": 16})
    assert value(capture, "accepted_trajectory_throughput") == pytest.approx(24 / 8)
    assert value(capture, "accepted_trajectory_wall_throughput") == pytest.approx(24 / 10)
    assert value(capture, "accepted_token_throughput") == pytest.approx(240 / 8)
    assert value(capture, "output_token_throughput") == pytest.approx(400 / 8)
    assert value(capture, "request_throughput") == pytest.approx(40 / 8)


def test_zero_accepted_is_zero_and_no_decision_at_all_is_unknown(folder: Path) -> None:
    refused = fleet(folder, {"rejected": 40})
    assert value(refused, "accepted_trajectory_throughput") == 0.0
    events = [event for n in range(40) for event in completed(f"a{n}", 1, 5)[:2]]
    undecided = opened(folder.with_name("d"), attempts=events, control=STEP)
    measured = measure(undecided, "accepted_trajectory_throughput")
    assert measured.value is None
    assert "does not record decisions" in str(measured.why)


def test_completed_more_and_accepted_less_is_less(folder: Path) -> None:
    baseline = fleet(folder, {"accepted": 40, "rejected": 8})
    current = fleet(folder.with_name("d"), {"accepted": 30, "rejected": 30})
    accepted = [value(one, "accepted_trajectory_throughput") for one in (baseline, current)]
    served = [value(one, "request_throughput") for one in (baseline, current)]
    assert accepted == [pytest.approx(5.0), pytest.approx(3.75)]
    assert served == [pytest.approx(6.0), pytest.approx(7.5)]


def test_tokens_that_rows_do_not_tell_are_unknown_not_zero(folder: Path) -> None:
    capture = fleet(folder, {"accepted": 40}, tokens=None)
    for name in ("output_token_throughput", "accepted_token_throughput"):
        measured = measure(capture, name)
        assert measured.value is None
        assert "output_tokens is there for 0 of" in str(measured.why)


def test_what_was_left_out_is_said(folder: Path) -> None:
    measured = measure(fleet(folder, {"accepted": 40}), "accepted_trajectory_throughput")
    assert measured.excluded == "2.00 s in which the update gate was shut"


def test_the_makespan_is_of_whole_steps(folder: Path) -> None:
    steps = [*STEP, control("step_started", 10, step=1), control("step_finished", 24, step=1)]
    capture = opened(folder, control=[*steps, control("step_started", 24, step=2)])
    measured = measure(capture, "step_makespan")
    assert (measured.value, measured.n) == (pytest.approx(12.0), 2)


def test_the_tail_bubble_is_the_wait_for_the_last_tenth(folder: Path) -> None:
    ends = [float(number) / 4 for number in range(1, 21)]
    events = [event for n, end in enumerate(ends) for event in completed(f"a{n}", 0, end)]
    late = [attempt("dispatched", "late", 11), attempt("failed", "late", 12)]
    measured = measure(opened(folder, control=STEP, attempts=[*events, *late]), "tail_bubble")
    assert measured.value == pytest.approx(10 - float(np.quantile(ends, 0.9)))


def test_update_downtime_is_from_the_closed_to_the_opened_gate_of_the_same_update(folder: Path) -> None:
    events = [
        *(control("gate_closed", start, update=number) for number, start in enumerate([0, 1, 10])),
        *(control("gate_opened", end, update=number) for number, end in enumerate([2, 5])),
    ]
    measured = measure(opened(folder, control=events), "update_downtime")
    assert (measured.value, measured.n) == (pytest.approx((2 + 4) / 2), 2)


@pytest.mark.parametrize("order", [1, -1])
def test_updates_without_a_name_may_follow_at_one_instant(folder: Path, order: int) -> None:
    events = [
        control("gate_closed", 0),
        control("gate_opened", 5),
        control("gate_closed", 5),
        control("gate_opened", 8),
    ]
    measured = measure(opened(folder, control=events[::order]), "update_downtime")
    assert (measured.value, measured.n) == (pytest.approx(4.0), 2)


def test_without_a_whole_update_there_is_no_downtime(folder: Path) -> None:
    measured = measure(opened(folder, control=[control("gate_closed", 0)]), "update_downtime")
    assert measured.value is None


def test_littles_law_closes(folder: Path) -> None:
    events = [attempt("dispatched", "lost", 2), attempt("failed", "lost", 7), attempt("dispatched", "open", 3)]
    for number in range(40):
        decision = "accepted" if number % 3 else "rejected"
        events += completed(f"a{number}", number / 10, 5 + number / 20, decision)
    capture = opened(folder, attempts=events, control=[*STEP, *GATE])
    names = ("attempts_in_flight", "attempt_residence", "window_completion_fraction", "window_acceptance_fraction")
    in_flight, residence, completion, acceptance = (value(capture, name) or math.nan for name in names)
    rate = value(capture, "accepted_trajectory_throughput")
    assert rate == pytest.approx(in_flight / residence * completion * acceptance)
