"""Is it the same traffic? Measured by what first prompts share and how long inputs and outputs are."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import attempt, opened, request_end

from gate.series import recorded
from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate.workload import unseen, workload_differences, workload_of
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from gate.series import Series
    from pytest_rlserve.capture import Capture

    Measured = Callable[..., Capture]

KEPT = 256
"""How many hashes a baseline keeps."""


def sketch(prompts: Collection[int], **lengths: float) -> dict[str, Any]:
    """Return a workload as a baseline stores it: of many prompts, those with the smallest hashes."""
    lengths = {"input_tokens": 100.0, "output_tokens": 20.0, **lengths}
    return {"chains": [str(one) for one in sorted(prompts)[:KEPT]], **lengths}


def shared(one: Collection[int], other: Collection[int]) -> float | None:
    """Return the share of prompts that the gate says both have; None where it finds enough."""
    found = workload_differences(sketch(one), sketch(other))
    assert len(found) <= 1
    return float(re.findall(r"workload: ([\d.]+) % of first prompts", found[0])[0]) / 100 if found else None


def two_sets(size: int, both: float, draw: random.Random) -> tuple[set[int], set[int]]:
    """Draw two sets of 64-bit hashes of one size, of which they share a part."""
    common = {draw.getrandbits(64) for _ in range(round(size * both))}
    sides = [common | {draw.getrandbits(64) for _ in range(size - len(common))} for _ in range(2)]
    return sides[0], sides[1]


# -- the overlap of two sets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 20, 48, 255])
@pytest.mark.parametrize("both", [0.0, 0.3, 0.5, 0.9])
def test_of_few_prompts_the_overlap_is_exact(size: int, both: float) -> None:
    one, other = two_sets(size, both, random.Random(size))
    if len(one & other) / size < 0.95:
        assert shared(one, other) == pytest.approx(len(one & other) / size, abs=0.0005)
    else:
        assert shared(one, other) is None


@pytest.mark.parametrize("size", [300, 1000, 5000])
@pytest.mark.parametrize("both", [0.1, 0.5, 0.8, 0.9])
def test_of_many_prompts_the_overlap_is_estimated_within_four_standard_errors(size: int, both: float) -> None:
    for seed in range(20):
        one, other = two_sets(size, both, random.Random(seed))
        found = shared(one, other)
        exact = len(one & other) / size
        assert (1.0 if found is None else found) == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 200) ** 0.5)


def test_the_same_traffic_is_never_taken_for_other_traffic() -> None:
    for seed in range(50):
        one, _ = two_sets(3000, 1.0, random.Random(seed))
        assert shared(one, one) is None


def test_one_prompt_in_ten_replaced_is_noticed_almost_always() -> None:
    noticed = sum(shared(*two_sets(2000, 0.88, random.Random(seed))) is not None for seed in range(100))
    assert noticed >= 98


def test_a_part_of_the_prompts_is_not_the_same_traffic() -> None:
    """A run that was cut short served the first half alone, and that is other work."""
    one, _ = two_sets(200, 1.0, random.Random(1))
    assert shared(one, set(sorted(one)[::2])) == pytest.approx(0.5)
    assert shared(set(sorted(one)[::2]), one) == pytest.approx(0.5)


@pytest.mark.parametrize(("missing", "same"), [(5, True), (6, False)])
def test_95_percent_is_enough(missing: int, same: bool) -> None:
    one = set(range(1, 101))
    other = set(range(1 + missing, 101 + missing))
    assert (shared(one, other) is None) == same


# -- lengths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens"])
@pytest.mark.parametrize(("factor", "same"), [(1.029, True), (0.971, True), (1.031, False), (0.969, False)])
def test_mean_lengths_may_differ_by_3_percent(name: str, factor: float, same: bool) -> None:
    found = workload_differences(sketch({1}, **{name: 1000.0}), sketch({1}, **{name: 1000.0 * factor}))
    assert (found == []) == same
    if not same:
        (line,) = found
        words = name.replace("_", " ")
        assert line == (
            f"workload: mean {words} 1,000.0 in the baseline, {1000 * factor:,.1f} in current runs (3.0 % allowed)"
        )


def test_all_that_differs_is_listed() -> None:
    found = workload_differences(sketch({1}), sketch({2}, input_tokens=1.0, output_tokens=1.0))
    assert [re.match(r"workload: (0.0 %|mean \w+)", line)[1] for line in found] == [  # type: ignore[index]
        "0.0 %",
        "mean input",
        "mean output",
    ]


# -- of captures ------------------------------------------------------------------------------------------------------


def test_a_workload_is_the_last_hash_of_each_sessions_first_prompt_and_the_mean_lengths(
    measured: Measured, tmp_path: Path
) -> None:
    found = workload_of([measured()])
    lines = (tmp_path / "captures" / "run-1" / "request-trace.jsonl").read_text().splitlines()
    requests = [json.loads(line)["request"] for line in lines]
    assert found is not None
    assert found["chains"] == [
        str(one) for one in sorted(request["replay"]["input_sequence_hashes"][-1] for request in requests)
    ]
    for name in ("input_tokens", "output_tokens"):
        assert found[name] == sum(request[name] for request in requests) / len(requests)


def test_other_prompts_are_another_workload(measured: Measured) -> None:
    one, same, other = (workload_of([measured(prompt=prompt)]) for prompt in (0, 0, 9))
    assert workload_differences(one, same) == []
    assert workload_differences(one, other) == ["workload: 0.0 % of first prompts are shared, 95.0 % needed"]


def test_captures_are_taken_together(measured: Measured) -> None:
    found = workload_of([measured(), measured(prompt=1)])
    assert found is not None and len(found["chains"]) == 80


def test_what_a_trace_does_not_show_is_not_made_up(measured: Measured) -> None:
    whole = measured()
    bare = whole.replace(requests=whole.requests.slice(0, 0))
    assert workload_of([bare]) is None
    assert workload_of([whole, bare]) is None
    assert workload_differences(None, workload_of([whole])) == []


@pytest.mark.parametrize("name", [name for name in recorded() if name.startswith(("baseline", "regressed"))])
def test_recorded_repeats_share_their_first_prompts_although_outputs_are_sampled(name: str) -> None:
    first, again = (workload_of([open_capture(recorded()[one])]) for one in ("baseline_kv_1", name))
    assert first is not None and again is not None
    assert first["chains"] == again["chains"]
    assert workload_differences(first, again) == []


@pytest.mark.parametrize("name", ["lossy_1", "payload_1", "killed_1", "killed_2"])
def test_recorded_captures_of_other_or_less_work_are_told_apart_by_measurement_alone(name: str) -> None:
    first, other = (workload_of([open_capture(recorded()[one])]) for one in ("baseline_kv_1", name))
    found = workload_differences(first, other)
    assert found and all(line.startswith("workload: ") for line in found)


def test_traffic_that_one_side_alone_shows_is_said_to_be_unmeasured(measured: Measured) -> None:
    shown = measured()
    hidden = shown.replace(requests=shown.requests.slice(0, 0))
    stored = workload_of([shown])
    assert stored is not None
    assert unseen(stored, [shown]) == unseen(None, [hidden]) == ""
    assert unseen(stored, [hidden]) == "the current runs do not show it"
    assert unseen(None, [shown]) == "the baseline does not show it"


def test_the_note_stands_beside_the_verdict(series: Series, measured: Measured) -> None:
    shown = measured()
    series.take(shown)
    document = series.document
    del document["workload"]
    store.write(series.path, document)
    found = series.gate(measured(job="job-b")).comparison("accepted_trajectory_throughput", 0.05)
    assert found.why == "whether it is the same traffic was not measured: the baseline does not show it"


def test_a_trace_that_names_no_session_shows_no_workload(tmp_path: Path) -> None:
    rows = [request_end("r", input_tokens=5)]
    attempts = [attempt("dispatched", "a", -1, x_request_id="r"), attempt("completed", "a", 2)]
    assert workload_of([opened(tmp_path / "c", rows=rows, attempts=attempts)]) is None
