"""What is under test: the factors that differ, and those that the evidence speaks against."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gate.series import recorded
from pytest_rlserve.gate.factors import changed_factors, contradicted
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gate.series import Series
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.compare import Comparison

    Measured = Callable[..., Capture]

RATE = "accepted_trajectory_throughput"


def compared(series: Series, *captures: Capture) -> Comparison:
    return series.gate(*captures).comparison(RATE, 0.05)


# -- what differs ---------------------------------------------------------------------------------------------------


def test_one_factor_may_differ_and_is_named(series: Series, measured: Measured) -> None:
    series.take(measured(factors={"router": "kv", "workers": 4}))
    found = compared(series, measured(factors={"router": "round-robin", "workers": 4}))
    assert found.verdict != "not_comparable"
    assert found.why is not None
    assert found.why.startswith("factor under test: router: baseline 'kv', current 'round-robin'")


def test_more_than_one_factor_makes_the_cause_unclear(series: Series, measured: Measured) -> None:
    series.take(measured(factors={"router": "kv", "workers": 4}))
    found = compared(series, measured(factors={"router": "round-robin", "workers": 2}))
    assert found.why is not None
    assert found.why.startswith("2 factors differ at once, so the cause is unclear: ")
    assert "router" in found.why and "workers: baseline 4, current 2" in found.why


def test_the_same_factors_are_not_mentioned(series: Series, measured: Measured) -> None:
    series.take(measured(factors={"router": "kv"}))
    found = compared(series, measured(factors={"router": "kv"}))
    assert found.why is None or "factor" not in found.why


def test_a_factor_that_several_captures_share_is_listed_once(series: Series, measured: Measured) -> None:
    series.take(measured(factors={"router": "kv"}))
    stored = series.gate().baseline()
    assert stored is not None
    other = {"factors": {"router": "random"}}
    assert changed_factors(stored, [measured(**other), measured(**other)]) == [
        "router: baseline 'kv', current 'random'"
    ]


# -- what the evidence shows ----------------------------------------------------------------------------------------


def relabelled(tmp_path: Path, name: str, **factors: Any) -> Capture:
    """Copy a recorded capture and let it declare other factors; None takes one out."""
    folder = tmp_path / name
    folder.mkdir()
    for file in recorded()[name].iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((folder / "rlserve.json").read_text())
    declared = {**manifest["factors"], **factors}
    manifest["factors"] = {key: value for key, value in declared.items() if value is not None}
    (folder / "rlserve.json").write_text(json.dumps(manifest))
    return open_capture(folder)


@pytest.mark.parametrize("name", sorted(recorded()))
def test_no_recorded_capture_is_accused(name: str) -> None:
    """What each declares is how it was recorded."""
    assert contradicted([open_capture(recorded()[name])]) == []


@pytest.mark.parametrize(
    ("name", "factors", "said"),
    [
        ("baseline_kv_1", {"workers": 2}, "baseline_kv_1 declares workers = 2, 4 served requests"),
        ("baseline_kv_1", {"workers": 8}, "baseline_kv_1 declares workers = 8, 4 served requests"),
        (
            "baseline_kv_1",
            {"router": "round-robin"},
            "baseline_kv_1 declares router = 'round-robin', 820 rows have a KV router's kv_hit_rate",
        ),
        (
            "regressed_round_robin_1",
            {"router": "kv"},
            "regressed_round_robin_1 declares router = 'kv', no row has a KV router's kv_hit_rate",
        ),
    ],
)
def test_a_wrong_label_is_named_with_what_the_evidence_shows(
    tmp_path: Path, name: str, factors: dict[str, Any], said: str
) -> None:
    (found,) = contradicted([relabelled(tmp_path, name, **factors)])
    assert found == said


@pytest.mark.skipif("router_queue_1" not in recorded(), reason="needs router_queue_1, which lies beside the checkout")
def test_a_router_queue_that_nobody_declared_is_named(tmp_path: Path) -> None:
    (found,) = contradicted([relabelled(tmp_path, "router_queue_1", router_queue=None)])
    assert found == "router_queue_1 declares no router_queue, 100 of 817 requests met a queue"


def test_a_capture_that_declares_and_shows_nothing_is_not_accused(measured: Measured) -> None:
    assert contradicted([measured(factors={}), measured(factors={"workers": 1, "cache": "large"})]) == []


def test_the_contradiction_stands_beside_the_verdict(series: Series, measured: Measured) -> None:
    series.take(measured(factors={"workers": 1}))
    found = compared(series, measured(factors={"workers": 4}))
    assert found.why is not None
    assert found.why.startswith("factor under test: workers: baseline 1, current 4; ")
    assert "run-2 declares workers = 4, 1 served requests" in found.why


# -- and what is done about it ---------------------------------------------------------------------------------------


def test_one_factor_that_differs_deserves_no_warning(series: Series, measured: Measured) -> None:
    series.take(measured(factors={"router": "least", "workers": 1}))
    assert compared(series, measured(factors={"router": "random", "workers": 1})).caution is None


def test_several_deserve_one_whatever_the_verdict(series: Series, measured: Measured) -> None:
    series.take(measured(factors={"router": "least", "cache": "small"}))
    found = compared(series, measured(factors={"router": "random", "cache": "large"}))
    assert found.caution is not None and found.caution.startswith("2 factors differ at once, so the cause is unclear: ")
    assert series.gate(measured(factors={"router": "random", "cache": "large"})).compare(RATE).caution == found.caution
