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
        EvidenceError: a capture cannot be trusted.
    """
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.errors import require_capture
    from pytest_rlserve.gate.policy import Policy
    from pytest_rlserve.gate.verdicts import Gate

    require_capture(captures)
    policy = policy or Policy()
    some = [captures] if isinstance(captures, Capture) else list(captures)
    path = Path(baseline)
    gate = Gate(captures=some, policy=policy, folder=path.parent, series=path.stem)
    for key in policy.gated:
        gate.require_trust("metrics", key)
    return [gate.comparison(key, allowed) for key, allowed in policy.gated.items()]
