"""Ceilings and losses of KV reuse: the same requests for all of them, and only like compared with like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fleets import BLOCK, parts, served, started, update
from hand_made import Record, control, opened
from oracle import CAPTURES

from pytest_rlserve.metrics import METRICS, Scope
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

SHARES = ("kv_reuse_fraction", "kv_eviction_loss", "kv_routing_loss", "kv_cold_fraction")
STATED = {
    "baseline_kv_1": {
        "kv_reuse_fraction": 0.645,
        "kv_reuse_ceiling": 0.765,
        "kv_worker_ceiling": 0.649,
        "kv_routing_loss": 0.116,
        "kv_eviction_loss": 0.005,
        "kv_reuse_efficiency": 0.843,
        "kv_predicted_reuse_fraction": 0.631,
    },
    "regressed_round_robin_1": {
        "kv_reuse_fraction": 0.516,
        "kv_reuse_ceiling": 0.765,
        "kv_worker_ceiling": 0.546,
        "kv_routing_loss": 0.219,
    },
    "small_cache_1": {
        "kv_reuse_fraction": 0.419,
        "kv_reuse_ceiling": 0.765,
        "kv_worker_ceiling": 0.644,
        "kv_eviction_loss": 0.224,
        "kv_predicted_reuse_fraction": 0.533,
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def value(capture: Capture, name: str, scope: Scope | None = None) -> float | None:
    return measure(capture, name, scope).value


def made(folder: Path, *requests: Any, events: list[Record] | None = None) -> Capture:
    return opened(folder, **parts(*requests, control=events or []))


@pytest.mark.parametrize("name", STATED)
def test_recorded_runs_have_the_stated_shares(name: str) -> None:
    capture = open_capture(CAPTURES / name)
    found = {metric: measure(capture, metric) for metric in STATED[name]}
    assert {one.n for one in found.values()} == {784}
    assert {metric: one.value for metric, one in found.items()} == pytest.approx(STATED[name], abs=0.0006)


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.iterdir() if path.is_dir()))
def test_reuse_losses_and_cold_share_make_up_the_whole(name: str) -> None:
    capture = open_capture(CAPTURES / name)
    assert sum(value(capture, metric) or 0 for metric in SHARES) == pytest.approx(1)


def test_the_loss_that_grew_is_named_eviction_with_a_small_cache_and_routing_without_kv_routing() -> None:
    losses = ("kv_eviction_loss", "kv_routing_loss", "kv_cold_fraction")
    before = open_capture(CAPTURES / "baseline_kv_1")
    for name, grown in (("small_cache_1", "kv_eviction_loss"), ("regressed_round_robin_1", "kv_routing_loss")):
        after = open_capture(CAPTURES / name)
        assert max(losses, key=lambda one: (value(after, one) or 0) - (value(before, one) or 0)) == grown


def test_each_share_by_hand(folder: Path) -> None:
    requests = [
        served("a", 1, 1, [1, 2, 3, 4]),  # cold
        served("b", 2, 1, [1, 2, 3, 5], cached=2),  # one block evicted, one cold
        served("c", 3, 2, [1, 2, 3, 4]),  # all of it on the other worker
    ]
    capture = made(folder, *requests)
    found = {name: (value(capture, name) or 0) * 12 for name in (*SHARES, "kv_reuse_ceiling", "kv_worker_ceiling")}
    assert found == pytest.approx(
        {
            "kv_reuse_fraction": 2,
            "kv_eviction_loss": 1,
            "kv_routing_loss": 4,
            "kv_cold_fraction": 5,
            "kv_reuse_ceiling": 7,
            "kv_worker_ceiling": 3,
        }
    )
    assert value(capture, "kv_reuse_efficiency") == pytest.approx(2 / 7)


def test_a_new_version_makes_prompts_cold_again_and_a_reset_alone_is_a_loss(folder: Path) -> None:
    requests = served("a", 1, 1, [1, 2]), served("b", 12, 1, [1, 2])
    flush = [*started(1), control("cache_reset", 10, worker_id=1, update="flush")]
    updated = made(folder, *requests, events=[*started(1), *update(1)])
    flushed = made(folder.with_name("d"), *requests, events=flush)
    assert (value(updated, "kv_reuse_ceiling"), value(updated, "kv_worker_ceiling")) == (0, 0)
    assert (value(flushed, "kv_reuse_ceiling"), value(flushed, "kv_worker_ceiling")) == (0.5, 0)


def test_a_request_during_which_a_version_comes_back_does_not_reuse_itself(folder: Path) -> None:
    long = served("a", 9, 1, [1, 2], took=10)
    events = [*started(1), *update(1, t=10), *update(1, t=11, version=0, update="back")]
    assert value(made(folder, long, events=events), "kv_reuse_ceiling") == 0


def test_a_request_that_comes_before_the_first_token_counts_and_one_that_comes_after_does_not(folder: Path) -> None:
    first = served("a", 1, 1, [1, 2], took=1.0)  # its first token comes half a second later
    early = made(folder, first, served("b", 1.4, 1, [1, 2]))
    late = made(folder.with_name("d"), first, served("b", 1.6, 1, [1, 2]))
    assert (value(early, "kv_reuse_ceiling"), value(late, "kv_reuse_ceiling")) == (1.0, 0.5)


def test_a_prefix_shorter_than_a_block_cannot_be_reused(folder: Path) -> None:
    requests = [served(f"r{n}", n, 1, [n, n + 10]) for n in range(4)]
    capture = made(folder, *requests)
    assert value(capture, "kv_reuse_ceiling") == 0
    measured = measure(capture, "kv_reuse_efficiency")
    assert measured.value is None
    assert "nothing could be reused" in str(measured.why)


def test_blocks_of_different_sizes_or_models_are_never_the_same(folder: Path) -> None:
    (row, events), other = served("a", 1, 1, [1, 2]), served("b", 2, 1, [1, 2])
    row["request"]["replay"] = {"trace_block_size": 8, "input_length": 16, "input_sequence_hashes": [1, 2]}
    assert value(made(folder, (row, events), other), "kv_reuse_ceiling") == 0
    for session, (one, _) in (("s", other), ("t", served("c", 3, 1, [1, 2]))):
        one["agent_context"] = {"session_id": session}
    models = [served(f"m{n}", n, 1, [1, 2], model=f"m{n}", session=f"s{n}") for n in range(2)]
    assert value(made(folder.with_name("d"), *models), "kv_reuse_ceiling") == 0


@pytest.mark.parametrize(("length", "ceiling"), [(2 * BLOCK, 4), (2 * BLOCK - 1, 1)])
def test_output_of_an_earlier_turn_counts_where_its_whole_input_is_covered(
    folder: Path, length: int, ceiling: int
) -> None:
    row, events = served("t1", 1, 1, [1, 2], session="s", output_tokens=2 * BLOCK + 1)
    row["request"]["replay"]["input_length"] = row["request"]["input_tokens"] = length
    capture = made(folder, (row, events), served("t2", 3, 1, [1, 2, 3, 4, 5], session="s"))
    assert (value(capture, "kv_reuse_ceiling") or 0) * (length + 5 * BLOCK) == pytest.approx(ceiling * BLOCK)


@pytest.mark.parametrize(("output", "blocks"), [(2 * BLOCK, 3), (2 * BLOCK + 1, 4)])
def test_the_last_token_of_an_output_was_never_computed(folder: Path, output: int, blocks: int) -> None:
    first = served("t1", 1, 1, [1, 2], session="s", output_tokens=output)
    capture = made(folder, first, served("t2", 3, 1, [1, 2, 3, 4, 5], session="s"))
    assert (value(capture, "kv_reuse_ceiling") or 0) * 7 == pytest.approx(blocks)


def test_output_counts_as_far_as_it_was_reused_where_the_hashes_cannot_tell(folder: Path) -> None:
    row, events = served("t1", 1, 1, [1, 2], session="s", output_tokens=3 * BLOCK)
    row["request"]["replay"]["input_length"] = row["request"]["input_tokens"] = 2 * BLOCK - 1
    capture = made(folder, (row, events), served("t2", 3, 1, [1, 2, 3, 4, 5], session="s", cached=3))
    whole = 7 * BLOCK - 1
    assert [(value(capture, f"kv_{name}") or 0) * whole for name in ("reuse_ceiling", "worker_ceiling")] == [
        pytest.approx(3 * BLOCK)
    ] * 2


# -- left out, and shown ------------------------------------------------------------------------------------------

WARM = [*started(1), *update(1)]


def warmed(folder: Path) -> Capture:
    requests = served("a", 1, 1, [1, 2]), served("b", 10.9, 1, [1, 2]), served("c", 15, 1, [1, 2], cached=2)
    return made(folder, *requests, events=WARM)


@pytest.mark.parametrize(("seconds", "n", "share"), [(0, 3, 1 / 3), (0.4, 3, 1 / 3), (0.41, 2, 1 / 2)])
def test_after_reset_leaves_out_what_came_too_soon_and_shows_it(
    folder: Path, seconds: float, n: int, share: float
) -> None:
    measured = measure(warmed(folder), "kv_reuse_fraction", Scope(after_reset=seconds))
    assert (measured.n, measured.value) == (n, pytest.approx(share))
    said = "1 request received within 0.41 s after a reset of their worker's cache (32 prompt tokens, 0.0 % of them reused)"  # noqa: E501
    assert measured.excluded == (said if n == 2 else "")
    assert ("less 0.41 s after each cache reset" in measured.definition["phase"]) is (seconds == 0.41)


def test_after_reset_is_refused_where_it_leaves_nothing(folder: Path) -> None:
    requests = served("b", 11, 1, [1, 2]), served("c", 15, 1, [1, 2], cached=2)
    measured = measure(made(folder, *requests, events=WARM), "kv_reuse_fraction", Scope(after_reset=60))
    assert measured.value is None
    assert "after_reset = 60 s leaves no request" in str(measured.why)


def test_after_reset_needs_rows(folder: Path) -> None:
    events = [event for _, some in (served("a", 1, 1, [1]),) for event in some]
    measured = measure(opened(folder, attempts=events), "kv_reuse_fraction", Scope(after_reset=1))
    assert "after_reset needs served rows" in str(measured.why)


def test_only_requests_with_a_row_count_where_there_are_rows(folder: Path) -> None:
    _, lost = served("lost", 2, 1, [7, 8], cached=2)
    whole = parts(served("a", 1, 1, [1, 2], cached=1))
    whole["attempts"] += lost
    assert measure(opened(folder, **whole), "kv_reuse_fraction").value == 0.5


def test_rows_whose_end_nobody_recorded_count_if_they_produced_output_and_that_is_said(folder: Path) -> None:
    rows = [served("a", 1, 1, [1, 2], cached=None)[0], served("b", 2, 1, [1, 2], cached=None, output_tokens=0)[0]]
    for row in rows:
        row["request"]["cached_tokens"] = BLOCK
    measured = measure(opened(folder, rows=rows), "kv_reuse_fraction")
    assert (measured.n, measured.value) == (1, 0.5)
    assert "nothing records how requests ended" in measured.excluded


@pytest.mark.parametrize("known", [19, 18])
def test_a_metric_speaks_for_95_percent_of_the_requests_or_not_at_all(folder: Path, known: int) -> None:
    requests = [served(f"r{n}", n, 1 if n < known else None, [1]) for n in range(20)]
    for row, _ in requests[known:]:
        del row["request"]["worker"]
    measured = measure(made(folder, *requests), "kv_worker_ceiling")
    assert (measured.value is not None) is (known == 19)
    assert known == 19 or measured.why == "block hashes and the worker's id are there for 18 of 20 completed requests"


def test_the_prediction_is_shown_with_its_error_and_never_mixed_with_the_engines_number(folder: Path) -> None:
    requests = [
        served("a", 1, 1, [1, 2, 3, 4], cached=1, cached_tokens=3 * BLOCK, kv_hit_rate=0.75),
        served("b", 2, 1, [1, 2, 3, 4], cached=4, cached_tokens=3 * BLOCK, kv_hit_rate=0.75),
    ]
    capture = made(folder, *requests)
    assert value(capture, "kv_reuse_fraction") == 5 / 8
    assert value(capture, "kv_predicted_reuse_fraction") == 6 / 8
    assert value(capture, "kv_prediction_error_fraction") == 3 / 8


# -- compared -----------------------------------------------------------------------------------------------------


def test_the_number_of_workers_is_part_of_the_definition_and_a_restart_is_no_new_worker() -> None:
    half, whole = (open_capture(CAPTURES / name) for name in ("regressed_half_workers_1", "baseline_kv_1"))
    for name in METRICS:
        digests = {measure(capture, name).definition["digest"] for capture in (half, whole)}
        assert (len(digests) == 2) is METRICS[name].fleet, name
    assert measure(whole, "kv_reuse_ceiling").definition["phase"] == "whole capture, 4 workers"
    assert measure(half, "kv_reuse_ceiling").definition["phase"] == "whole capture, 2 workers"


@pytest.mark.parametrize(("cached", "known"), [(4, True), (5, False)])
@pytest.mark.parametrize("name", ["kv_reuse_efficiency", "kv_eviction_loss"])
def test_more_reuse_than_the_rows_allow_is_no_efficiency_above_one(
    folder: Path, name: str, cached: int, known: bool
) -> None:
    """Another prompt of the same worker shares four blocks, so a fifth that was reused shows that a row is missing."""
    rows = served("r1", 0, 1, [1, 2, 3, 4]), served("r2", 5, 1, [1, 2, 3, 4, 5, 6], cached=cached)
    found = measure(made(folder, *rows), name)
    assert (found.value is not None) is known
    if not known:
        assert f"{cached * BLOCK} tokens were reused, but the rows allow only {4 * BLOCK}" in str(found.why)
