"""Question 1: is every line a row of its format?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.errors import EvidenceError

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture


@check(question=1)
def rows_fit_schema(capture: Capture, evidence: Evidence) -> Outcome:
    """Every line decodes strictly and fits its schema, and a trace has at least one request.

    Strictly means: one JSON object a line, finite numbers, no field given twice, well-formed text. One line
    that does not fit makes the capture untrustworthy, since nobody knows what else its writer did wrong.
    """
    findings = [finding for finding in capture.findings if finding.check == "rows_fit_schema"]
    try:
        _ = capture.chains  # hashes that were left in the files are judged as well
    except EvidenceError as error:
        findings.append(Finding(message=str(error), severity="error", check="rows_fit_schema"))
    good = sum(source.rows for source in capture.sources)
    broken = [finding for finding in findings if finding.severity == "error"]
    refused = sum(finding.count for finding in broken if finding.line is not None or finding.count > 1)
    return Outcome(observed=good, of=good + refused, noun="rows", findings=findings)
