"""The report (`rlserve.report.v1`): all that any rendering needs, and nothing of the machine it was made on."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_rlserve.gate.breakdowns import breakdowns
from pytest_rlserve.gate.coverage import coverage
from pytest_rlserve.gate.items import items
from pytest_rlserve.gate.judgement import WORST_FIRST
from pytest_rlserve.joins import join
from pytest_rlserve.joins.reconciliation import reconcile
from pytest_rlserve.joins.residuals import OF_ROWS
from pytest_rlserve.ledger import Counts, ledger
from pytest_rlserve.metrics import measuring
from pytest_rlserve.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.verdicts import Gate

_MOST_FINDINGS = 100
_MOST_IDS = 100


def build(
    gate: Gate,
    judged: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[str] | None = None,
    not_run: Sequence[str] = (),
    failed_tests: Mapping[str, str] = MappingProxyType({}),
    baseline_changes: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Build the report.

    Args:
        gate: the gate that judged.
        judged: what was judged: kind, name, verdict and records of each item, in any order.
        keys: the metrics to list for each capture; by default all that are registered.
        not_run: ids of items that should have run and did not.
        failed_tests: verdicts, by id, of tests that failed or erred and are no item of the judged ones.
        baseline_changes: what the run wrote to the baseline.
    """
    order = {item: number for number, item in enumerate(items(gate.policy))}
    ranked = sorted(judged, key=lambda j: (order.get((j["kind"], j["name"]), len(order)), j["kind"], j["name"]))
    records: dict[str, list[dict[str, Any]]] = {"checks": [], "limits": [], "metrics": []}
    for one in ranked:
        records[one["kind"]] += [record for record in one["records"] if record not in records[one["kind"]]]
    verdicts = [one["verdict"] for one in ranked] + ["incomplete"] * bool(not_run)
    return {
        "schema": "rlserve.report.v1",
        "verdict": next((v for v in WORST_FIRST if v in verdicts), "pass" if verdicts else "incomplete"),
        "not_run": sorted(not_run),
        "failed_tests": [
            {"id": name, "status": "failed" if verdict == "failed" else "error"}
            for name, verdict in sorted(failed_tests.items())
        ],
        "series": gate.series_name(),
        "policy": {"path": gate.policy.path.name if gate.policy.path else None, "origin": gate.policy.origin},
        "captures": [
            _capture(gate, capture, records["checks"], keys or measuring.all_keys()) for capture in gate.captures
        ],
        "limits": records["limits"],
        "comparisons": records["metrics"],
        "baseline_changes": [dict(change) for change in baseline_changes],
        "why": next((list(one["causes"]) for one in ranked if one.get("causes")), []),
        "provenance": {
            "pytest_rlserve": __version__,
            "commits": sorted({c.manifest.commit for c in gate.captures if c.manifest.commit}),
        },
    }


def _capture(gate: Gate, capture: Capture, checks: list[dict[str, Any]], keys: Sequence[str]) -> dict[str, Any]:
    return {
        "name": capture.name,
        "job": capture.manifest.job,
        "digest": capture.digest,
        "sources": sources(capture),
        "not_read": [{"path": path, "why": why} for path, why in capture.not_read],
        "coverage": [dataclasses.asdict(line) for line in coverage(capture)],
        "counts": counts(capture),
        "checks": [_check(record) for record in checks if record["capture"] == capture.name],
        "metrics": [_metric(gate, capture, key) for key in keys],
        "tables": breakdowns(capture, gate.policy.scope),
    }


def sources(capture: Capture) -> list[dict[str, Any]]:
    """Say of each file what it is, what it can tell, and how much was found wrong with it."""
    findings = [finding.path for finding in capture.findings]
    return [
        {
            "path": source.path,
            "format": source.format,
            "rows": source.rows,
            "whole": source.whole,
            "covers": list(source.covers),
            "findings": findings.count(source.path),
        }
        for source in capture.sources
    ]


def _check(record: dict[str, Any]) -> dict[str, Any]:
    findings = record["findings"]
    kept = [{**finding, "ids": finding["ids"][:_MOST_IDS]} for finding in findings[:_MOST_FINDINGS]]
    if more := findings[_MOST_FINDINGS:]:
        kept.append(
            {
                "message": f"{len(more):,} more findings of this check",
                "severity": "note",
                "path": None,
                "line": None,
                "ids": [],
                "count": sum(finding["count"] for finding in more),
            }
        )
    return {**{key: value for key, value in record.items() if key != "capture"}, "findings": kept}


def counts(capture: Capture) -> dict[str, Any]:
    """Count attempts and requests of a capture, with a name and the ids for all that is left over.

    Of the names, those of rows begin with "row: ", since some reasons are a request's and a row's alike.
    """
    accounts, joined = capture.derive(ledger), capture.derive(join)
    requests = _counted(accounts.counts("request"))
    rows = {"rows": capture.scalars.num_rows, "joined": joined.joined}
    return {
        "attempts": _counted(accounts.counts("attempt")),
        "requests": {**(requests or dict.fromkeys(_COUNT_NAMES)), **rows},
        "residuals": {
            name: {"count": len(ids), "ids": list(ids[:_MOST_IDS])}
            for one in capture.derive(reconcile)
            for name, ids in {**one.residuals, **_of_rows(one.strays), **one.outside}.items()
        },
    }


def _of_rows(strays: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {f"{OF_ROWS}{name}": ids for name, ids in strays.items()}


_COUNT_NAMES = tuple(field.name for field in dataclasses.fields(Counts))


def _counted(found: Counts | None) -> dict[str, Any] | None:
    return None if found is None else dataclasses.asdict(found)


def _metric(gate: Gate, capture: Capture, key: str) -> dict[str, Any]:
    measured = measuring.measure(capture, key, gate.policy.scope)
    names = ("numerator", "denominator", "freshness", "phase")
    return {
        "name": measured.name,
        "value": measured.value,
        "why": measured.why,
        "unit": measured.unit,
        "n": measured.n,
        **{name: measured.definition[name] for name in names},
        "excluded": [measured.excluded] if measured.excluded else [],
    }
