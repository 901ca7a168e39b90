"""Question 1: are all files there, and whole?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.checks import Evidence, Outcome, check

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture


@check(question=1)
def shards_are_whole(capture: Capture, evidence: Evidence) -> Outcome:
    """No file is cut off or damaged, no segment number is missing, and one producer wrote all segments."""
    findings = [finding for finding in capture.findings if finding.check == "shards_are_whole"]
    whole = sum(source.whole for source in capture.sources)
    return Outcome(observed=whole, of=len(capture.sources), noun="files", findings=findings)
