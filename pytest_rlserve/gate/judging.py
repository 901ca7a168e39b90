"""Comparing captures with a baseline file from a script or notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.compare import Comparison
    from pytest_rlserve.gate.policy import Policy


def compare(
    captures: Capture | Sequence[Capture], baseline: Path | str, *, policy: Policy | None = None
) -> list[Comparison]:
    """Compare captures with a baseline file: one comparison for each metric that the policy gates.

    Raises:
        BaselineError: the file is there but cannot be trusted.
    """
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import read
    from pytest_rlserve.gate.compare import compare_metric
    from pytest_rlserve.gate.policy import Policy

    policy = policy or Policy()
    some = [captures] if isinstance(captures, Capture) else list(captures)
    found = read(Path(baseline))
    return [compare_metric(some, key, allowed, found, policy.scope) for key, allowed in policy.gated.items()]
