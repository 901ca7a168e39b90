"""All comparisons of a run together: how several metrics share one error, and how the primary is anchored."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_rlserve.gate import wording
from pytest_rlserve.gate.attribution import EXPLAINED, explain
from pytest_rlserve.gate.compare import Comparison, Prepared, by_job, conclude, prepare
from pytest_rlserve.gate.decision import holm, shares
from pytest_rlserve.gate.drift import drift
from pytest_rlserve.gate.scales import assumed_sd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.gate.compare import AllowedBy
    from pytest_rlserve.gate.policy import Policy


class Family:
    """The comparisons of some captures with one baseline, under one policy."""

    def __init__(self, captures: Sequence[Capture], policy: Policy, baseline: Baseline | None) -> None:
        """Compare nothing yet."""
        self._captures, self._policy, self._baseline = captures, policy, baseline
        self._prepared: dict[tuple[str, float], Prepared] = {}

    def compare(self, key: str, allowed: float) -> Comparison:
        """Compare one metric with the baseline.

        All gated metrics of the policy share one error, most of it the primary's, whether they were selected in
        this session or not. The primary is also held against the anchor.
        """
        policy, stored = self._policy, self._baseline
        prepared = self._prepare(key, allowed)
        causes = explain(stored, self._captures, policy.scope) if key == EXPLAINED and stored else None
        level = self._levels().get(key)
        found = conclude(prepared, self._captures, stored, alpha=policy.alpha, level=level, causes=causes)
        if key == policy.primary and stored is not None and found.verdict != "regressed":
            return self._anchored(found, prepared, stored)
        return found

    def _prepare(self, key: str, allowed: float) -> Prepared:
        known = key, allowed
        if known not in self._prepared:
            policy = self._policy
            by: AllowedBy = "test"
            if policy.gated.get(key) == allowed:
                by = "policy" if key in policy.stated else "default"
            found = prepare(self._captures, key, allowed, self._baseline, policy.scope)
            comparison = dataclasses.replace(found.comparison, allowed_by=by)
            self._prepared[known] = dataclasses.replace(found, comparison=comparison)
        return self._prepared[known]

    def _levels(self) -> dict[str, float]:
        """Return the error level of each gated metric that could be estimated."""
        policy = self._policy
        prepared = {key: self._prepare(key, allowed).estimate for key, allowed in policy.gated.items()}
        p = {key: one.p() for key, one in prepared.items() if one is not None}
        return holm(p, shares(p, policy.primary), policy.alpha)

    def _anchored(self, found: Comparison, prepared: Prepared, stored: Baseline) -> Comparison:
        """Let the primary metric regress where it has drifted, however small the last step."""
        if prepared.estimate is None:
            return found
        drifted = drift(
            stored,
            found.metric,
            by_job(found.current),
            better=found.better,
            allowed=found.allowed,
            linear=prepared.linear,
            assumed_sd=assumed_sd(found.metric, found.unit),
            unit=found.unit,
            alpha=self._policy.alpha,
        )
        if drifted is None or drifted[0].verdict != "regressed":
            return found
        result, wide = drifted
        message = wording.drifted(found, result, wide, stored.path.name)
        return dataclasses.replace(
            found, verdict="regressed", message=message, result=result, why="drift against the anchor"
        )
