"""How far behind the trainer the weights were that generated an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import Account, ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope


def lags(capture: Capture, scope: Scope) -> list[tuple[Account, float]]:
    """Return the lag of every accepted attempt: trained version minus generating version.

    The generating version is the attempt's own `policy`, else the one its worker had loaded when it received
    the attempt's first request; never the version that was merely asked for. The trained version is the
    acceptance's own, else that of the step it was trained in.

    Raises:
        NotMeasurable: a version is unknown for some accepted attempt.
    """
    accepted = [a for a in capture.derive(ledger).attempts if a.acceptance == "accepted"]
    if not accepted:
        raise NotMeasurable("no attempt was accepted")
    steps, loaded, workers = _step_versions(capture), _loaded_versions(capture), _first_workers(capture)
    found = []
    for account in accepted:
        trained = account.get("trained_version") or steps.get(account.get("step"))
        generating = _generating(account, scope) or _loaded(loaded, workers.get(account.attempt_id))
        if trained is None or generating is None:
            which = "trained" if trained is None else "generating"
            raise NotMeasurable(f"the {which} policy version of attempt {account.attempt_id} is not recorded")
        found.append((account, _number(trained) - _number(generating)))
    return found


def _number(version: str | float) -> float:
    try:
        return float(version)
    except ValueError:
        raise NotMeasurable("policy versions are not numbers, so a lag cannot be counted") from None


def _generating(account: Account, scope: Scope) -> str | float | None:
    first: str | None = account.get("policy")
    last: str | None = account.get("policy_end")
    match scope.freshness:
        case "start":
            return first
        case "end":
            return last or first
        case "worst":
            known = [version for version in (first, last) if version is not None]
            return min(known, key=_number) if known else None
        case "token_mean":
            shares = dict(account.get("tokens_by_version") or ())
            total = sum(shares.values())
            return sum(_number(v) * n for v, n in shares.items()) / total if total else first


def _step_versions(capture: Capture) -> dict[int, str]:
    events = capture.control_events.select(["event", "step", "policy_version"]).to_pylist()
    return {e["step"]: e["policy_version"] for e in events if e["event"] == "step_started" and e["policy_version"]}


def _loaded_versions(capture: Capture) -> dict[str, list[tuple[float, str]]]:
    """Return for each worker when it had which version loaded, in order."""
    versions: dict[str, list[tuple[float, str]]] = {}
    for event in capture.control_events.select(["event", "t", "worker_id", "policy_version"]).to_pylist():
        if event["event"] == "version" and event["worker_id"] and event["policy_version"] is not None:
            versions.setdefault(event["worker_id"], []).append((event["t"], event["policy_version"]))
    return {worker: sorted(times) for worker, times in versions.items()}


def _first_workers(capture: Capture) -> dict[str, tuple[float, str]]:
    """Return when and by which worker each attempt's first request was received."""
    rows = capture.requests.select(["received_at", "decode_worker_id"]).to_pylist()
    first: dict[str, tuple[float, str]] = {}
    for number, owner in capture.derive(join).owners.items():
        row = rows[number]
        if row["received_at"] is not None and row["decode_worker_id"] is not None:
            seen = row["received_at"], str(row["decode_worker_id"])
            first[owner.attempt_id] = min(seen, first.get(owner.attempt_id, seen))
    return first


def _loaded(versions: dict[str, list[tuple[float, str]]], first: tuple[float, str] | None) -> str | None:
    if first is None:
        return None
    instant, worker = first
    known = [version for since, version in versions.get(worker, []) if since <= instant]
    return known[-1] if known else None
