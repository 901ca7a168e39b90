"""The window of the throughput family: whole steps, less the time with the gate shut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hand_made import EPOCH, Record, completed, control, opened

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.window import shut_spans, step_spans, window, within

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def step(number: int, start: float, end: float) -> list[Record]:
    return [control("step_started", start, step=number), control("step_finished", end, step=number)]


def gate(start: float, end: float | None, update: Any = None) -> list[Record]:
    fields = {} if update is None else {"update": update}
    closed = control("gate_closed", start, **fields)
    return [closed] if end is None else [closed, control("gate_opened", end, **fields)]


def attempts(count: int, end: float, decision: str = "accepted") -> list[Record]:
    return [event for number in range(count) for event in completed(f"a{end}-{number}", 0, end, decision)]


def recorded(folder: Path, *events: Record, accepted: int = 40, at: float = 5) -> Capture:
    return opened(folder, control=events, attempts=attempts(accepted, at))


def bounds(capture: Capture, skip_steps: int = 0) -> tuple[float, float]:
    found = window(capture, skip_steps)
    return found.start - EPOCH, found.end - EPOCH


def closed(capture: Capture) -> list[tuple[float, float]]:
    return [(start - EPOCH, end - EPOCH) for start, end in window(capture).closed]


def test_the_window_runs_from_the_first_start_of_a_step_to_the_last_finish(folder: Path) -> None:
    capture = recorded(folder, *step(1, 10, 20), *step(0, 2, 9), *step(2, 19, 31))
    assert bounds(capture) == (2, 31)
    assert "3 whole steps" in window(capture).reason


def test_steps_may_be_left_out_at_the_start(folder: Path) -> None:
    capture = recorded(folder, *step(0, 0, 9), *step(1, 10, 20), *step(2, 20, 30), at=15)
    assert bounds(capture, skip_steps=1) == (10, 30)
    assert "the first 1 left out" in window(capture, 1).reason
    with pytest.raises(NotMeasurable, match="skip_steps = 3 leaves no step: the capture has 3"):
        window(capture, 3)


def test_a_step_that_never_finished_is_no_whole_step(folder: Path) -> None:
    capture = recorded(folder, *step(0, 0, 9), control("step_started", 9, step=1))
    assert bounds(capture) == (0, 9)


def test_a_step_that_was_started_again_counts_from_its_last_start(folder: Path) -> None:
    capture = recorded(folder, control("step_started", 0, step=0), *step(0, 4, 9))
    assert [(start - EPOCH, end - EPOCH) for start, end in step_spans(capture)] == [(4, 9)]


def test_without_steps_it_runs_from_the_first_acceptance_which_is_not_counted_to_the_last(folder: Path) -> None:
    capture = opened(
        folder, attempts=[*attempts(1, 3), *attempts(39, 7), *attempts(1, 13), *attempts(5, 20, "rejected")]
    )
    assert bounds(capture) == (3, 13)
    measured = measure(capture, "accepted_trajectory_throughput")
    assert (measured.value, measured.n) == (pytest.approx(40 / 10), 40)


def test_one_acceptance_without_steps_spans_no_time(folder: Path) -> None:
    with pytest.raises(NotMeasurable, match="1 accepted attempts span no time"):
        window(opened(folder, attempts=[*attempts(1, 3), *attempts(40, 5, "rejected")]))


def test_all_acceptances_at_one_instant_span_no_time(folder: Path) -> None:
    with pytest.raises(NotMeasurable, match="no length"):
        window(opened(folder, attempts=attempts(40, 3)))


def test_a_span_given_by_the_policy_stands_in_for_steps_and_never_cuts_them(folder: Path) -> None:
    given = (EPOCH + 1, EPOCH + 11)
    without = opened(folder, attempts=[*attempts(1, 0.5), *attempts(40, 5)])
    assert measure(without, "accepted_trajectory_throughput", Scope(span=given)).value == pytest.approx(4.0)
    stepped = recorded(folder.with_name("d"), *step(0, 0, 20))
    assert measure(stepped, "accepted_trajectory_throughput", Scope(span=given)).value == pytest.approx(2.0)


@pytest.mark.parametrize(("completions", "enough"), [(29, False), (30, True)])
def test_under_thirty_completions_nothing_is_observed(folder: Path, completions: int, enough: bool) -> None:
    measured = measure(recorded(folder, *step(0, 0, 10), accepted=completions), "accepted_trajectory_throughput")
    assert (measured.value is not None) is enough
    assert measured.why == (None if enough else "29 attempts were completed in the window of 10.0 s, under 30")


def test_completions_outside_the_window_do_not_help(folder: Path) -> None:
    capture = recorded(folder, *step(0, 0, 10), accepted=29)
    more = opened(folder, control=step(0, 0, 10), attempts=[*attempts(29, 5), *attempts(9, 10.5)])
    for one in (capture, more):
        with pytest.raises(NotMeasurable, match="29 attempts"):
            window(one)


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ([], []),
        (gate(2, 4), [(2, 4)]),
        (gate(-5, 2), [(0, 2)]),
        (gate(8, 15), [(8, 10)]),
        (gate(-5, -1) + gate(11, 12), []),
        (gate(2, 4, 1) + gate(3, 6, 2), [(2, 6)]),
        (gate(2, 8, 1) + gate(3, 4, 2), [(2, 8)]),
        (gate(2, 4, 1) + gate(4, 6, 2), [(2, 6)]),
        (gate(2, 3, 1) + gate(5, 6, 2), [(2, 3), (5, 6)]),
        (gate(2, 4) + gate(4, 6), [(2, 6)]),
        (gate(6, None), [(6, 10)]),
        (gate(2, 3, 1) + gate(6, None, 2), [(2, 3), (6, 10)]),
        (gate(3, 3) + gate(5, 6), [(3, 3), (5, 6)]),
        ([control("gate_opened", 3), *gate(5, 6)], [(5, 6)]),
        ([control("gate_closed", 2), control("gate_closed", 3), control("gate_opened", 5)], [(2, 5)]),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_the_time_with_the_gate_shut_is_cut_to_the_window_and_counted_once(
    folder: Path, gates: list[Record], expected: list[tuple[float, float]], order: int
) -> None:
    capture = recorded(folder, *step(0, 0, 10), *gates[::order])
    assert closed(capture) == expected
    assert window(capture).open_seconds == pytest.approx(10 - sum(end - start for start, end in expected))


def test_a_gate_that_never_opens_again_is_shut_to_the_end(folder: Path) -> None:
    capture = recorded(folder, *step(0, 0, 10), *gate(6, None))
    assert [end for _, end in shut_spans(capture)] == [float("inf")]
    measured = measure(capture, "accepted_trajectory_throughput")
    assert measured.value == pytest.approx(40 / 6)
    assert "4.00 s in which the update gate was shut" in measured.excluded


def test_a_lost_opening_does_not_shorten_the_window(folder: Path) -> None:
    """Attempts were let in after the gate was shut, so it did open: its record is lost, and the rate with it."""
    late = [event for n in range(10) for event in completed(f"late-{n}", 7, 9)]
    capture = opened(folder, control=[*step(0, 0, 10), *gate(6, None)], attempts=[*attempts(40, 5), *late])
    measured = measure(capture, "accepted_trajectory_throughput")
    assert measured.value is None
    assert "10 attempts were dispatched after it and completed" in str(measured.why)


@pytest.mark.parametrize("others", [[], gate(5, 6, 2)])
@pytest.mark.parametrize(("dispatched", "known"), [(0.5, False), (3.5, True)])
def test_a_lost_closing_does_not_lengthen_the_window(
    folder: Path, others: list[Record], dispatched: float, known: bool
) -> None:
    """Attempts were let in before the gate opened, so it had been shut in between; else the run began with it shut."""
    events = [event for n in range(40) for event in completed(f"a{n}", dispatched, 9)]
    capture = opened(folder, control=[*step(0, 0, 10), control("gate_opened", 3, update=1), *others], attempts=events)
    measured = measure(capture, "accepted_trajectory_throughput")
    assert (measured.value is not None) is known
    if not known:
        assert "40 attempts of the window had been dispatched before it" in str(measured.why)


def test_a_gate_shut_all_the_time_leaves_nothing_to_observe(folder: Path) -> None:
    measured = measure(recorded(folder, *step(0, 0, 10), *gate(-1, 20)), "accepted_trajectory_throughput")
    assert measured.value is None
    assert "shut during the whole window" in str(measured.why)


def test_an_instant_belongs_to_the_window_that_it_ends(folder: Path) -> None:
    found = window(recorded(folder, *step(0, 0, 10)))
    instants = np.array([np.nan, EPOCH, EPOCH + 0.001, EPOCH + 10, EPOCH + 10.001])
    assert within(found, instants).tolist() == [False, False, True, True, False]
