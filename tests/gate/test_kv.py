"""The gate on KV reuse and updates: what the policy says of them, what is compared, and damages it must notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from oracle import CAPTURES

from pytest_rlserve.checks import run_check
from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate import refresh
from pytest_rlserve.gate.judgement import Update
from pytest_rlserve.gate.perturb import PERTURBATIONS
from pytest_rlserve.gate.policy_file import load
from pytest_rlserve.gate.verdicts import Gate
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.gate.policy import Policy

CHECKS = ("no_stale_kv", "reuse_is_possible", "updates_are_ordered", "workers_are_current")


def policy(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "rlserve.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def test_the_policy_says_what_is_left_out_after_a_reset_and_whether_requests_may_run_through(tmp_path: Path) -> None:
    found = policy(tmp_path, '[kv]\nafter_reset = "250ms"\n[updates]\nin_flight = "keep"\n')
    assert (found.scope.after_reset, found.evidence.in_flight) == (0.25, "keep")
    usual = policy(tmp_path, "")
    assert (usual.scope.after_reset, usual.evidence.in_flight) == (0, "drain")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[kv]\nafter_reset = "5"\n', "unit"),
        ("[kv]\nafter_reset = 5\n", "must be str"),
        ('[kv]\nafter_reset = "-1s"\n', "must not be negative"),
        ('[kv]\nafter_resets = "1s"\n', "after_reset"),
        ('[updates]\nin_flight = "kept"\n', "did you mean 'keep'"),
    ],
)
def test_a_wrong_entry_is_refused_with_what_would_be_right(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        policy(tmp_path, text)


def test_half_the_workers_are_not_read_as_an_improvement(tmp_path: Path) -> None:
    gated = policy(tmp_path, 'series = "s"\n[metrics.kv_reuse_fraction]\nregression = "2%"\n')
    captures = [open_capture(CAPTURES / f"baseline_kv_{run}") for run in (1, 2)]
    baseline = Gate(captures=captures, policy=gated, folder=tmp_path, update=Update(wanted=True))
    assert refresh.refresh(baseline).written
    half = Gate(captures=[open_capture(CAPTURES / "regressed_half_workers_1")], policy=gated, folder=tmp_path)
    found = half.compare("kv_reuse_fraction")
    assert found.verdict == "not_comparable"
    assert "whole capture, 4 workers" in found.message
    assert "whole capture, 2 workers" in found.message
    assert (
        Gate(captures=captures[:1], policy=gated, folder=tmp_path).compare("kv_reuse_fraction").verdict
        != "not_comparable"
    )


@pytest.mark.parametrize(
    ("damage", "checks"),
    [
        ("more cached than prompt tokens", {"reuse_is_possible"}),
        (
            "a worker keeps its blocks over a new version",
            {"no_stale_kv", "updates_are_ordered", "workers_are_current"},
        ),
    ],
)
def test_each_damage_is_noticed_by_the_checks_it_is_for(damage: str, checks: set[str]) -> None:
    capture = open_capture(CAPTURES / "baseline_kv_1")
    damaged = PERTURBATIONS[damage](capture)
    assert {name for name in CHECKS if run_check(damaged, name).status == "fail"} == checks
    assert all(run_check(capture, name).status == "pass" for name in CHECKS)


def test_a_capture_without_workers_cannot_be_given_stale_blocks() -> None:
    from pytest_rlserve.capture import Capture

    empty = Capture(name="c")
    assert PERTURBATIONS["a worker keeps its blocks over a new version"](empty) is empty
