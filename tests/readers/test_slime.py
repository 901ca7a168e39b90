"""slime: a dumped sample and each of its attempts, from the timeline cache or from an exporter's lines."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest
from samples import document, records, sample, told, written

from pytest_rlserve.errors import UsageError
from pytest_rlserve.ledger import ledger
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

CACHE = "slime.trace_timeline_cache.json"
LINES = "slime_samples.jsonl"
T = 1_790_000_000.0


def fates(capture: Capture) -> dict[str, tuple[str | None, str | None, bool]]:
    return {a.attempt_id: (a.outcome, a.acceptance, a.retried) for a in capture.derive(ledger).attempts}


def test_five_samples_are_six_attempts() -> None:
    capture = sample(CACHE)
    assert fates(capture) == {
        "96": ("completed", "accepted", False),
        "97": ("completed", "accepted", False),
        "98-a0": ("canceled", None, False),
        "98": ("completed", "accepted", True),
        "99": ("canceled", None, False),
        "100": ("failed", None, False),
    }
    assert capture.derive(ledger).findings == ()


def test_attempts_of_one_sample_have_their_own_times() -> None:
    times = {a.attempt_id: (a.dispatched_at, a.ended_at) for a in sample(CACHE).derive(ledger).attempts}
    assert times["98-a0"] == (T + 4, T + 9.5)
    assert times["98"] == (T + 9.8, T + 15.5)
    assert times["96"] == (T + 2, T + 7.5)


def test_a_generation_is_a_request_with_the_engines_id_and_usage() -> None:
    requests = sample(CACHE).derive(ledger).requests
    assert [(r.attempt_id, r.outcome, r.get("finish_reason")) for r in requests] == [
        ("96", "completed", "stop"),
        ("97", "completed", "length"),
        ("98-a0", "canceled", "abort"),
        ("99", "canceled", "abort"),
        ("100", "completed", "stop"),
        ("98", "completed", "stop"),
    ]
    first = requests[0]
    assert first.get("response_id") == "00000000000000000000000000051000"
    assert [first.get(n) for n in ("prompt_tokens", "output_tokens", "cached_tokens")] == [256, 300, 192]
    assert first.get("latency_ms") == pytest.approx(5400)


def test_the_step_is_the_rollout_that_the_dump_is_of() -> None:
    capture = sample(CACHE)
    assert {row[0] for row in told(capture.attempt_events, "step")} == {12}


def test_what_a_dump_does_not_hold_is_unknown() -> None:
    counts = sample(CACHE).derive(ledger).counts("attempt")
    assert counts is not None
    assert (counts.completed, counts.canceled, counts.failed, counts.retried, counts.accepted) == (3, 2, 1, 1, 3)
    assert (counts.dispatched, counts.open, counts.rejected, counts.pending) == (None,) * 4


def test_an_earlier_attempt_that_was_not_aborted_has_no_outcome(tmp_path: Path) -> None:
    cache = document(CACHE)
    cache["rows"] = [copy.deepcopy(cache["rows"][2])]
    cache["rows"][0]["items"][0]["attrs"]["end_attrs"]["finish_reason"] = "stop"
    assert fates(written(tmp_path / "c.json", cache))["98-a0"] == (None, None, False)


def test_a_pending_sample_is_open_and_an_open_span_has_no_end(tmp_path: Path) -> None:
    cache = document(CACHE)
    cache["rows"] = [cache["rows"][0] | {"status": "pending"}]
    span = cache["rows"][0]["items"][0]
    span |= {"state": "open_span", "end_ts": None, "attrs": {"start_attrs": {}, "end_attrs": None}}
    capture = written(tmp_path / "c.json", cache)
    assert fates(capture) == {"96": (None, None, False)}
    assert [request.outcome for request in capture.derive(ledger).requests] == [None]


def test_lines_give_versions_and_the_step_a_sample_began_in() -> None:
    attempts = sample(LINES).derive(ledger).attempts
    assert [(a.attempt_id, a.outcome, a.acceptance, a.get("policy"), a.get("policy_end")) for a in attempts] == [
        ("100", "failed", None, None, None),
        ("96", "completed", "accepted", "5", "5"),
        ("97", "completed", "accepted", "5", "5"),
        ("98", "completed", "accepted", "4", "5"),
        ("99", "canceled", None, "5", "5"),
    ]
    steps = told(sample(LINES).attempt_events, "step", where=lambda row: row["event"] == "dispatched")
    assert steps == [(12,), (12,), (11,), (12,), (11,)]
    assert [a.get("output_tokens") for a in attempts] == [0, 300, 300, 600, 300]


def test_a_completed_sample_that_the_loss_leaves_out_is_rejected(tmp_path: Path) -> None:
    (account,) = written(tmp_path / "s.jsonl", records(LINES)[0] | {"remove_sample": True}).derive(ledger).attempts
    assert (account.outcome, account.acceptance, account.get("reason")) == ("completed", "rejected", "remove_sample")


def test_cache_and_lines_together_are_not_counted_twice_in_silence(tmp_path: Path) -> None:
    written(tmp_path / "c.trace_timeline_cache.json", document(CACHE))
    written(tmp_path / "s.jsonl", *records(LINES))
    assert open_capture(tmp_path).derive(ledger).findings


def test_another_version_of_the_cache_is_refused(tmp_path: Path) -> None:
    (finding,) = written(tmp_path / "c.json", document(CACHE) | {"cache_version": 2}).findings
    assert (finding.severity, finding.message) == ("error", "cache_version 2 is not supported, only 1")


def test_the_pickle_itself_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (tmp_path / "opened").touch, ()

    (tmp_path / "rollout_12.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UsageError, match="unknown format"):
        open_capture(tmp_path / "rollout_12.pt")
    assert not (tmp_path / "opened").exists()
