"""Reports in files: FORMAT:PATH as a user types it, and the writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import RlserveError, UsageError
from pytest_rlserve.reports import REPORTS, encode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def parse_spec(spec: str) -> tuple[str, str]:
    """Split FORMAT:PATH.

    Raises:
        UsageError: it has no such form, or there is no such format.
    """
    name, colon, path = spec.partition(":")
    if not colon or not path:
        raise UsageError(f"--rl-report={spec}: write FORMAT:PATH, with one of {', '.join(REPORTS)}")
    return REPORTS[name].name, path


def write(report: Mapping[str, Any], spec: str, here: Path) -> str:
    """Write a report where `spec` says, relative to `here`, making folders as needed; return what was done.

    Raises:
        RlserveError: the file cannot be written.
    """
    name, path = parse_spec(spec)
    target = here / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encode(report, name))
    except OSError as error:
        raise RlserveError(f"the {name} report cannot be written to {path}: {error.strerror or error}") from None
    return f"{name} report written to {path}"
