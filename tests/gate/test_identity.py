"""May they be compared? What must be equal, what is listed if it is not, and what may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gate.series import recorded
from pytest_rlserve.gate.identity import differences, identity_of
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from gate.series import Series
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.compare import Comparison

    Measured = Callable[..., Capture]

RATE = "accepted_trajectory_throughput"
LIKE_BASELINE = [
    name
    for name in recorded()
    if name.startswith(("baseline", "regressed", "small_cache", "router_queue", "stale_worker", "worker_lost"))
]


def compared(series: Series, *captures: Capture) -> Comparison:
    return series.gate(*captures).comparison(RATE, 0.05)


def why(series: Series, *captures: Capture) -> str:
    found = compared(series, *captures)
    assert found.verdict == "not_comparable"
    return found.message


# -- identity -------------------------------------------------------------------------------------------------------


def test_the_trace_shows_model_and_block_size(measured: Measured) -> None:
    capture = measured()
    (row, *_) = capture.requests.select(["model", "trace_block_size"]).to_pylist()
    assert identity_of(capture) == {"model": row["model"], "block_size": row["trace_block_size"]}


def test_the_manifest_adds_to_what_the_trace_shows_and_has_the_last_word(measured: Measured) -> None:
    shown = identity_of(measured())
    found = identity_of(measured(identity={"model": "Tiny-1B", "hardware": "4x L40S"}))
    assert found == {**shown, "model": "Tiny-1B", "hardware": "4x L40S"}


def test_differences_name_the_key_and_both_values_and_a_key_that_one_side_lacks() -> None:
    baseline = {"model": "a", "hardware": "x", "backend": "v"}
    current = {"model": "b", "hardware": "x", "topology": 2}
    assert differences(baseline, current) == [
        "backend: baseline 'v', current 'does not say'",
        "model: baseline 'a', current 'b'",
        "topology: baseline 'does not say', current 2",
    ]
    assert differences(baseline, dict(baseline)) == []


def test_a_comparison_is_refused_with_every_key_that_differs(series: Series, measured: Measured) -> None:
    series.take(measured(identity={"hardware": "A100", "backend": "vllm"}))
    message = why(series, measured(identity={"hardware": "H100", "backend": "sglang"}))
    assert f"{RATE} cannot be compared with s.json:" in message
    assert "hardware: baseline 'A100', current 'H100'" in message
    assert "backend: baseline 'vllm', current 'sglang'" in message
    assert "--rl-series=NAME" in message


def test_an_identity_that_grew_stale_is_refused(series: Series, measured: Measured) -> None:
    """The baseline was recorded before anybody wrote down the driver."""
    series.take(measured())
    assert "driver: baseline 'does not say', current '580'" in why(series, measured(identity={"driver": "580"}))


def test_one_capture_of_several_is_enough_to_refuse(series: Series, measured: Measured) -> None:
    series.take(measured())
    assert "model" in why(series, measured(), measured(identity={"model": "other"}))


def test_a_replay_is_not_compared_with_a_rollout(series: Series, measured: Measured) -> None:
    series.take(measured())
    message = why(series, measured(kind="replay"))
    assert "kind: baseline 'rollout'" in message and "'replay'" in message


def test_another_definition_is_refused_with_the_part_that_changed(series: Series, measured: Measured) -> None:
    from dataclasses import replace

    from pytest_rlserve.metrics import Scope

    series.take(measured())
    series.policy = replace(series.policy, scope=Scope(skip_steps=1))
    found = series.gate(measured(rate=10.0)).comparison("update_downtime", 0.2)
    if found.verdict == "not_comparable":
        assert f"phase of {found.metric}: baseline " in found.message
    rate = compared(series, measured())
    assert rate.verdict == "not_comparable"
    assert f"phase of {RATE}: baseline 'whole trainer steps" in rate.message
    assert "less the first 1 steps" in rate.message


# -- recorded captures ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captures() -> dict[str, Capture]:
    return {name: open_capture(path) for name, path in recorded().items()}


@pytest.mark.parametrize("name", LIKE_BASELINE)
def test_recorded_captures_of_one_work_may_be_compared(captures: dict[str, Capture], series: Series, name: str) -> None:
    from pytest_rlserve.gate.identity import not_comparable

    assert series.take(captures["baseline_kv_1"]).written
    stored = series.gate().baseline()
    assert stored is not None
    assert not_comparable(stored, [captures[name]]) == []


@pytest.mark.parametrize("name", ["lossy_1", "payload_1"])
def test_recorded_captures_of_other_work_may_not(captures: dict[str, Capture], series: Series, name: str) -> None:
    from pytest_rlserve.gate.identity import not_comparable

    series.take(captures["baseline_kv_1"])
    stored = series.gate().baseline()
    assert stored is not None
    reasons = not_comparable(stored, [captures[name]])
    assert len(reasons) == 1 and reasons[0].startswith("workload: baseline 'seed 1234, 3 steps")
