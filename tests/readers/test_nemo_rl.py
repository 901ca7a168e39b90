"""NeMo RL's trace: three known events exactly, every other name kept, a torn line saved, nothing claimed beyond."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from samples import FOLDER, sample, told, written

from pytest_rlserve import cli
from pytest_rlserve.checks import run_check
from pytest_rlserve.errors import UsageError
from pytest_rlserve.ledger import Counts, ledger
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

T = 1_790_000_000.0
GUESSES = {
    "attempt_dispatched": "dispatched",
    "attempt_sealed": "completed",
    "attempt_abandoned": "canceled",
    "group_discarded": "rejected",
    "weight_sync": "version",
    "checkpoint_published": "checkpoint_published",
    "checkpoint_restored": "checkpoint_restored",
}


def line(event: str, t: float = 0, **fields: Any) -> dict[str, Any]:
    return {"t": T + t, "run": "a1", "event": event, **fields}


def guessed() -> Capture:
    return sample("nemo_rl_guessed_names.jsonl", nemo_rl={"events": GUESSES})


def test_a_published_group_keeps_its_tokens_by_version_whole() -> None:
    published = told(
        sample("nemo_rl.jsonl").attempt_events,
        "level",
        "group_id",
        "tokens_by_version",
        where=lambda row: row["event"] == "published",
    )
    assert published == [
        ("group", "g-a0", [("0", 900), ("1", 100)]),
        ("group", "g-a1", [("1", 500)]),
        ("group", "g-a2", [("1", 300), ("2", 700)]),
        ("group", "g-a3", [("0", 40), ("1", 60), ("2", 100)]),
        ("group", "g-a4", [("2", 800)]),
        ("group", "g-b0", [("2", 150), ("3", 450)]),
        ("group", "g-b1", []),
    ]


def test_a_trained_step_accepts_its_groups_and_shows_in_the_control_events() -> None:
    capture = sample("nemo_rl.jsonl")
    accepted = told(
        capture.attempt_events, "step", "trained_version", "group_id", where=lambda row: row["event"] == "accepted"
    )
    assert accepted == [
        (1, "1", "g-a0"),
        (1, "1", "g-a1"),
        (2, "2", "g-a2"),
        (2, "2", "g-a3"),
        (3, "3", "g-a4"),
        (3, "3", "g-lost"),
        (3, "3", "g-b0"),
        (3, "3", "g-b1"),
        (4, "4", "g-b1"),
    ]
    steps = told(capture.control_events, "t", "step", "policy_version", where=lambda r: r["event"] == "step_trained")
    assert steps == [(T + 40, 1, "1"), (T + 61, 2, "2"), (T + 81, 3, "3"), (T + 650, 3, "3"), (T + 671, 4, "4")]
    started = told(capture.control_events, "t", "run", where=lambda row: row["event"] == "process_started")
    assert started == [(T, "a1" * 16), (T + 600, "b2" * 16)]


def test_groups_open_no_account_and_no_count_of_attempts_is_claimed() -> None:
    capture = sample("nemo_rl.jsonl")
    assert not capture.derive(ledger).attempts
    assert capture.derive(ledger).counts("attempt") is None
    assert capture.sources[0].covers == ("accepted", "policy", "tokens", "steps")
    assert run_check(capture, "attempts_reconcile").status == "inconclusive"


def test_an_unknown_event_is_kept_under_its_own_name_and_counted() -> None:
    capture = sample("nemo_rl.jsonl")
    assert told(capture.control_events, "event", "line", where=lambda row: ":" in row["event"]) == [
        ("nemo_rl:some_future_event", 10)
    ]
    note = next(finding for finding in capture.findings if finding.severity == "note")
    assert (note.ids, note.count) == (("some_future_event",), 1)
    assert "1 line is of events that nothing explains" in note.message
    assert capture.sources[0].rows == 15


def test_a_name_that_is_ours_by_chance_means_nothing_until_it_is_explained() -> None:
    events = {row[0] for row in told(sample("nemo_rl_guessed_names.jsonl").control_events, "event")}
    assert "checkpoint_restored" not in events
    assert "nemo_rl:checkpoint_restored" in events


def test_a_group_that_was_trained_and_never_published_is_reported() -> None:
    (warning,) = [finding for finding in sample("nemo_rl.jsonl").findings if finding.severity == "warning"]
    assert (warning.ids, warning.line) == (("g-lost",), 9)
    assert "1 group was trained on but never published" in warning.message


def test_half_a_line_is_reported_and_the_process_that_wrote_on_after_it_is_read() -> None:
    capture = sample("nemo_rl_guessed_names.jsonl")
    (torn,) = [finding for finding in capture.findings if finding.line == 17]
    assert torn.severity == "warning"
    assert "cut off" in torn.message
    assert "its last event is lost" in torn.message
    started = told(capture.control_events, "t", "line", where=lambda row: row["event"] == "process_started")
    assert started == [(T, 1), (T + 600, 17)]
    assert capture.sources[0].rows == 19


def test_half_a_line_that_no_restart_explains_is_broken_evidence(tmp_path: Path) -> None:
    whole = json.dumps(line("step_trained", 9, step=1, trained_version=1, group_ids=["g"]))
    torn = whole[:40] + json.dumps(line("group_published", 8, group_id="g", tokens_by_version={"0": 5}))
    path = tmp_path / "rollout_trace.jsonl"
    path.write_text("\n".join([json.dumps(line("trace_opened", pid=1)), torn, whole]), encoding="utf-8")
    capture = open_capture(path)
    assert run_check(capture, "rows_fit_schema").status == "error"
    assert [row[0] for row in told(capture.attempt_events, "event")] == ["published", "accepted"]


def test_a_last_line_that_is_cut_off_is_broken_evidence(tmp_path: Path) -> None:
    content = (FOLDER / "nemo_rl.jsonl").read_bytes()
    (tmp_path / "rollout_trace.jsonl").write_bytes(content[:-20])
    result = run_check(open_capture(tmp_path / "rollout_trace.jsonl"), "rows_fit_schema")
    assert (result.status, result.observed, result.of) == ("error", 14, 15)
    assert "rollout_trace.jsonl:15: is cut off" in result.message()


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("group_published", {"group_id": "g"}),
        ("group_published", {"group_id": "g", "tokens_by_version": {"0": -1}}),
        ("step_trained", {"step": "one", "trained_version": 1, "group_ids": []}),
        ("step_trained", {"step": 1, "trained_version": 1}),
    ],
)
def test_a_known_event_without_what_it_must_say_is_refused(tmp_path: Path, event: str, fields: dict[str, Any]) -> None:
    capture = written(tmp_path / "rollout_trace.jsonl", line("trace_opened", pid=1), line(event, 1, **fields))
    (finding,) = capture.findings
    assert (finding.severity, finding.line) == ("error", 2)
    assert "is no record of nemo_rl" in finding.message


def test_fields_of_an_unknown_event_may_be_of_any_type(tmp_path: Path) -> None:
    odd = line("some_event", 1, group_id=["not", "an id"], step="tensor(3)", tokens_by_version=None)
    capture = written(tmp_path / "rollout_trace.jsonl", line("trace_opened", pid=1), odd)
    assert {finding.severity for finding in capture.findings} == {"note"}


def test_explained_names_become_attempts_with_nemo_gyms_ids() -> None:
    capture = guessed()
    attempts = told(
        capture.attempt_events,
        "event",
        "attempt_id",
        "sample_id",
        "retry_of",
        "reason",
        where=lambda row: row["level"] == "attempt",
    )
    assert attempts == [
        ("dispatched", "g-a0_g0", "g-a0_g0", None, None),
        ("dispatched", "g-a0_g1", "g-a0_g1", None, None),
        ("completed", "g-a0_g0", "g-a0_g0", None, None),
        ("canceled", "g-a0_g1", "g-a0_g1", None, "restored"),
        ("retried", "g-a0_g1-a1", "g-a0_g1", "g-a0_g1", None),
        ("dispatched", "g-a0_g1-a1", "g-a0_g1", None, None),
        ("completed", "g-a0_g1-a1", "g-a0_g1", None, None),
        ("accepted", "g-a0_g0", "g-a0_g0", None, None),
        ("accepted", "g-a0_g1-a1", "g-a0_g1", None, None),
    ]
    assert capture.derive(ledger).findings == ()


def test_what_is_explained_is_covered_and_the_rest_stays_unknown() -> None:
    capture = guessed()
    assert capture.derive(ledger).counts("attempt") == Counts(
        dispatched=3, completed=2, canceled=1, failed=None, open=None, retried=1, accepted=2, rejected=0, pending=0
    )
    assert "failed" not in capture.sources[0].covers
    reconcile = run_check(capture, "attempts_reconcile")
    assert reconcile.status == "inconclusive"
    assert "failed" in (reconcile.why or "")


def test_explained_control_events_carry_step_and_version() -> None:
    control = told(guessed().control_events, "event", "step", "policy_version", where=lambda r: ":" not in r["event"])
    assert control == [
        ("process_started", None, None),
        ("step_trained", 1, "1"),
        ("version", None, "2"),
        ("checkpoint_published", 1, None),
        ("process_started", None, None),
        ("checkpoint_restored", 1, None),
    ]


def test_a_group_that_is_rejected_takes_its_completed_attempts_along(tmp_path: Path) -> None:
    lines = [
        line("trace_opened", pid=1),
        line("attempt_dispatched", 1, group_id="g", generation_index=0),
        line("attempt_sealed", 2, group_id="g", generation_index=0),
        line("group_discarded", 3, group_id="g", reason="a sentence that nobody should keep"),
    ]
    written(tmp_path / "rollout_trace.jsonl", *lines)
    capture = open_capture(tmp_path / "rollout_trace.jsonl", settings={"nemo_rl": {"events": GUESSES}})
    (account,) = capture.derive(ledger).attempts
    assert (account.outcome, account.acceptance, account.get("reason")) == ("completed", "rejected", None)


def test_an_explanation_that_is_no_event_of_ours_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'completed'"):
        sample("nemo_rl.jsonl", nemo_rl={"events": {"attempt_sealed": "complete"}})


def test_rows_of_a_run_without_session_headers_cannot_be_joined_and_the_check_says_what_to_send(
    tmp_path: Path,
) -> None:
    row = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": 1_790_000_009_000,
        "request": {"request_id": "r", "output_tokens": 3, "request_received_ms": 1_790_000_001_000},
    }
    (tmp_path / "request-trace.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    content = (FOLDER / "nemo_rl_guessed_names.jsonl").read_bytes()
    (tmp_path / "rollout_trace.jsonl").write_bytes(content)
    capture = open_capture(tmp_path, settings={"nemo_rl": {"events": GUESSES}})
    result = run_check(capture, "requests_are_joined")
    assert result.status == "inconclusive"
    assert "X-Dynamo-Session-ID" in (result.why or "")


POLICY = "[readers.nemo_rl.events]\n" + "".join(f'{name} = "{meaning}"\n' for name, meaning in GUESSES.items())


def test_the_policy_explains_names_to_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rollout_trace.jsonl").write_bytes((FOLDER / "nemo_rl_guessed_names.jsonl").read_bytes())
    (tmp_path / "rlserve.toml").write_text(POLICY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    asked = ["check", "rollout_trace.jsonl", "--only", "attempts_reconcile"]
    assert cli.main(asked) == 0
    assert "nemo_rl cannot tell which attempts were failed" in capsys.readouterr().out
    (tmp_path / "rlserve.toml").unlink()
    assert cli.main(asked) == 0
    assert "the sources tell of whole groups only" in capsys.readouterr().out


def test_names_that_the_policy_does_not_map_stay_counted_and_kept() -> None:
    kept = [row["event"] for row in guessed().control_events.to_pylist() if row["event"].startswith("nemo_rl:")]
    content = (FOLDER / "nemo_rl_guessed_names.jsonl").read_text(encoding="utf-8")
    known = {*GUESSES, "trace_opened", "group_published", "step_trained"}
    unmapped = [name for name in re.findall('"event": "(\\w+)"', content) if name not in known]
    assert sorted(kept) == sorted(f"nemo_rl:{name}" for name in unmapped)
    (note,) = [finding for finding in guessed().findings if "nothing explains" in finding.message]
    assert note.count == len(unmapped)
    assert "[readers.nemo_rl.events]" in note.message


def test_a_name_that_is_explained_and_never_comes_counts_as_none_and_is_said() -> None:
    capture = sample("nemo_rl_guessed_names.jsonl", nemo_rl={"events": GUESSES | {"attempt_failed": "failed"}})
    counts = capture.derive(ledger).counts("attempt")
    assert counts is not None
    assert (counts.failed, counts.open) == (0, 0)
    (note,) = [finding for finding in capture.findings if "counts as 0" in finding.message]
    assert (note.severity, note.ids) == ("note", ("attempt_failed",))
