"""Results as the report writes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_rlserve.checks import CheckResult


def check_record(result: CheckResult) -> dict[str, Any]:
    """Return a check's result as the report's entry, with the capture it belongs to."""
    return {
        "name": result.name,
        "capture": result.capture,
        "status": result.status,
        "observed": result.observed,
        "of": result.of,
        "why": result.why or "",
        "findings": [
            {
                **{k: v for k, v in dataclasses.asdict(finding).items() if k != "check"},
                "ids": list(finding.ids),
            }
            for finding in result.findings
        ],
    }
