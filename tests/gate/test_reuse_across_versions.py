"""Reuse of what an earlier policy version computed meets no floor and is no improvement; floors out of reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fleets import BLOCK, parts, served, started, update, without
from hand_made import Record, opened
from oracle import CAPTURES

from pytest_rlserve.asserts import assert_kv_reuse, assert_limit
from pytest_rlserve.checks import run_check
from pytest_rlserve.gate import refresh
from pytest_rlserve.gate.judgement import Update
from pytest_rlserve.gate.limits import parse_limit
from pytest_rlserve.gate.perturb import PERTURBATIONS
from pytest_rlserve.gate.policy_file import load
from pytest_rlserve.gate.verdicts import Gate
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

PROMPT = list(range(1, 11))
KEPT = [*started(1), *without(update(1), "cache_reset", 1)]
REUSE = "kv_reuse_fraction"


def made(folder: Path, events: list[Record], *requests: Any) -> Capture:
    return opened(folder, **parts(*requests, control=events))


@pytest.fixture
def stale(tmp_path: Path) -> Capture:
    """A cold prompt, the same again out of the old version's blocks, and a third time out of the new one's.

    Of 30 blocks 20 were reused, 10 of them stale. Left out, 10 of 20 are left; counted as none, 10 of 30.
    """
    again = served("again", 12, 1, PROMPT, cached=10), served("warm", 13, 1, PROMPT, cached=10)
    return made(tmp_path / "c", KEPT, served("cold", 1, 1, PROMPT), *again)


def test_a_reuse_has_three_numbers_where_some_of_it_is_stale(stale: Capture) -> None:
    measured = measure(stale, REUSE)
    assert (measured.value, measured.strict) == (1 / 2, 1 / 3)
    assert "(with them, reuse is 66.7 %)" in measured.excluded
    assert run_check(stale, "no_stale_kv").status == "fail"


@pytest.mark.parametrize("floor", ["60%", "40%"])
def test_a_floor_that_only_stale_reuse_meets_fails_and_shows_the_numbers(stale: Capture, floor: str) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_kv_reuse(stale, floor=floor)
    said = str(failed.value)
    assert "missed its limit: 33.3 %" in said
    assert "reuse across policy versions counts as none (it is 50.0 % with these requests left out" in said
    assert (
        f"1 request that reused {10 * BLOCK} tokens of an earlier policy version (with them, reuse is 66.7 %)" in said
    )


def test_a_floor_below_what_is_left_without_stale_reuse_is_met(stale: Capture) -> None:
    assert_kv_reuse(stale, floor="33%")


def test_a_loss_is_not_made_smaller_by_stale_reuse(stale: Capture) -> None:
    measured = measure(stale, "kv_eviction_loss")
    assert (measured.value, measured.strict) == (0, 0)
    assert measure(stale, "kv_cold_fraction").judged() == 2 / 3
    with pytest.raises(AssertionError, match=r"missed its limit: 66\.7 %, must be <= 60\.0 %"):
        assert_limit(stale, "kv_cold_fraction", "<= 60%")


def test_requests_that_are_all_stale_count_with_what_is_left(tmp_path: Path) -> None:
    old, events = served("old", 1, 1, PROMPT)
    canceled = old, [events[0], events[1] | {"event": "canceled"}]
    capture = made(tmp_path / "c", KEPT, canceled, served("again", 12, 1, PROMPT, cached=10))
    measured = measure(capture, REUSE)
    assert measured.value == 0
    assert f"of all 1 request that reused {10 * BLOCK} tokens" in measured.excluded
    with pytest.raises(AssertionError, match=r"with them, reuse is 100\.0 %, all counted as not reused"):
        assert_kv_reuse(capture, floor="1%")


def test_stale_requests_too_soon_after_a_reset_are_not_counted_twice(tmp_path: Path) -> None:
    capture = made(tmp_path / "c", [*started(1), *update(1)], served("a", 12, 1, PROMPT), served("b", 13, 1, PROMPT))
    assert measure(capture, REUSE, Scope(after_reset=0.1)).strict is None


# -- out of reach --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("floor", "reachable"), [("60%", False), ("45%", True)])
def test_a_floor_above_what_the_traffic_allows_is_called_out_of_reach(
    tmp_path: Path, floor: str, reachable: bool
) -> None:
    capture = made(tmp_path / "c", [], served("a", 1, 1, PROMPT), served("b", 2, 1, PROMPT, cached=8))
    with pytest.raises(AssertionError) as failed:
        assert_kv_reuse(capture, floor=floor)
    words = "this traffic cannot meet it: no more than 50.0 % could be reused (kv_reuse_ceiling)"
    assert (words in str(failed.value)) is not reachable


def test_case_52_prompts_that_share_less_than_a_block_leave_nothing_to_reuse(tmp_path: Path) -> None:
    capture = made(tmp_path / "c", [], *(served(f"r{n}", n, 1, [n]) for n in range(1, 5)))
    with pytest.raises(AssertionError, match=r"no more than 0\.0 % could be reused"):
        assert_kv_reuse(capture, floor="10%")


def test_a_ceiling_that_nobody_knows_makes_no_floor_unreachable(tmp_path: Path) -> None:
    made = parts(served("a", 1, 1, PROMPT, cached=5))
    del made["rows"]
    measured = measure(opened(tmp_path / "c", **made), REUSE)
    assert measured.reachable is None
    assert "cannot meet" not in parse_limit(REUSE, ">= 90%").message(measured)


# -- against a baseline --------------------------------------------------------------------------------------------


@pytest.fixture
def kept_blocks() -> Capture:
    return PERTURBATIONS["a worker keeps its blocks over a new version"](open_capture(CAPTURES / "baseline_kv_1"))


def compared(folder: Path, key: str, current: Capture, *baselines: str) -> Any:
    folder.mkdir(exist_ok=True)
    path = folder / "rlserve.toml"
    path.write_text(f'series = "s"\n[metrics.{key}]\nregression = "1%"\n', encoding="utf-8")
    policy = load(path)
    captures = [open_capture(CAPTURES / name) for name in baselines]
    assert refresh.refresh(Gate(captures=captures, policy=policy, folder=folder, update=Update(wanted=True))).written
    return Gate(captures=[current], policy=policy, folder=folder).compare(key)


def test_the_compared_number_counts_stale_reuse_as_none_and_the_message_has_both(
    tmp_path: Path, kept_blocks: Capture
) -> None:
    measured = measure(kept_blocks, REUSE)
    assert measured.strict is not None
    found = compared(tmp_path, REUSE, kept_blocks, "baseline_kv_1", "baseline_kv_2", "baseline_kv_3")
    (record,) = found.records
    assert record["current"] == pytest.approx(min(measured.strict, measured.value or 0))
    assert found.verdict != "improved"
    assert "reused KV of an earlier policy version (no_stale_kv)" in found.message
    for number in (measured.strict, measured.value or 0):
        assert f"{number * 100:.1f} %" in found.message
    assert "(with them, reuse is " in found.message


def test_what_only_stale_reuse_could_explain_is_not_called_improved(
    tmp_path: Path, kept_blocks: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as planted:
        planted.setattr("pytest_rlserve.gate.compare.not_improved", lambda result: result)
        believed = compared(tmp_path / "believed", REUSE, kept_blocks, "regressed_round_robin_1")
    found = compared(tmp_path, REUSE, kept_blocks, "regressed_round_robin_1")
    assert [one.records[0]["verdict"] for one in (believed, found)] == ["improved", "inconclusive"]
    assert "to decide it: a capture in which no_stale_kv holds" in found.message
