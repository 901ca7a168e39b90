"""Numbers about reuse that cannot be true are findings, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import opened, request, request_end
from oracle import CAPTURES

from pytest_rlserve.checks import run_check
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

NAME = "reuse_is_possible"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"cached_tokens": 101}, "cached_tokens 101 > input_tokens 100"),
        ({"cached_tokens": 50, "kv_hit_rate": 1.01}, "kv_hit_rate 1.01 is outside of 0 to 1"),
        ({"kv_hit_rate": -0.5}, "kv_hit_rate -0.5 is outside of 0 to 1"),
    ],
)
def test_an_impossible_row_fails_with_its_line(tmp_path: Path, row: dict[str, float], words: str) -> None:
    good = request_end("r1", input_tokens=100, cached_tokens=100, kv_hit_rate=1.0)
    result = run_check(opened(tmp_path / "c", rows=[good, request_end("r2", input_tokens=100, **row)]), NAME)
    (finding,) = result.problems
    assert (result.status, result.observed, result.of) == ("fail", 1, 2)
    assert (finding.line, finding.ids, finding.message) == (2, ("r2",), words)


def test_usage_is_held_to_the_same(tmp_path: Path) -> None:
    events = [request("dispatched", "r", 0), request("completed", "r", 1, prompt_tokens=600, cached_tokens=1229)]
    result = run_check(opened(tmp_path / "c", attempts=events), NAME)
    assert result.problems[0].message == "usage of r: cached_tokens 1229 > prompt_tokens 600"


def test_rows_that_say_nothing_about_the_cache_are_not_judged(tmp_path: Path) -> None:
    result = run_check(opened(tmp_path / "c", rows=[request_end("r1", input_tokens=100)]), NAME)
    assert (result.status, result.of) == ("inconclusive", 0)


@pytest.mark.parametrize("name", ["baseline_kv_1", "payload_1", "lossy_1", "small_cache_1"])
def test_real_numbers_are_possible(name: str) -> None:
    assert run_check(open_capture(CAPTURES / name), NAME).status == "pass"
