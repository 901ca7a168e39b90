"""The JSON report: everything that was found, in a form that a diff can read and every other report needs."""

from __future__ import annotations

import json as stdlib_json
from typing import TYPE_CHECKING, Any

from pytest_rlserve.reports import report as report_format

if TYPE_CHECKING:
    from collections.abc import Mapping


@report_format("json")
def json(report: Mapping[str, Any]) -> str:
    """Return the report as JSON with sorted keys, one value a line: equal reports are equal byte by byte.

    Raises:
        ValueError: a number is NaN or infinite, which JSON cannot hold and no measurement may be.
    """
    return stdlib_json.dumps(report, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=True) + "\n"
