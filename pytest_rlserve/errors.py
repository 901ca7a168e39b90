"""The exceptions and warnings of pytest-rlserve.

::

    RlserveError
    ├── UsageError            something was typed wrongly: a flag, a policy key, a metric's name
    ├── EvidenceError         a capture cannot be trusted; nothing further is judged from it
    │   └── BaselineError     a baseline file cannot be trusted; it is never taken for "no baseline"
    └── NotMeasurable         a capture lacks what a metric needs; absent is never zero
    RlserveWarning
    ├── InconclusiveWarning   the evidence neither passes nor fails; `--rl-strict` turns it into a failure
    └── FactorsWarning        what is under test is unclear: several factors differ, or one is not as declared
"""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RlserveError(Exception):
    """Base of all errors that this package raises for its users."""


class UsageError(RlserveError):
    """Something was typed wrongly. The message says what would be right."""


class EvidenceError(RlserveError):
    """A capture cannot be trusted, so no verdict may rest on it."""


class BaselineError(EvidenceError):
    """A baseline file is there but cannot be read or used. It is left as it is."""


class NotMeasurable(RlserveError):
    """The capture does not hold what a metric needs. The message says what is missing."""


class RlserveWarning(UserWarning):
    """Base of all warnings that this package gives."""


class InconclusiveWarning(RlserveWarning):
    """A check or comparison had too little evidence for a verdict."""


class FactorsWarning(RlserveWarning):
    """Several factors differ from the baseline's at once, or the evidence contradicts a declared one."""


def require_capture(given: object) -> None:
    """Raise `UsageError` where a path stands in the place of a capture."""
    if isinstance(given, str | os.PathLike):
        raise UsageError(f"{os.fspath(given)!r} is a path and no capture: give open_capture({os.fspath(given)!r})")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest of `names`, or an empty string."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
