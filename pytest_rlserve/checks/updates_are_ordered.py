"""Question 3: did every weight update reach its workers, step after step?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve import units
from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.checks.told_elsewhere import told_elsewhere
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.missed import served_by, targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_rlserve.capture import Capture, Severity
    from pytest_rlserve.lifecycle import Event, Passage, Update

_NAME = "updates_are_ordered"
_NOUN = "workers of weight updates"
_IN_ORDER = (
    ("gate_closed", "transfer_started", "the gate was closed"),
    ("pause", "transfer_started", "it was paused"),
    ("cache_reset", "resume", "its cache was reset"),
    ("version", "resume", "its new version was recorded"),
    ("cache_reset", "gate_opened", "its cache was reset"),
    ("version", "gate_opened", "its new version was recorded"),
    ("ready", "gate_opened", "it was ready"),
)
"""What must not happen before what, and how to say that it did. Transfer and reset have words of their own."""
_WORDS = {
    "transfer_started": "the transfer of weights began",
    "resume": "it resumed",
    "gate_opened": "the gate opened",
}


@check(question=3, kinds=("rollout",))
def updates_are_ordered(capture: Capture, evidence: Evidence) -> Outcome:
    """Every weight update reached every target worker: transfer, then cache reset, then resume, with the gate closed.

    A reset before the end of the transfer is not valid, since requests may fill the cache again under the old
    weights. A phase that reports an error did not happen. Requests may run through a reset only where the policy
    or the update's records say `in_flight = "keep"`. Targets are those the records name, else every worker that was
    there before the update and served after it. Lost workers are named.
    """
    known = capture.derive(fleet)
    findings = [*_lost(capture), *_cut_off(capture)]
    why: str | None
    if not known.finished:
        why = (
            "the control records tell of no weight update that ended"
            if capture.has("control_events")
            else "no source records weight updates: write rlserve.control.v1 (pytest_rlserve.ControlRecorder)"
        )
        why += told_elsewhere(capture)
        return Outcome(observed=0, of=0, noun=_NOUN, findings=findings, inconclusive=why)
    good = total = 0
    ends = any(update.tells("transfer_finished") for update in known.updates)
    for update in known.finished:
        keep = "keep" in (evidence.in_flight, update.in_flight)
        for worker in targets(capture, update):
            wrong = [*_worker(capture, update, worker, ends=ends), *_before_its_time(capture, update, worker)]
            wrong += () if keep else _ran_through(capture, update, worker)
            findings += wrong
            good += not any(finding.severity == "failure" for finding in wrong)
            total += 1
    why = None if total else "the control records name no worker, and no row says which worker served it"
    return Outcome(observed=good, of=total, noun=_NOUN, findings=findings, inconclusive=why)


def _finding(message: str, events: Iterable[Event], severity: Severity = "failure", **more: object) -> Finding:
    place = next((event for event in events if event.source), None)
    where = {"path": place.source, "line": place.line} if place else {}
    return Finding(message=message, severity=severity, check=_NAME, **where, **more)  # type: ignore[arg-type]


def _worker(capture: Capture, update: Update, worker: str, *, ends: bool) -> Iterator[Finding]:
    """Find what went wrong on one worker in one update; `ends` says whether any record tells when transfers end."""
    passage = update.passage(worker)
    events = passage.events or update.events
    for event in passage.events:
        if not event.good:
            reason = f" ({event.reason})" if event.reason else ""
            said = f"{update}: {event.name} of worker {worker} ended with status {event.status}{reason}"
            yield _finding(said, [event])
    reached = update.reached(worker)
    if reached is None:
        return
    if not reached:
        since = capture.derive(fleet).version_at(worker, update.end)
        got = f"loaded version {since} instead of {update.version}"
        still = (
            f", which {got if passage.times('version') else f'stays on version {since}'}" if since is not None else ""
        )
        took = capture.derive(served_by).get(worker)
        gone = took and took.received[-1] < update.end  # perhaps a restart under an id that nothing ties to this one
        hint = "; it served nothing afterwards: if it goes by another id now, say replaced_worker_id" if gone else ""
        yield _finding(f"{update} missed worker {worker}{still}{hint}", events)
        return
    sent = {event.name for event in passage.events}
    if "transfer_started" in sent and sent.isdisjoint({"transfer", "transfer_finished"}) and ends:
        text = f"{update}: the transfer to worker {worker} began and no record ends it: did all weights arrive?"
        yield _finding(text, [event for event in passage.events if event.name == "transfer_started"])
    yield from _resets(capture, update, passage, worker)
    for first, second, words in _IN_ORDER:
        before, after = passage.times(first), passage.times(second)
        if before and after and max(before) > max(after):
            late = max(before) - max(after)
            yield _finding(
                f"{update}: {words} on worker {worker} {late:.3f} s after {_WORDS[second]}",
                [event for event in events if event.name == first],
            )


def _resets(capture: Capture, update: Update, passage: Passage, worker: str) -> Iterator[Finding]:
    resets, sent = passage.times("cache_reset"), passage.transferred
    if not resets:
        yield _finding(
            f"{update}: worker {worker} has no cache_reset, so blocks of its earlier version can be reused",
            passage.events,
        )
    elif not passage.valid_resets and sent is not None:
        served = capture.derive(served_by).get(worker)
        between = served.between(max(resets), sent) if served else ()
        refilled = f"; {units.many(len(between), 'request')} came in between and filled it again" if between else ""
        yield _finding(
            f"{update}: cache_reset of worker {worker} at {max(resets):.3f} came before its transfer ended at "
            f"{sent:.3f}{refilled}",
            [event for event in passage.events if event.name == "cache_reset"],
        )


def _ran_through(capture: Capture, update: Update, worker: str) -> Iterator[Finding]:
    """Find requests that a worker was serving when its cache was reset."""
    passage = update.passage(worker)
    served = capture.derive(served_by)
    ids = [name for name in dict.fromkeys((worker, passage.earlier or worker)) if name in served]
    through = [row for name in ids for row in served[name].running_at(passage.times("cache_reset"))]
    if through:
        clock = "; a restart ends what runs, so look at the clock of the control records first" * bool(passage.earlier)
        yield _finding(
            f"{update}: {units.many(len(through), 'request')} ran through the cache reset of worker {worker}{clock}; "
            'where that is meant, say in_flight = "keep" in [updates] of the policy',
            [event for event in passage.events if event.name == "cache_reset"],
            ids=tuple(capture.scalars["request_id"].take(through).to_pylist()),
            count=len(through),
        )


def _before_its_time(capture: Capture, update: Update, worker: str) -> Iterator[Finding]:
    """Find requests that a worker served before it had restarted under the id that served them."""
    passage = update.passage(worker)
    restarts = passage.times("cache_reset") if passage.earlier not in (None, worker) else []
    served = capture.derive(served_by).get(worker)
    early = served.between(-math.inf, max(restarts)) if served and restarts else []
    if served and early:
        yield _finding(
            f"{update}: worker {worker} served {units.many(len(early), 'request')} up to "
            f"{max(restarts) - served.received[0]:.3f} s "
            f"before it restarted under this id: a clock is wrong, of control records or server, or the id",
            [event for event in passage.events if event.name == "cache_reset"],
            ids=tuple(capture.scalars["request_id"].take(sorted(early)).to_pylist()),
            count=len(early),
        )


def _cut_off(capture: Capture) -> Iterator[Finding]:
    """Name the update that was under way when the records stop."""
    known = capture.derive(fleet)
    last = known.updates[-1:]
    if last and not last[0].opening and not last[0].ended:
        yield _finding(f"{last[0]} had not ended when the records stop; it is not judged", last[0].events, "warning")


def _lost(capture: Capture) -> Iterator[Finding]:
    """Name the workers that were lost, with the requests that failed on them: their rows look canceled."""
    served = capture.derive(served_by)
    for worker, event in capture.derive(fleet).lost.items():
        joined = capture.derive(join)
        failed_on = np.append(joined.ledger.all.are("failed"), False)  # the last is nobody
        rows = served[worker].rows if worker in served else np.zeros(0, dtype=np.int64)
        failed = rows[failed_on[joined.owner[rows]]].tolist()
        ids = tuple(capture.scalars["request_id"].take(failed).to_pylist()) if failed else ()
        said = f"worker {worker} was lost; {units.many(len(failed), 'request')} that it had taken failed"
        yield _finding(said, [event], "warning", ids=ids, count=max(len(failed), 1))
