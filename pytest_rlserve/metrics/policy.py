"""How old the policy was that generated what the trainer used, and what restoring a checkpoint costs."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins.versions import number
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Scope, Values, metric
from pytest_rlserve.metrics.freshness import lags

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

_ANY = "any policy version"
_SHOWN = 5


@metric(
    unit="versions",
    better="lower",
    needs={"attempt_events"},
    numerator="trained version minus generating version of each accepted attempt, taken when it is trained on",
    denominator="1",
    freshness="measured at {kind}",
    phase="whole capture",
    statistics=("mean", "p50", "max"),
)
def policy_lag(capture: Capture, scope: Scope) -> Values:
    """How many policy versions lay between generation and training, from the version of the policy's `kind`.

    The time that a finished attempt waits for its group or its step counts. A negative lag is a version counter that
    went backwards: it is shown as it is, and the check `versions_advance` fails on it.
    """
    _, found = lags(capture, scope)
    accepted = int(capture.derive(ledger).attempts.are("accepted").sum())
    undone = accepted - len(found)
    text = f"{undone:,} accepted by a step that a restart undid" if undone else ""
    return Values(found, text)


@metric(
    unit="versions",
    better="lower",
    needs={"attempt_events"},
    numerator="over the tokens of a step's groups, trained version minus the version that generated the token",
    denominator="tokens of those groups",
    freshness=_ANY,
    phase="each trained step; of a step that came again, the last time",
    statistics=("mean", "max"),
)
def batch_age(capture: Capture, scope: Scope) -> Values:
    """Age of a step's batch as NeMo RL defines it: the token-weighted mean, one value a step.

    A group is looked up over all runs of the file, the last line of its id. Groups that were never published, or
    without tokens, count nothing; a step without any known token has no age, and does not replace the age that an
    earlier run gave it.
    """
    ages, unmatched = batch_ages(capture)
    if not ages:
        raise NotMeasurable("no step was trained on groups whose tokens by version are recorded")
    named = ", ".join(unmatched[:_SHOWN]) + (f" +{len(unmatched) - _SHOWN} more" if unmatched[_SHOWN:] else "")
    groups = "group that was" if len(unmatched) == 1 else "groups that were"
    text = f"{len(unmatched):,} {groups} trained on but never published: {named}" if unmatched else ""
    return Values(np.array([ages[step] for step in sorted(ages)]), text)


def batch_ages(capture: Capture) -> tuple[dict[int, float], list[str]]:
    """Return the age of each step's batch, and the groups that were trained on but never published.

    Raises:
        NotMeasurable: a policy version is not a number.
    """
    columns = ["event", "t", "level", "group_id", "step", "trained_version", "tokens_by_version", "source", "line"]
    events = capture.attempt_events.select(columns)
    rows = events.filter(pc.equal(events["level"], "group")).to_pylist()
    tokens = {row["group_id"]: dict(row["tokens_by_version"]) for row in rows if row["event"] == "published"}
    trained: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["event"] == "accepted":
            trained[row["source"], row["line"]].append(row)
    ages: dict[int, float] = {}
    for groups in _in_file_order(trained):
        version = _version(groups[0]["trained_version"])
        shares = [share for row in groups for share in tokens.get(row["group_id"], {}).items()]
        whole = sum(count for _, count in shares)
        if whole:
            ages[groups[0]["step"]] = sum(count * (version - _version(name)) for name, count in shares) / whole
    unmatched = dict.fromkeys(row["group_id"] for groups in trained.values() for row in groups)
    return ages, [group for group in unmatched if group not in tokens]


def _in_file_order(trained: dict[tuple[str, int], list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Return the trained steps line by line; of several files, the one that began first comes first."""
    began: dict[str, float] = {}
    for (source, _), groups in trained.items():
        began[source] = min(groups[0]["t"], began.get(source, groups[0]["t"]))
    return [trained[place] for place in sorted(trained, key=lambda place: (began[place[0]], *place))]


def _version(name: str) -> float:
    value = number(name)
    if value is None:
        raise NotMeasurable("policy versions are not numbers, so an age cannot be counted")
    return value


@metric(
    unit="s",
    better="lower",
    needs={"control_events"},
    numerator="time from the checkpoint_published of a step to the checkpoint_restored of the same",
    denominator="1",
    freshness=_ANY,
    phase="whole capture",
    statistics=("mean", "max"),
)
def restore_time(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How far a resumed run was thrown back: from the writing of its checkpoint until it was restored from it."""
    told = capture.control_events.select(["event", "t", "step"])
    kinds = pa.array(["checkpoint_published", "checkpoint_restored"])
    rows = told.filter(pc.is_in(told["event"], value_set=kinds)).to_pylist()
    published: dict[int | None, list[float]] = defaultdict(list)
    for row in sorted((r for r in rows if r["t"] is not None), key=lambda r: float(r["t"])):
        if row["event"] == "checkpoint_published":
            published[row["step"]].append(row["t"])
    times = []
    for row in rows:
        if row["event"] == "checkpoint_restored":
            before = published[row["step"]]
            place = bisect.bisect_right(before, row["t"])
            if place:
                times.append(row["t"] - before[place - 1])
    if not times:
        raise NotMeasurable("no checkpoint_restored follows a checkpoint_published of its step")
    return np.array(times)
