"""What the sources of a capture can answer, and for how many of how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.capture import Coverage
from pytest_rlserve.columns import given, known
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.joins.versions import loaded_for
from pytest_rlserve.ledger import ledger
from pytest_rlserve.missed import served_by

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture


def coverage(capture: Capture) -> list[Coverage]:
    """Return one line a question; what there is nothing of is 0 of 0."""
    accounts, joined = capture.derive(ledger), capture.derive(join)
    attempts, rows = accounts.attempts, capture.scalars
    completed = attempts.that("completed")
    accepted = attempts.that("accepted")
    answered = (accounts.requests or attempts).that("completed")
    untold = ~known(given(accepted.column("policy")))
    loaded = loaded_for(capture, accepted, untold)
    generated = int((~untold).sum()) + sum(version is not None for version in loaded)
    used = len(answered) - answered.column("cached_tokens").null_count
    served, fleet_of = capture.derive(served_by), capture.derive(fleet)
    weighed = sum(bool(fleet_of.versions(worker)) for worker in served)
    lines = [
        ("how did attempts end", "recorded attempts", int((~attempts.are("open")).sum()), len(attempts)),
        ("what did the trainer decide", "completed attempts", int(completed.decided.sum()), len(completed)),
        ("which policy version generated", "accepted attempts", generated, len(accepted)),
        ("which attempt was served", "rows", joined.joined, rows.num_rows),
        ("was every completed request traced", "traceable requests", joined.traceable_served, joined.traceable),
        ("how was latency made up", "rows", rows.num_rows - rows["ttft_ms"].null_count, rows.num_rows),
        ("what did the engine reuse", f"completed {joined.level}s", used, len(answered)),
        ("which weights did each worker have", "workers that served", weighed, len(served)),
    ]
    return [
        Coverage(question=question, of=of, observed=observed, total=total) for question, of, observed, total in lines
    ]
