"""Every metric says what it is: two numbers are compared only where they say the same."""

from __future__ import annotations

import re

import pytest

from pytest_rlserve import model
from pytest_rlserve.capture import Capture
from pytest_rlserve.errors import UsageError
from pytest_rlserve.metrics import METRICS, Scope
from pytest_rlserve.metrics.measuring import all_keys, canonical, measure, resolve

every_metric = pytest.mark.parametrize("name", list(METRICS))


@every_metric
def test_a_metric_is_defined_completely(name: str) -> None:
    found = METRICS[name]
    assert found.better in ("higher", "lower")
    assert found.needs <= set(model.TABLES)
    for text in (found.unit, found.numerator, found.denominator, found.freshness, found.phase, found.doc):
        assert text.strip()
    assert found.doc.endswith(".")


@every_metric
def test_a_name_carries_neither_unit_nor_statistic(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
    assert not re.search(r"_(ms|s|seconds|tokens|p\d+|mean|median|max|rate)$", name)


@every_metric
def test_a_fraction_is_called_one(name: str) -> None:
    fraction = METRICS[name].unit == "fraction"
    assert fraction or not name.endswith("_fraction")
    assert not fraction or re.search("_(fraction|share|ceiling|loss|efficiency)$", name)


@every_metric
def test_the_definition_and_its_digest_follow_the_policy_where_the_metric_does(name: str) -> None:
    found = METRICS[name]
    usual, other = found.definition(Scope()), found.definition(Scope(max_lag=3, freshness="worst"))
    assert usual["digest"] == found.definition(Scope())["digest"]
    assert (usual["digest"] != other["digest"]) is ("{" in found.freshness)
    assert "{" not in "".join(usual.values())


@every_metric
def test_a_metric_of_an_empty_capture_is_not_observable_and_never_zero(name: str) -> None:
    for key in [key for key in all_keys() if key.partition(".")[0] == name]:
        measured = measure(Capture(name="c"), key, Scope(budgets={"ttft": 1.0}))
        assert measured.value is None
        assert measured.why


def test_skipped_steps_are_part_of_the_definition() -> None:
    found = METRICS["accepted_trajectory_throughput"]
    assert found.definition(Scope(skip_steps=1))["digest"] != found.definition(Scope())["digest"]
    assert "less the first 1 steps" in found.definition(Scope(skip_steps=1))["phase"]


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("ttft", "ttft.p50"),
        ("ttft.p99", "ttft.p99"),
        ("ttft.max", "ttft.max"),
        ("step_makespan", "step_makespan"),
        ("step_makespan.mean", "step_makespan"),
        ("step_makespan.p90", "step_makespan.p90"),
        ("kv_reuse_fraction", "kv_reuse_fraction"),
        ("output_token_throughput.per_gpu", "output_token_throughput.per_gpu"),
    ],
)
def test_a_measurement_has_one_key(key: str, stored: str) -> None:
    assert canonical(key) == stored
    assert canonical(stored) == stored


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("tft", "did you mean 'ttft'"),
        ("ttft.p9", "did you mean"),
        ("ttft.per_gpu", "ttft.p50"),
        ("kv_reuse_fraction.p50", "single value"),
        ("accepted_trajectory_throughput.p50", "accepted_trajectory_throughput.per_gpu"),
        ("", "no metric is named ''"),
    ],
)
def test_a_wrong_key_is_wrong_use_and_the_right_ones_are_offered(key: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        resolve(key)


def test_all_keys_are_canonical_sorted_and_distinct() -> None:
    keys = all_keys()
    assert [canonical(key) for key in keys] == keys
    assert len(set(keys)) == len(keys)
    assert [key.partition(".")[0] for key in keys] == sorted(key.partition(".")[0] for key in keys)


@pytest.mark.parametrize("name", ["request_goodput", "served_within_budget_fraction"])
def test_another_budget_is_another_metric(name: str) -> None:
    """With a budget a hundred times as wide, everything is served in time: that is no gain."""
    found = METRICS[name]
    tight, wide = (found.definition(Scope(budgets={"ttft": limit})) for limit in (0.1, 10.0))
    assert tight["digest"] != wide["digest"]
    assert tight["numerator"].endswith("budget of the policy: ttft <= 0.1 s")
    other = found.definition(Scope(budgets={"ttft": 0.1, "update_downtime": 3.0}))
    assert other["digest"] == tight["digest"]
