"""One gate over some captures: every check, limit and gated metric by name, each with a verdict."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_rlserve.checks import CHECKS, CheckResult, default_checks, run_check
from pytest_rlserve.errors import BaselineError, EvidenceError, UsageError
from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate import wording
from pytest_rlserve.gate.family import Family
from pytest_rlserve.gate.items import in_ci
from pytest_rlserve.gate.judgement import Judgement, Update, Verdict
from pytest_rlserve.gate.records import check_record
from pytest_rlserve.gate.waivers import waived
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.gate.compare import Comparison
    from pytest_rlserve.gate.items import Kind
    from pytest_rlserve.gate.policy import Policy

_NAME_IT = 'the series has a name: series = "…" in rlserve.toml or rlserve.json, or --rl-series=NAME'


@dataclass
class Gate:
    """Judges captures under a policy. Everything is worked out when asked for, and once."""

    captures: Sequence[Capture]
    policy: Policy
    folder: Path
    """Where baselines lie."""
    series: str | None = None
    """Overrides the policy's and the captures' series."""
    update: Update = field(default_factory=Update)
    _results: dict[str, list[CheckResult]] = field(default_factory=dict)
    _baseline: list[Baseline | None] = field(default_factory=list)
    _family: Family | None = None

    # -- what there is to judge -------------------------------------------------------------------------------

    def series_name(self) -> str | None:
        """Return the series: what was asked for, else the policy's, else the captures' own; None if nothing names it.

        Raises:
            UsageError: the captures name several.
        """
        if named := self.series or self.policy.series:
            return named
        found = sorted({capture.manifest.series for capture in self.captures if capture.manifest.series})
        if len(found) > 1:
            raise UsageError(
                f"the captures belong to several series ({', '.join(found)}): gate one at a time, or --rl-series=NAME"
            )
        return found[0] if found else None

    def require_use(self) -> None:
        """Raise `UsageError` where these captures cannot be judged together under this policy."""
        self.series_name()
        seen: dict[str, Capture] = {}
        for capture in self.captures:
            if capture.manifest.kind != self.policy.kind:
                raise UsageError(
                    f"{capture.name} is a {capture.manifest.kind}, the policy is for a {self.policy.kind}: "
                    f'set kind = "{capture.manifest.kind}" in the policy'
                )
            twin = seen.setdefault(capture.digest, capture)
            if twin is not capture:
                raise UsageError(f"{twin.name} and {capture.name} hold the same files: a run counts once, give it once")

    def baseline_path(self) -> Path:
        """Return the file that holds the series' baseline.

        Raises:
            UsageError: nothing names the series.
        """
        series = self.series_name()
        if series is None:
            raise UsageError(f"nothing names the series of these captures; see to it that {_NAME_IT}")
        return store.path_of(self.folder, series)

    def baseline(self) -> Baseline | None:
        """Read the series' baseline; None if there is none.

        Raises:
            BaselineError: there is one, but it cannot be trusted.
        """
        if not self._baseline:
            named = self.series_name() is not None
            self._baseline.append(store.read(self.baseline_path()) if named else None)
        return self._baseline[0]

    # -- verdicts ---------------------------------------------------------------------------------------------

    def results(self, check: str) -> list[CheckResult]:
        """Run a check on every capture, once."""
        if check not in self._results:
            self._results[check] = [run_check(capture, check, self.policy.evidence) for capture in self.captures]
        return self._results[check]

    def require_trust(self, kind: Kind, name: str) -> None:
        """Raise `EvidenceError` where nothing may be judged, for it rests on evidence that is broken.

        A check of the evidence itself raises with the whole message if it errs; everything else raises with one
        line that names the check.
        """
        own = CHECKS[name].foundation if kind == "checks" else False
        if own:
            broken = [result for result in self.results(name) if result.status == "error"]
            if broken:
                raise EvidenceError("\n".join(result.message() for result in broken))
            return
        for check in self.foundations():
            for result in self.results(check):
                if result.status in ("error", "fail"):
                    raise EvidenceError(f"not judged: {result.capture} cannot be trusted, see checks::{check}")

    def foundations(self) -> list[str]:
        """Return the checks that everything else rests on."""
        return [name for name in default_checks(self.policy.kind) if CHECKS[name].foundation]

    def evidence_records(self, kind: Kind, name: str) -> list[dict[str, Any]]:
        """Return the records of a check that errs, for the report."""
        return [check_record(result) for result in self.results(name)] if kind == "checks" else []

    def judge(self, kind: Kind, name: str) -> Judgement:
        """Judge one item.

        Raises:
            EvidenceError: the evidence it rests on is broken.
        """
        self.require_trust(kind, name)
        if kind == "checks":
            return self.judge_check(name)
        return self.judge_limit(name) if kind == "limits" else self.compare(name)

    def judge_check(self, name: str) -> Judgement:
        """Say what a check found, whatever it rests on."""
        results = self.results(name)
        verdict: Verdict = "pass"
        for status, word in (("error", "invalid"), ("fail", "failed"), ("inconclusive", "inconclusive")):
            if any(result.status == status for result in results):
                verdict = word  # type: ignore[assignment]
                break
        wanted = {"failed": "fail", "invalid": "error"}.get(verdict, verdict)
        message = "\n".join(result.message() for result in results if result.status == wanted)
        return Judgement(
            kind="checks",
            name=name,
            verdict=verdict,
            message=message,
            records=tuple(check_record(r) for r in results),
        )

    def judge_limit(self, key: str) -> Judgement:
        """Hold every capture against a limit of the policy."""
        limit = self.policy.limits[key]
        records, messages, worst = [], [], "pass"
        for capture in self.captures:
            measured = measuring.measure(capture, limit.metric, self.policy.scope)
            status = limit.judge(measured)
            if status != "pass" and worst != "failed":
                worst = status
            messages.append((status, limit.message(measured)))
            records.append(
                {
                    "metric": limit.metric,
                    "limit": str(limit),
                    "value": measured.value,
                    "unit": measured.unit,
                    "status": status,
                    "why": limit.why(measured),
                    "capture": capture.name,
                }
            )
        message = "\n".join(text for status, text in messages if status == worst)
        verdict: Verdict = worst  # type: ignore[assignment]
        found = Judgement(kind="limits", name=limit.metric, verdict=verdict, message=message, records=tuple(records))
        return waived(found, self.policy)

    def compare(self, key: str, allowed: float | None = None) -> Judgement:
        """Compare one metric with the baseline and say what follows from it."""
        if allowed is None:
            allowed = self.policy.gated.get(key, 0.05)
        comparison = self.comparison(key, allowed)
        verdict = self._consequence(comparison)
        found = Judgement(
            kind="metrics",
            name=comparison.metric,
            verdict=verdict,
            message=comparison.message,
            records=(comparison.record(),),
            causes=tuple(comparison.causes.rows() if comparison.causes else ()),
            caution=comparison.caution,
        )
        return waived(found, self.policy)

    def comparison(self, key: str, allowed: float) -> Comparison:
        """Compare one metric with the baseline.

        Raises:
            BaselineError: the baseline cannot be trusted, and is not to be replaced.
        """
        if self._family is None:
            try:
                stored = self.baseline()
            except BaselineError:
                if not self.update.wanted:
                    raise
                stored = None
            self._family = Family(self.captures, self.policy, stored)
        found = self._family.compare(key, allowed)
        if found.verdict != "no_baseline":
            return found
        if self.series_name() is None:
            return dataclasses.replace(found, message=f"{found.message}, once {_NAME_IT}")
        path = self.baseline_path()
        return found if path.exists() else dataclasses.replace(found, message=wording.looked_for(found.message, path))

    def _consequence(self, comparison: Comparison) -> Verdict:
        """Return what a comparison's verdict means for the run, with what was asked of the baseline."""
        accepted = self.update.wanted and self.update.reason
        match comparison.verdict:
            case "no_baseline":
                return "pass" if self.update.wanted or self.update.new_only else self._no_baseline()
            case "regressed" | "inconclusive" if accepted:
                return "pass"
            case "unchanged" | "improved":
                return "pass"
            case other:
                return other

    def _no_baseline(self) -> Verdict:
        strict = self.policy.no_baseline or ("fail" if in_ci() else "skip")
        return "failed" if strict == "fail" else "no_baseline"
