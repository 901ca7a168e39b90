"""Question 3: did any request reuse KV blocks that an earlier policy version had computed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve import units
from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.checks.told_elsewhere import told_elsewhere
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.prompts import prompts
from pytest_rlserve.reuse import NOT_REPORTED, cached, excess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.reuse import Numbers

_NAME = "no_stale_kv"
_NOUN = "requests whose cached tokens are known"
_UNEXPLAINED = 0.005
"""Share of reused tokens that may come from requests the trace does not show: lost rows, several choices at once."""

_UNKNOWN = 0.05
"""Share of the requests that may be unknown: what they reused, or which version their worker had loaded."""


@check(question=3, kinds=("rollout",))
def no_stale_kv(capture: Capture, evidence: Evidence) -> Outcome:
    """No request reused KV blocks that its worker had computed under an earlier policy version.

    A block is available to a request if another one that contains it, of any outcome, came to the same worker
    before the request's first token, since that worker's loaded version last changed. Reuse beyond that, of blocks
    that no valid cache reset cleared, is stale: the answer mixes two policies, however good the reuse looks. Any
    other excess is unexplained reuse and fails above 0.5 % of all reused tokens. A worker that stays on an old
    version is behind (`workers_are_current`), not stale.

    It needs the engine's own number of cached tokens and records of weight updates. Where only the KV router's
    prediction is known, that can accuse but never acquit.
    """
    rows = capture.scalars.num_rows
    known = capture.derive(fleet)
    if not rows or not any(update.tells("version") for update in known.updates):
        why = (
            "there are no records of which version a worker loaded, and when: write rlserve.control.v1 "
            "(pytest_rlserve.ControlRecorder) beside the trace"
            if rows
            else "there are no served requests: it takes Dynamo's request trace"
        )
        return Outcome(observed=0, of=0, noun=_NOUN, inconclusive=why + (told_elsewhere(capture) if rows else ""))
    try:
        found = capture.derive(excess)
    except NotMeasurable as error:
        return Outcome(observed=0, of=0, noun=_NOUN, inconclusive=str(error))
    told = found.judged & _of_known_version(capture)
    judged, silent = int(found.judged.sum()), _silent(capture)
    findings = [*_stale(capture), *([] if found.predicted else _unexplained(capture))]
    good = int((told & (found.stale == 0) & (found.unexplained == 0)).sum())
    predicted = "only the KV router's predictions are known: record cached_tokens of each response's usage"
    nothing = "no request has its worker, its blocks and its cached tokens: nothing shows what was reused"
    if not (capture.derive(cached).best >= 0).any():
        nothing = NOT_REPORTED
    unsure = nothing if not judged else predicted if found.predicted else None
    if not unsure and silent > _UNKNOWN * (judged + silent):
        unsure = (
            f"cached tokens, blocks and worker are known of {judged:,} of {judged + silent:,} completed requests: "
            "record cached_tokens of each response's usage"
        )
    unknown = judged - int(told.sum())
    if not unsure and unknown > _UNKNOWN * judged:
        unsure = (
            f"no record says which version the workers had loaded that served {unknown:,} of {judged:,} requests "
            "(see workers_are_current): do the control records name workers by the ids that the trace has?"
        )
    return Outcome(observed=good, of=judged, noun=_NOUN, findings=findings, inconclusive=unsure)


def _silent(capture: Capture) -> int:
    """Count the completed requests of which nobody knows what they reused, or where."""
    joined = capture.derive(join)
    completed = joined.ledger.all.are("completed")[joined.owner[joined.order]]
    return int((completed & ~capture.derive(excess).judged[joined.order]).sum())


def _of_known_version(capture: Capture) -> NDArray[np.bool_]:
    """Mark the rows of workers of which some record says what they had loaded: of others nothing can be stale."""
    known, found = capture.derive(fleet), capture.derive(prompts)
    told = np.array([*(bool(known.versions(worker)) for worker in found.workers), False], dtype=np.bool_)
    return told[found.served]


def _stale(capture: Capture) -> Iterator[Finding]:
    """Yield one finding for each worker and the version it had loaded."""
    found, known, stale = capture.derive(prompts), capture.derive(fleet), capture.derive(excess).stale
    groups: dict[tuple[str, str | None], list[int]] = {}
    for row in np.flatnonzero(stale).tolist():
        worker = found.workers[found.served[row]]  # nothing is stale that no worker served
        groups.setdefault((worker, known.version_at(worker, found.first_token[row])), []).append(row)
    for (worker, version), rows in groups.items():
        now = "its version changed" if version is None else f"it loaded version {version}"
        expected = " as the KV router saw it," if capture.derive(excess).predicted else ""
        some = f"{units.many(int(stale[rows].sum()), 'token')} in {units.many(len(rows), 'request')}"
        yield _finding(
            capture,
            rows,
            f"worker {worker} reused {some},{expected} of blocks computed before {now}; "
            f"{_why_kept(capture, worker, rows)}",
            "failure",
        )


def _why_kept(capture: Capture, worker: str, rows: list[int]) -> str:
    """Say what became of the cache reset that should have cleared those blocks."""
    known = capture.derive(fleet)
    last = max(capture.derive(prompts).first_token[rows].tolist())
    change = max((t for t in known.changes(worker) if t <= last), default=None)
    update = next((one for one in known.updates if change in one.passage(worker).times("version")), None)
    resets = update.passage(worker).times("cache_reset") if update else []
    if update and resets:
        return f"the cache_reset of {update} came before the transfer had ended, and blocks were added after it"
    return "no cache_reset between the change and the first reuse"


def _unexplained(capture: Capture) -> Iterator[Finding]:
    found = capture.derive(excess)
    rows = np.flatnonzero(found.unexplained).tolist()
    if not rows:
        return
    tokens = int(found.unexplained.sum())
    whole = int(capture.derive(cached).best[found.judged].sum())
    share = tokens / whole
    some = f"{units.many(tokens, 'token')} in {units.many(len(rows), 'request')}"
    yield _finding(
        capture,
        rows,
        f"unexplained reuse: {some}, {share * 100:.2f} % of the {whole:,} reused ({_UNEXPLAINED * 100:g} % may be), of "
        f"blocks that no row of the capture had brought to the worker{_without_rows(capture)}",
        "failure" if share > _UNEXPLAINED else "note",
    )


def _without_rows(capture: Capture) -> str:
    """Name what may have brought those blocks and left no row: then nothing is wrong with the reuse itself."""
    joined = capture.derive(join)
    torn = [finding.path for finding in capture.findings if finding.check == "shards_are_whole" and finding.path]
    lost, several = joined.traceable - joined.traceable_served, len(joined.without_row.get("n>1", ()))
    said = [
        f"rows are missing from {', '.join(dict.fromkeys(torn))}" if torn else "",
        f"{units.many(lost, 'completed request')} lost {'a row' if lost == 1 else 'their rows'}" if lost else "",
        f"{units.many(several, 'request')} with several choices never had a row" if several else "",
    ]
    told = " and ".join(filter(None, said))
    if torn or lost:
        return f"; it may be no fault of the engine, since {told}: judge a capture that is whole"
    return f"; {told}" if told else ""


def _finding(capture: Capture, rows: Numbers | list[int], message: str, severity: str) -> Finding:
    some = capture.scalars.select(["request_id", "source", "line"]).take(rows).to_pylist()
    return Finding(
        message=message,
        severity=severity,  # type: ignore[arg-type]
        check=_NAME,
        path=some[0]["source"],
        line=some[0]["line"],
        ids=tuple(row["request_id"] for row in some),
        count=len(some),
    )
