"""KV reuse is token-weighted and the engine's own number; a router's prediction is never taken for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, opened, request, request_end

from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from pathlib import Path

NAME = "kv_reuse_fraction"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def answered(name: str, outcome: str = "completed", **usage: Any) -> list[Record]:
    return [request("dispatched", name, 0), request(outcome, name, 1, **usage)]


def test_reuse_is_weighted_by_tokens_not_by_requests(folder: Path) -> None:
    events = [event for n in range(3) for event in answered(f"s{n}", prompt_tokens=16, cached_tokens=0)]
    events += answered("long", prompt_tokens=4096, cached_tokens=4032)
    measured = measure(opened(folder, attempts=events), NAME)
    assert (measured.value, measured.n) == (pytest.approx(4032 / 4144), 4)


def test_the_engines_number_outranks_the_rows(folder: Path) -> None:
    events = answered("r1", prompt_tokens=100, cached_tokens=25)
    rows = [request_end("r1", input_tokens=100, cached_tokens=75, kv_hit_rate=0.75)]
    assert measure(opened(folder, attempts=events, rows=rows), NAME).value == 0.25


def test_rows_count_where_the_usage_says_nothing_and_no_router_predicted(folder: Path) -> None:
    rows = [
        request_end("r1", input_tokens=100, cached_tokens=75),
        request_end("r2", input_tokens=300, cached_tokens=0),
    ]
    capture = opened(folder, attempts=[*answered("r1"), *answered("r2")], rows=rows)
    assert measure(capture, NAME).value == pytest.approx(75 / 400)


def test_a_routers_prediction_is_not_reuse(folder: Path) -> None:
    rows = [request_end("r1", input_tokens=100, cached_tokens=75, kv_hit_rate=0.75)]
    measured = measure(opened(folder, attempts=answered("r1"), rows=rows), NAME)
    assert measured.value is None
    assert "prediction" in str(measured.why)


def test_requests_that_did_not_complete_have_no_part(folder: Path) -> None:
    events = answered("r1", prompt_tokens=100, cached_tokens=50)
    events += answered("r2", "canceled", prompt_tokens=1000, cached_tokens=1000)
    assert measure(opened(folder, attempts=events), NAME).value == 0.5


@pytest.mark.parametrize(("known", "observed"), [(20, True), (19, True), (18, False)])
def test_usage_without_a_cached_count_is_unknown_not_zero(folder: Path, known: int, observed: bool) -> None:
    events = []
    for number in range(20):
        usage = {"prompt_tokens": 100} | ({"cached_tokens": 50} if number < known else {})
        events += answered(f"r{number}", **usage)
    measured = measure(opened(folder, attempts=events), NAME)
    assert measured.value == (0.5 if observed else None)
    assert observed or measured.why == f"the usage of {known} of 20 completed requests has cached_tokens"


def test_more_cached_than_sent_is_not_averaged_away(folder: Path) -> None:
    events = answered("r1", prompt_tokens=600, cached_tokens=1229) + answered("r2", prompt_tokens=9000, cached_tokens=0)
    rows = [request_end(name, input_tokens=1) for name in ("r1", "r2")]
    for number, parts in enumerate(({}, {"rows": rows})):
        measured = measure(opened(folder.with_name(f"c{number}"), attempts=events, **parts), NAME)
        assert measured.value in (None, 0.0)
        assert "cached" in f"{measured.why} {measured.excluded}"


def test_nothing_cached_is_zero_and_nothing_known_is_unknown(folder: Path) -> None:
    cold = opened(folder, attempts=answered("r1", prompt_tokens=100, cached_tokens=0))
    assert measure(cold, NAME).value == 0.0
    unknown = opened(folder.with_name("d"), attempts=answered("r1"), rows=[request_end("r1", input_tokens=100)])
    assert measure(unknown, NAME).value is None
    assert "TensorRT-LLM reports it only where it publishes KV events" in str(measure(unknown, NAME).why)
