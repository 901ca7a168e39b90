"""Checks state facts about a capture: each holds, does not hold, or cannot be told.

A check is one file in this folder with one decorated function. It never passes on nothing: with zero things
looked at, its status is `inconclusive`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_rlserve.errors import require_capture
from pytest_rlserve.joins.clocks import corrected, skew
from pytest_rlserve.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_rlserve.capture import Capture, Finding

    CheckFunction = Callable[[Capture, "Evidence"], "Outcome"]

Status = Literal["pass", "fail", "inconclusive", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How much may be missing before a check fails; the policy's `[evidence]`."""

    open_attempts: float = 0
    """Attempts that may be open at the end: a number, or a fraction of those dispatched if below 1."""
    rows_joined: float = 0.999
    """Smallest share of rows that have an attempt."""
    traceable_served: float = 0.999
    """Smallest share of completed, traceable requests that have a row."""
    completed_served: float = 0.5
    """Smallest share of all completed requests that have a row, those included that Dynamo never traces."""
    in_flight: Literal["drain", "keep"] = "drain"
    """Whether requests may run through a weight update; the policy's `[updates]`."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a check function returns: how much it looked at and what it found."""

    observed: int
    """Things that are as they should be."""
    of: int
    """Things looked at."""
    noun: str
    """What the things are, in the plural."""
    findings: list[Finding] = field(default_factory=list)
    inconclusive: str | None = None
    """Why nothing can be said, and what would have to be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The status of one check on one capture, with its evidence."""

    name: str
    capture: str
    status: Status
    observed: int
    of: int
    noun: str
    findings: tuple[Finding, ...]
    why: str | None = None

    @property
    def problems(self) -> list[Finding]:
        """Return the findings that speak against the capture."""
        return [finding for finding in self.findings if finding.severity in ("error", "failure")]

    def message(self) -> str:
        """Say what holds or does not, where, and how much was looked at."""
        share = f"{self.observed:,} of {self.of:,} {self.noun}"
        if self.status == "pass":
            return f"{self.name} holds for {self.capture}: {share}"
        if self.status == "inconclusive":
            seen = f" ({share})" if self.of and share not in str(self.why) else ""
            return f"{self.name} cannot be told for {self.capture}: {self.why}{seen}"
        verb = "found broken evidence in" if self.status == "error" else "does not hold for"
        lines = [f"{self.name} {verb} {self.capture}: {share}"]
        shown = self.problems[:10]
        lines += [f"  {finding}" for finding in shown]
        if len(self.problems) > len(shown):
            lines.append(f"  +{len(self.problems) - len(shown)} more findings")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A registered check."""

    name: str
    doc: str
    question: int
    """Which of the five questions of the gate it answers: 1 is trust, 2 is accounting."""
    default: bool
    """Whether the built-in suite runs it unasked."""
    kinds: tuple[str, ...]
    """The kinds of capture it is about."""
    judges_clocks: bool
    """Whether it is about the clocks themselves, so that their skew is no reason to withhold its verdict."""
    func: Callable[[Capture, Evidence], Outcome]

    @property
    def foundation(self) -> bool:
        """Tell whether nothing may be judged from a capture that this check does not pass."""
        return self.question == 1


CHECKS: Registry[Check] = Registry("check", "pytest_rlserve.checks")


def check(
    *,
    question: int,
    default: bool = True,
    kinds: tuple[str, ...] = ("rollout", "replay"),
    judges_clocks: bool = False,
) -> Callable[[CheckFunction], CheckFunction]:
    """Register the decorated function as the check of its name.

    Args:
        question: 1 if it says whether the evidence can be trusted, 2 if it accounts for attempts, 3 if it
            says how well serving worked.
        default: whether the built-in suite runs it without being named in the policy.
        kinds: the kinds of capture it is about; the suite leaves it out for others.
        judges_clocks: whether it is about the clocks themselves; any other verdict that would change if server and
            client told the same time is withheld.
    """

    def register(func: CheckFunction) -> CheckFunction:
        doc = inspect.getdoc(func) or ""
        new = Check(
            name=func.__name__,
            doc=doc,
            question=question,
            default=default,
            kinds=kinds,
            judges_clocks=judges_clocks,
            func=func,
        )
        CHECKS.add(func.__name__, new, home=func.__module__)
        return func

    return register


def run_check(capture: Capture, name: str, evidence: Evidence | None = None) -> CheckResult:
    """Run one check on a capture.

    Raises:
        EvidenceError: its block hashes were left in the files, and these have changed, or hold hashes that are none.
    """
    require_capture(capture)
    one, evidence = CHECKS[name], evidence or Evidence()
    if name != "rows_fit_schema":  # which says so itself
        _ = capture.chains  # no verdict on rows that are counted and perhaps none
    found = one.func(capture, evidence)
    status, why = _status(found), found.inconclusive
    if status == "inconclusive":
        why = why or f"there are no {found.noun} to look at"
    off = None if one.judges_clocks else capture.derive(skew)
    if off and any(_status(one.func(other, evidence)) != status for other in capture.derive(corrected)):
        status, why = "inconclusive", str(off)
    return CheckResult(
        name=name,
        capture=capture.name,
        status=status,
        observed=found.observed,
        of=found.of,
        noun=found.noun,
        findings=tuple(found.findings),
        why=why,
    )


def _status(found: Outcome) -> Status:
    severities = {finding.severity for finding in found.findings}
    if "error" in severities:
        return "error"
    if "failure" in severities:
        return "fail"
    return "inconclusive" if found.inconclusive or not found.of else "pass"


def run_checks(
    capture: Capture, *, names: Iterable[str] | None = None, evidence: Evidence | None = None
) -> list[CheckResult]:
    """Run checks on a capture: those named, or all that the built-in suite runs unasked."""
    require_capture(capture)
    chosen = default_checks(capture.manifest.kind) if names is None else list(names)
    return [run_check(capture, name, evidence) for name in chosen]


def default_checks(kind: str = "rollout") -> list[str]:
    """Return the checks that run unasked for that kind of capture, foundations first."""
    ranked = sorted(CHECKS.values(), key=lambda c: (c.question, c.name))
    return [c.name for c in ranked if c.default and kind in c.kinds]
