"""How old a policy was: of an attempt by the declared kind, of a step as NeMo RL has it; and what restoring costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, control, opened
from samples import records, sample, written

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.policy import batch_ages
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

T = 1_790_000_000.0


def by_the_definition(lines: list[dict[str, Any]]) -> dict[int, float]:
    """NeMo RL's own words, step by step: the last line of a group id, the last age of a step that has tokens."""
    groups = {line["group_id"]: line["tokens_by_version"] for line in lines if line["event"] == "group_published"}
    ages = {}
    for line in lines:
        if line["event"] == "step_trained":
            pairs = [(int(v), n) for group in line["group_ids"] for v, n in groups.get(group, {}).items()]
            if tokens := sum(n for _, n in pairs):
                ages[line["step"]] = sum(n * (line["trained_version"] - v) for v, n in pairs) / tokens
    return ages


def line(event: str, t: float, **fields: Any) -> Record:
    return {"t": T + t, "run": "a", "event": event, **fields}


def published(group: str, t: float = 0, /, **tokens: int) -> Record:
    return line("group_published", t, group_id=group, tokens_by_version={v[1:]: n for v, n in tokens.items()})


def trained(step: int, version: int, *groups: str, t: float = 1) -> Record:
    return line("step_trained", t, step=step, trained_version=version, group_ids=list(groups))


def ages(folder: Path, *lines: Record) -> dict[int, float]:
    content = [line("trace_opened", 0, pid=1), *lines]
    found, _ = batch_ages(written(folder / "rollout_trace.jsonl", *content))
    assert found == pytest.approx(by_the_definition(content))
    return found


def test_batch_age_is_nemo_rls_for_every_step_of_the_sample() -> None:
    found, unmatched = batch_ages(sample("nemo_rl.jsonl"))
    assert found == pytest.approx({1: 0.6, 2: 1.1 / 3, 3: 0.25}, abs=1e-15)
    assert found == pytest.approx(by_the_definition(records("nemo_rl.jsonl")), abs=1e-15)
    assert unmatched == ["g-lost"]


def test_batch_age_is_reported_with_its_steps_and_the_unmatched_group() -> None:
    capture = sample("nemo_rl.jsonl")
    mean, largest = measure(capture, "batch_age"), measure(capture, "batch_age.max")
    assert (mean.n, mean.value, largest.value) == (3, pytest.approx((0.6 + 1.1 / 3 + 0.25) / 3), 0.6)
    assert mean.excluded == "1 group that was trained on but never published: g-lost"
    assert mean.unit == "versions"


def test_a_step_that_came_again_has_the_age_of_the_later_run(tmp_path: Path) -> None:
    lines = [published("g", v0=5), trained(1, 2, "g"), published("h", 2, v2=5), trained(1, 2, "h", t=3)]
    assert ages(tmp_path, *lines) == {1: 0.0}


def test_a_step_that_came_again_without_tokens_keeps_its_earlier_age(tmp_path: Path) -> None:
    lines = [published("g", v0=5), trained(1, 2, "g"), published("h", 2), trained(1, 2, "h", t=3)]
    assert ages(tmp_path, *lines) == {1: 2.0}


def test_a_group_may_be_published_after_the_step_and_again_and_the_last_line_counts(tmp_path: Path) -> None:
    assert ages(tmp_path, trained(1, 4, "g"), published("g", 5, v1=9), published("g", 6, v3=9)) == {1: 1.0}


def test_an_age_may_be_negative_and_is_shown(tmp_path: Path) -> None:
    assert ages(tmp_path, published("g", v5=1), trained(1, 4, "g")) == {1: -1.0}


def test_a_resumed_run_in_a_second_file_comes_second(tmp_path: Path) -> None:
    first = [line("trace_opened", 0, pid=1), published("g", v0=5), trained(1, 2, "g")]
    second = [line("trace_opened", 9, pid=2), published("h", 10, v1=5), trained(1, 2, "h", t=11)]
    written(tmp_path / "b.rollout_trace.jsonl", *first)
    written(tmp_path / "a.rollout_trace.jsonl", *second)
    assert batch_ages(open_capture(tmp_path))[0] == {1: 1.0}


def test_without_tokens_or_with_names_for_versions_there_is_no_age(tmp_path: Path) -> None:
    empty = written(tmp_path / "empty.rollout_trace.jsonl", line("trace_opened", 0, pid=1), trained(1, 1, "g"))
    assert measure(empty, "batch_age").value is None
    named = [line("trace_opened", 0, pid=1), published("g", vinitial=3), trained(1, 1, "g")]
    capture = written(tmp_path / "named.rollout_trace.jsonl", *named)
    with pytest.raises(NotMeasurable, match="not numbers"):
        batch_ages(capture)


LAGS = [
    *completed("a", 0, 5, policy=3, policy_end=5, tokens_by_version={"3": 1, "5": 3}, trained_version=6),
    *completed("b", 0, 5, policy=6, policy_end=6, tokens_by_version={"6": 4}, trained_version=6),
]


@pytest.mark.parametrize(("kind", "mean"), [("start", 1.5), ("end", 0.5), ("worst", 1.5), ("token_mean", 0.75)])
def test_the_lag_is_of_the_declared_kind(tmp_path: Path, kind: Any, mean: float) -> None:
    measured = measure(opened(tmp_path, attempts=LAGS), "policy_lag", Scope(freshness=kind))
    assert (measured.value, measured.n, measured.unit) == (mean, 2, "versions")
    assert measured.definition["freshness"] == f"measured at {kind}"


def test_the_largest_lag_is_not_averaged_away(tmp_path: Path) -> None:
    assert measure(opened(tmp_path, attempts=LAGS), "policy_lag.max").value == 3


def test_an_unknown_version_leaves_the_lag_unknown_and_is_never_the_target(tmp_path: Path) -> None:
    events = completed("a", 0, 5, trained_version=6, target_policy=6)
    measured = measure(opened(tmp_path, attempts=events), "policy_lag")
    assert measured.value is None
    assert "generating policy version of attempt a" in (measured.why or "")


def test_what_all_workers_had_loaded_generated_and_what_they_had_at_acceptance_trained(tmp_path: Path) -> None:
    events = [attempt("dispatched", "a", 5), attempt("completed", "a", 6), attempt("accepted", "a", 25)]
    times = ((0, 1), (10, 2), (20, 3))
    loaded = [control("version", t, worker_id=w, policy_version=v) for t, v in times for w in (1, 2)]
    assert measure(opened(tmp_path / "a", attempts=events, control=loaded), "policy_lag").value == 2
    one_ahead = [*loaded, control("version", 4, worker_id=2, policy_version=2)]
    assert measure(opened(tmp_path / "b", attempts=events, control=one_ahead), "policy_lag").value is None


def test_restoring_costs_the_time_since_the_checkpoint_that_was_restored() -> None:
    names = {"checkpoint_published": "checkpoint_published", "checkpoint_restored": "checkpoint_restored"}
    capture = sample("nemo_rl_guessed_names.jsonl", nemo_rl={"events": names})
    assert measure(capture, "restore_time").value == 575.0
    assert measure(sample("nemo_rl_guessed_names.jsonl"), "restore_time").value is None


def test_a_restore_goes_with_the_checkpoint_of_its_own_step(tmp_path: Path) -> None:
    events = [
        control("checkpoint_published", 10, step=1),
        control("checkpoint_published", 50, step=2),
        control("checkpoint_restored", 60, step=1),
        control("checkpoint_published", 90, step=1),
        control("checkpoint_restored", 95, step=1),
    ]
    measured = measure(opened(tmp_path, control=events), "restore_time")
    assert (measured.value, measured.n) == (27.5, 2)
    assert measure(opened(tmp_path / "b", control=events[1:3]), "restore_time").value is None
