"""Reuse of blocks that an earlier policy version computed is found, row by row, and nobody is accused wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import kv_oracle
import pyarrow as pa
import pytest
from fleets import BLOCK, moved, parts, served, started, update, without
from hand_made import Record, control, opened
from oracle import CAPTURES

from pytest_rlserve.asserts import assert_kv_reuse
from pytest_rlserve.checks import CheckResult, run_check
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture
from pytest_rlserve.reuse import excess

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

SHARED = Path(__file__).parents[3] / "shared" / "captures"
RECORDED = [
    path
    for root in (CAPTURES, SHARED)
    if root.is_dir()
    for path in sorted(root.iterdir())
    if path.is_dir() and list(path.glob("control.jsonl*"))
]
TORN = "killed_1"
"""A third of its rows is lost with a segment that was cut: `shards_are_whole` refuses it before anything is judged."""
HEALTHY = [path for path in RECORDED if path.name != TORN]
OLD, NEW = served("old", 1, 1, [1, 2, 3, 4]), 12.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def judged(folder: Path, events: list[Record], *requests: Any) -> CheckResult:
    return run_check(opened(folder, **parts(*requests, control=events)), "no_stale_kv")


def said(result: CheckResult) -> str:
    return " | ".join(finding.message for finding in result.problems)


def test_reuse_after_a_good_update_of_what_came_after_it_passes(folder: Path) -> None:
    rows = OLD, served("new1", NEW, 1, [1, 2, 3, 4]), served("new2", NEW + 1, 1, [1, 2, 3, 4], cached=4)
    result = judged(folder, [*started(1), *update(1)], *rows)
    assert (result.status, result.observed, result.of) == ("pass", 3, 3)


@pytest.mark.parametrize(("silent", "status"), [(1, "pass"), (2, "inconclusive")])
def test_a_few_responses_that_say_what_was_cached_do_not_speak_for_the_others(
    folder: Path, silent: int, status: str
) -> None:
    rows = [served(f"told{n}", 1 + n / 10, 1, [n]) for n in range(30)]
    rows += [served(f"silent{n}", 1 + n / 10, 1, [n], cached=None) for n in range(silent)]
    result = judged(folder, [*started(1), *update(1)], *rows)
    assert (result.status, result.observed, result.of) == (status, 30, 30)
    if status == "inconclusive":
        assert "known of 30 of 32 completed requests" in str(result.why)


@pytest.mark.parametrize(("strangers", "status"), [(2, "inconclusive"), (1, "pass")])
def test_workers_of_which_no_record_tells_are_not_acquitted(folder: Path, strangers: int, status: str) -> None:
    """A writer that rounds 64-bit ids names workers that nobody knows, and the resets of none that served."""
    rows = [served(f"known{n}", 1 + n / 10, 1, [n]) for n in range(30)]
    rows += [served(f"strange{n}", 1 + n / 10, 7, [n]) for n in range(strangers)]
    result = judged(folder, [*started(1), *update(1)], *rows)
    assert (result.status, result.observed, result.of) == (status, 30, 30 + strangers)
    if strangers == 2:
        assert "that served 2 of 32 requests" in str(result.why)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (without(update(1), "cache_reset", 1), "no cache_reset between the change and the first reuse"),
        (
            moved(update(1), "cache_reset", 1, -0.3),
            "came before the transfer had ended, and blocks were added after it",
        ),
    ],
)
def test_blocks_that_no_valid_reset_cleared_are_stale(folder: Path, events: list[Record], words: str) -> None:
    result = judged(folder, [*started(1), *events], OLD, served("new", NEW, 1, [1, 2, 3, 9], cached=3))
    (finding,) = result.problems
    assert (result.status, finding.ids, finding.line) == ("fail", ("new",), 2)
    assert f"worker 1 reused {3 * BLOCK} tokens in 1 request" in finding.message
    assert "computed before it loaded version 1" in finding.message
    assert words in finding.message


def test_canceled_rows_fill_a_cache_too(folder: Path) -> None:
    row, events = served("canceled", NEW, 1, [1, 2, 3, 4])
    canceled = row, [events[0], events[1] | {"event": "canceled"}]
    rows = OLD, canceled, served("new", NEW + 1, 1, [1, 2, 3, 4], cached=4)
    assert judged(folder, [*started(1), *update(1)], *rows).status == "pass"


def test_another_workers_blocks_explain_nothing(folder: Path) -> None:
    rows = [served("other", NEW, 2, [1, 2]), served("new", NEW + 1, 1, [1, 2], cached=2)]
    result = judged(folder, [*started(1, 2), *update(1, 2)], *rows)
    assert result.status == "fail"
    assert f"unexplained reuse: {2 * BLOCK} tokens in 1 request, 100.00 % of the {2 * BLOCK} reused" in said(result)


@pytest.mark.parametrize(("odd", "status"), [(1, "pass"), (2, "fail")])
def test_unexplained_reuse_fails_above_half_a_percent(folder: Path, odd: int, status: str) -> None:
    prompt = list(range(1, 101))
    good = [served(f"r{n}", NEW + n, 1, prompt, cached=100 if n else 0) for n in range(4)]
    stray = served("stray", NEW + 9, 1, [901, 902], cached=odd)
    result = judged(folder, [*started(1), *update(1)], *good, stray)
    assert result.status == status
    assert [finding.ids for finding in result.findings] == [("stray",)]


def test_part_of_a_block_more_is_how_some_engines_count(folder: Path) -> None:
    row, events = served("new", NEW, 1, [1, 2, 3, 4], cached=0)
    events[-1]["cached_tokens"] = BLOCK - 1
    assert judged(folder, [*started(1), *update(1)], (row, events)).status == "pass"


@pytest.mark.parametrize(("more", "status"), [(BLOCK - 1, "pass"), (BLOCK, "fail")])
def test_stale_reuse_is_of_whole_blocks_too(folder: Path, more: int, status: str) -> None:
    row, answers = served("new", NEW + 1, 1, [1, 2, 3, 4], cached=0)
    answers[-1]["cached_tokens"] = BLOCK + more
    rows = OLD, served("first", NEW, 1, [1, 9]), (row, answers)
    assert judged(folder, [*started(1), *without(update(1), "cache_reset", 1)], *rows).status == status


def test_the_output_of_an_earlier_turn_explains_reuse(folder: Path) -> None:
    first = served("t1", NEW, 1, [1], session="s", output_tokens=2 * BLOCK + 1)
    second = served("t2", NEW + 1, 1, [1, 2, 3, 4], cached=3, session="s")
    assert judged(folder, [*started(1), *update(1)], first, second).status == "pass"
    far = served("t2", NEW + 1, 1, [1, 2, 3, 4], cached=4, session="s")
    assert "unexplained reuse" in said(judged(folder.with_name("d"), [*started(1), *update(1)], first, far))


def test_what_was_cached_before_the_capture_began_is_no_accusation(folder: Path) -> None:
    warm = served("r", 1, 1, [1, 2, 3], cached=3)
    assert judged(folder, [*update(1), *started(1, version=1, t=99)], warm).status == "pass"
    assert judged(folder.with_name("d"), [*started(1), *update(1)], warm).status == "fail"


def test_a_worker_that_stays_on_its_version_is_behind_and_not_stale(folder: Path) -> None:
    rows = [served("old", 1, 2, [1, 2]), served("new", NEW, 2, [1, 2], cached=2)]
    assert judged(folder, [*started(1, 2), *update(1)], *rows).status == "pass"


def test_a_request_that_runs_through_an_update_may_have_met_either_cache(folder: Path) -> None:
    long = served("long", 9.9, 1, [1, 2], cached=2, took=4.0)
    rows = OLD, long, served("new", NEW + 2, 1, [1, 2], cached=2)
    assert judged(folder, [*started(1), *update(1)], *rows).status == "pass"


@pytest.mark.parametrize(
    ("events", "requests", "words"),
    [
        ([], [OLD], "records of which version a worker loaded"),
        ([control("step_started", 0, step=0)], [OLD], "records of which version a worker loaded"),
        ([*started(1), *update(1)], [], "no served requests"),
        ([*started(1), *update(1)], [served("r", 1, 1, [1], cached=None)], "TensorRT-LLM reports it only where"),
        (
            [*started(1), *update(1)],
            [served("r", 1, 1, [1], cached=None, cached_tokens=16, kv_hit_rate=1.0)],
            "predictions",
        ),
    ],
)
def test_what_cannot_be_told_is_inconclusive(
    folder: Path, events: list[Record], requests: list[Any], words: str
) -> None:
    result = judged(folder, events or [control("step_finished", 0, step=0)], *requests)
    assert result.status == "inconclusive"
    assert words in str(result.why)


def test_rows_that_name_no_worker_show_nothing(folder: Path) -> None:
    row, events = served("r", 1, 1, [1], cached=1)
    del row["request"]["worker"]
    result = judged(folder, [*started(1), *update(1)], (row, events))
    assert (result.status, "nothing shows what was reused" in str(result.why)) == ("inconclusive", True)


def predicted(name: str, t: float, prompt: list[int], cached: int) -> Any:
    return served(name, t, 1, prompt, cached=None, cached_tokens=cached * BLOCK, kv_hit_rate=cached / len(prompt))


@pytest.mark.parametrize(("resets_told", "status"), [(True, "fail"), (False, "inconclusive")])
def test_a_prediction_accuses_only_where_the_records_tell_of_resets(
    folder: Path, resets_told: bool, status: str
) -> None:
    events = [*started(1, 2), *without(update(1, 2), "cache_reset", 1)]
    events = events if resets_told else without(events, "cache_reset", 2)
    rows = predicted("old", 1, [1, 2], 0), predicted("new", NEW, [1, 2], 2)
    assert judged(folder, events, *rows).status == status


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_no_recorded_run_is_accused_and_nearly_all_of_its_reuse_is_explained(path: Path) -> None:
    capture = open_capture(path)
    result = run_check(capture, "no_stale_kv")
    assert result.status == "pass", result.message()
    counted = kv_oracle.count(*kv_oracle.prompts_of(path))
    stale, unexplained = (sum(one.found.get(name, 0) for one in counted) for name in ("stale", "unexplained"))
    found = capture.derive(excess)
    assert (int(found.stale.sum()), int(found.unexplained.sum())) == (stale, unexplained)
    assert stale == 0
    assert unexplained < 0.005 * sum(one.cached or 0 for one in counted)


def test_reuse_whose_rows_were_lost_is_said_to_be_no_fault_of_the_engine() -> None:
    capture = open_capture(CAPTURES / TORN)
    (finding,) = run_check(capture, "no_stale_kv").problems
    assert (
        "unexplained reuse: 2,752 tokens in 2 requests, 0.55 % of the 500,224 reused (0.5 % may be)" in finding.message
    )
    assert "no fault of the engine, since rows are missing from request-trace.000001.jsonl.gz" in finding.message
    assert "178 completed requests lost their rows" in finding.message
    assert "6 requests with several choices never had a row" in finding.message
    assert run_check(capture, "shards_are_whole").status == "error"


@pytest.mark.parametrize("lost", [True, False])
def test_lost_rows_are_named_beside_unexplained_reuse_and_only_then(folder: Path, lost: bool) -> None:
    _, events = served("gone", NEW, 1, [1, 2], cached=0)
    made = parts(served("new", NEW + 1, 1, [1, 2], cached=2), control=[*started(1), *update(1)])
    made["attempts"] += events if lost else []
    said = run_check(opened(folder, **made), "no_stale_kv").problems[0].message
    assert ("it may be no fault of the engine, since 1 completed request lost a row" in said) is lost


# -- planted in a recorded run ------------------------------------------------------------------------------------


def planted(capture: Capture) -> tuple[Capture, str]:
    """Keep one worker of step 1 alive: its update comes in the middle of the step, and its reset is left out."""
    rows = [row for row in capture.control_events.to_pylist() if row["source"]]
    worker = next(row["worker_id"] for row in rows if row["event"] == "version" and row["policy_version"] == "1")
    served = [
        t
        for t, own in zip(
            capture.requests["received_at"].to_pylist(), capture.requests["decode_worker_id"].to_pylist(), strict=True
        )
        if str(own) == worker
    ]
    middle = sorted(served)[len(served) // 2]
    restarted = {row["worker_id"] for row in rows if row["replaced_worker_id"] == worker}
    kept = []
    for row in rows:
        if row["worker_id"] in restarted and row["event"] == "cache_reset":
            continue  # the reset removed
        if row["worker_id"] in restarted and row["event"] in ("version", "ready", "resume"):
            row |= {"worker_id": worker, "t": middle}  # the version moved
        elif row["worker_id"] == worker and row["event"].startswith("transfer"):
            row |= {"t": middle - 0.001}
        kept.append(row)
    table = pa.Table.from_pylist(kept, schema=capture.control_events.schema)
    return capture.replace(control_events=table), worker


def as_lines(capture: Capture) -> list[Record]:
    rows = capture.control_events.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_planted_stale_reuse_is_found_row_by_row() -> None:
    capture, worker = planted(open_capture(CAPTURES / "baseline_kv_1"))
    prompts, _ = kv_oracle.prompts_of(CAPTURES / "baseline_kv_1")
    counted = kv_oracle.count(prompts, as_lines(capture))
    expected = {prompt.name: prompt.found["stale"] for prompt in counted if prompt.found.get("stale")}
    found = capture.derive(excess)
    names = capture.requests["request_id"].to_pylist()
    assert {names[row]: int(found.stale[row]) for row in found.stale.nonzero()[0]} == expected
    assert len(expected) > 5
    result = run_check(capture, "no_stale_kv")
    (finding,) = result.problems
    assert result.status == "fail"
    assert set(finding.ids) == set(expected)
    assert f"worker {worker} reused {sum(expected.values()):,} tokens in {len(expected):,} requests" in finding.message


def test_the_reuse_of_a_recorded_run_leaves_stale_rows_out_and_shows_both_numbers() -> None:
    usual = open_capture(CAPTURES / "baseline_kv_1")
    capture, _ = planted(usual)
    honest, raw = measure(capture, "kv_reuse_fraction"), measure(usual, "kv_reuse_fraction")
    assert honest.n < raw.n
    assert raw.value is not None
    assert f"(with them, reuse is {raw.value * 100:.1f} %)" in honest.excluded


def test_a_floor_met_only_with_stale_reuse_fails_and_shows_both_numbers(folder: Path) -> None:
    rows = OLD, served("cold", NEW, 1, [7, 8, 9, 10]), served("new", NEW + 1, 1, [1, 2, 3, 4], cached=4)
    events = [*started(1), *without(update(1), "cache_reset", 1)]
    capture = opened(folder, **parts(*rows, control=events))
    with pytest.raises(AssertionError) as failed:
        assert_kv_reuse(capture, floor="30%")
    assert "missed its limit: 0.0 %, must be >= 30.0 %" in str(failed.value)
    assert f"reused {4 * BLOCK} tokens of an earlier policy version (with them, reuse is 33.3 %)" in str(failed.value)
