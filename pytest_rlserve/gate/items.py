"""What a policy has judged: kind and name of every item, known before a capture is read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from pytest_rlserve.checks import default_checks

if TYPE_CHECKING:
    from pytest_rlserve.gate.policy import Policy

Kind = Literal["checks", "limits", "metrics"]


def items(policy: Policy) -> list[tuple[Kind, str]]:
    """Return kind and name of everything a policy has judged, in order; needs no capture."""
    checks: list[tuple[Kind, str]] = [("checks", name) for name in (*default_checks(policy.kind), *policy.also)]
    return [*checks, *(("limits", key) for key in policy.limits), *(("metrics", key) for key in policy.gated)]


def in_ci() -> bool:
    """Tell whether a CI system says that this is one of its jobs."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")
