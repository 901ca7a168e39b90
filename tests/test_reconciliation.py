"""Every attempt, request and row in its place: for the whole, and for each step, group and run."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, opened, request, request_end, write

from pytest_rlserve import assert_reconciled, cli
from pytest_rlserve.checks import run_check
from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate.report import counts
from pytest_rlserve.joins.reconciliation import PARTS, Part, Reconciled, reconcile
from pytest_rlserve.joins.residuals import OUTSIDE, RESIDUALS, STRAYS
from pytest_rlserve.readers import open_capture
from pytest_rlserve.reports.remarks import leftovers

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

HERE = Path(__file__).parent
OWN, SHARED = HERE / "data" / "captures", HERE.parents[1] / "shared" / "captures"
FIGURES = json.loads((OWN / "expected.json").read_text(encoding="utf-8"))
PAGE = HERE.parent / "docs" / "reconciliation.md"
ENDS = ("completed", "canceled", "failed", "open")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def of(capture: Capture, level: str, by: Part | None = None) -> dict[str | None, Reconciled]:
    return {one.part: one for one in reconcile(capture, by) if one.level == level}


def counted(reasons: Any) -> dict[str, int]:
    return {name: len(ids) for name, ids in reasons.items()}


def sent(name: str, of: str = "a", **fields: Any) -> list[Record]:
    return [request("dispatched", name, 0, of=of, **fields), request("completed", name, 1, of=of, **fields)]


# -- recorded captures, against the figures of the plain count ----------------------------------------------------


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_recorded_capture_reconciles_as_it_was_counted_by_hand(name: str) -> None:
    expected, capture = FIGURES[name], open_capture(OWN / name)
    for level in ("attempt", "request"):
        figures, found = expected[f"{level}s"], of(capture, level)[None]
        assert {n: getattr(found.counts, n) for n in ENDS} == {n: figures[n] for n in ENDS}
        assert found.unexplained == ()
        assert all(left == right for _, left, right in found.sums())
    names, missing = counted(found.residuals), expected["without_row"]
    statuses = missing["failed_by_other_status"]
    assert (found.rows, found.served) == (expected["rows"], expected["rows"] - expected["rows_repeated"])
    assert names.get("lost row", 0) == missing["completed_lost"]["count"]
    assert names.get("early cancel", 0) + names.get("late cancel", 0) == missing["canceled"]["count"]
    assert names.get("404", 0) == missing["failed_404"]
    failed_several = names["n>1"] - missing["completed_n"]["count"]
    other = sum(names.get(why, 0) for why in ("refused", "unreachable", "broken stream"))
    assert other + failed_several == sum(statuses.values())
    assert names.get("unreachable", 0) == statuses.get("None", 0)
    assert found.strays == {}
    outside = expected["requests_of_no_attempt"]
    assert counted(found.outside) == {"priming or probe": outside["prefix_prime"], "of no attempt": outside["unnamed"]}


@pytest.mark.parametrize("by", PARTS)
@pytest.mark.parametrize("name", sorted(FIGURES))
def test_the_parts_of_a_recorded_capture_add_up_to_the_whole(name: str, by: Part) -> None:
    capture = open_capture(OWN / name)
    for level in ("attempt", "request"):
        whole, parts = of(capture, level)[None], of(capture, level, by).values()
        for count in ("dispatched", *ENDS, "retried"):
            assert sum(getattr(one.counts, count) for one in parts) == getattr(whole.counts, count)
        assert all(left == right for one in parts for _, left, right in one.sums())
        residuals = Counter[str]()
        for one in parts:
            residuals.update(counted(one.residuals))
        assert residuals == counted(whole.residuals)


def test_steps_of_a_recorded_capture_are_counted_as_its_lines_say() -> None:
    packed = (OWN / "killed_1" / "attempts.jsonl.gz").read_bytes()
    lines = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    first = {(x["attempt_id"], x.get("x_request_id")): x["step"] for x in reversed(lines) if x["event"] == "dispatched"}
    wanted: dict[tuple[str, str], Counter[str]] = {}
    for line in lines:
        level = line.get("level", "attempt")
        step = str(first[line["attempt_id"], line.get("x_request_id")])
        wanted.setdefault((level, step), Counter())[line["event"]] += 1
    capture = open_capture(OWN / "killed_1")
    for (level, step), events in wanted.items():
        found = of(capture, level, "step")[step].counts
        names = ["dispatched", *ENDS[:-1], "retried"]
        assert {name: getattr(found, name) for name in names} == {name: events[name] for name in names}


# -- each residual by its name ------------------------------------------------------------------------------------


def test_every_stray_row_has_its_name_and_its_id(folder: Path) -> None:
    events = [*sent("x", response_id="own"), *sent("y")]
    events += [attempt("dispatched", "a", 0, session_id="s"), attempt("completed", "a", 9)]
    hashes = {"replay": {"trace_block_size": 1, "input_length": 1, "input_sequence_hashes": [7]}}
    rows = [
        request_end("own", x_request_id="x"),
        request_end("own", x_request_id="x"),
        request_end("own", x_request_id="x", output_tokens=99),
        request_end("first", 0, 1, x_request_id="y", **hashes),
        request_end("again", 2, 3, x_request_id="y", **hashes),
        request_end("more", 4, 5, x_request_id=None, session="s"),
        request_end("theirs", x_request_id="z"),
        request_end("bare", x_request_id=None),
    ]
    found = of(opened(folder, attempts=events, rows=rows), "request")[None]
    assert found.strays == {
        "duplicate": ("own",),
        "conflicting duplicate": ("own",),
        "served again": ("again",),
        "unrecorded request": ("more",),
        "foreign row": ("theirs",),
        "no session header": ("bare",),
    }
    assert (found.rows, found.served) == (8, 2)
    assert all(left == right for _, left, right in found.sums())


def test_of_several_rows_of_one_request_the_first_to_come_is_its_own(folder: Path) -> None:
    rows = [request_end(name, t, t + 1, x_request_id="x", input_length=t) for name, t in (("late", 6), ("soon", 2))]
    events = [*completed("a", 0, 9), *sent("x")]
    found = of(opened(folder, attempts=events, rows=rows), "request")[None]
    assert found.strays == {"unrecorded request": ("late",)}


def test_requests_of_no_attempt_are_told_by_their_purpose(folder: Path) -> None:
    events = [*completed("a", 0, 5), *sent("x"), *sent("p", of="prime", purpose="prefix_prime"), *sent("q", of="b")]
    capture = opened(folder, attempts=events)
    assert of(capture, "request")[None].outside == {"priming or probe": ("p",), "of no attempt": ("q",)}
    (note,) = run_check(capture, "attempts_reconcile").findings
    assert (note.severity, note.ids) == ("note", ("q",))
    assert "1 request of no attempt" in note.message


def test_contradictions_and_orphans_are_what_stays_unexplained(folder: Path) -> None:
    twice = [*completed("a", 0, 5), attempt("failed", "a", 6)]
    capture = opened(folder, attempts=[*twice, attempt("completed", "never", 7)])
    assert of(capture, "attempt")[None].unexplained == ("a", "never")
    assert run_check(capture, "attempts_reconcile").status == "fail"


def test_the_report_names_what_is_left_over_of_requests_and_of_rows(folder: Path) -> None:
    events = [*completed("a", 0, 5), *sent("x"), *sent("y"), *sent("p", of="prime", purpose="prefix_prime")]
    rows = [request_end(name) for name in ("x", "p", "theirs", "others")]
    found = counts(opened(folder, attempts=events, rows=rows))
    assert found["residuals"] == {
        "lost row": {"count": 1, "ids": ["y"]},
        "row: foreign row": {"count": 2, "ids": ["others", "theirs"]},
        "priming or probe": {"count": 1, "ids": ["p"]},
    }
    shown = ["".join(cell) for cell in leftovers({"captures": [{"name": "c", "counts": found}]})]
    assert shown == ["requests without a row: lost row (1)", "rows of no request of their own: foreign row (2)"]


# -- parts --------------------------------------------------------------------------------------------------------


def lagging() -> list[Record]:
    """Two attempts of step 0, one of which step 1 trains on, and one attempt of step 1."""
    lives = [completed(name, 0, 5) for name in ("a", "b", "c")]
    for life, dispatched, trained in zip(lives, (0, 0, 1), (0, 1, 1), strict=True):
        life[0] |= {"step": dispatched, "group_id": "g", "run": "r"}
        life[2] |= {"step": trained}
    return [event for life in lives for event in life]


def test_an_attempt_counts_in_the_step_it_was_sent_for_and_as_trained_in_the_one_that_used_it(folder: Path) -> None:
    capture = opened(folder, attempts=[*lagging(), *sent("x", of="b")])
    steps = of(capture, "attempt", "step")
    assert {name: (one.counts.dispatched, one.counts.accepted, one.trained) for name, one in steps.items()} == {
        "0": (2, 2, 1),
        "1": (1, 1, 2),
    }
    requests = of(capture, "request", "step")
    assert {name: one.counts.dispatched for name, one in requests.items()} == {"0": 1}


def test_parts_come_by_number_and_what_names_none_comes_last(folder: Path) -> None:
    groups: list[Record] = [{}, {"group_id": "10"}, {"group_id": "9"}, {"group_id": "x"}]
    events = [attempt("dispatched", f"a{n}", n, **group) for n, group in enumerate(groups)]
    assert list(of(opened(folder, attempts=events), "attempt", "group")) == ["9", "10", "x", None]


def test_what_holds_for_the_whole_must_hold_in_each_part(folder: Path) -> None:
    capture = opened(folder, attempts=[*lagging(), attempt("dispatched", "late", 6, step=1)])
    assert_reconciled(capture, open_attempts=0.25)
    assert_reconciled(capture, open_attempts=0.5, by="step")
    with pytest.raises(AssertionError, match=r"in step 1 of c: 1 of 2 dispatched attempts never ended \(0.5 may be"):
        assert_reconciled(capture, open_attempts=0.25, by="step")


def test_parts_that_no_attempt_names_are_no_pass(folder: Path) -> None:
    capture = opened(folder, attempts=completed("a", 0, 5))
    assert_reconciled(capture)
    with pytest.raises(AssertionError, match="no attempt names its step"):
        assert_reconciled(capture, by="step")


def test_an_unknown_part_is_refused_with_the_nearest_right_one(folder: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'group'"):
        assert_reconciled(opened(folder, attempts=lagging()), by="groups")  # type: ignore[arg-type]


def test_a_contradiction_fails_whatever_the_part(folder: Path) -> None:
    capture = opened(folder, attempts=[*lagging(), attempt("failed", "a", 9)])
    with pytest.raises(AssertionError, match="both completed and failed"):
        assert_reconciled(capture, by="step")


# -- the command and the page -------------------------------------------------------------------------------------


def test_the_command_says_what_it_looked_at_and_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, attempts=lagging())
    assert cli.main(["reconcile", str(folder), "--by", "step"]) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines() if line.startswith("c ")] == [
        ["c", "0", "2", "2", "0", "0", "0", "2", "0", "0", "0", "1", "0"],
        ["c", "1", "1", "1", "0", "0", "0", "1", "0", "0", "0", "2", "0"],
    ]
    assert "attempts_reconcile holds" not in out
    assert "requests_are_joined cannot be told for c" in out


def test_the_command_fails_on_what_is_lost_and_names_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, attempts=[*sent("x"), *sent("y")], rows=[request_end("x")])
    assert cli.main(["reconcile", str(folder), "--ids"]) == 1
    out = capsys.readouterr().out
    assert "c: lost row (1): y" in out
    assert "requests_are_joined does not hold for c: 1 of 2 traceable requests" in out


def test_a_column_of_rows_is_told_from_the_one_of_requests(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        folder,
        attempts=[*completed("a", 0, 5), *sent("x")],
        rows=[request_end("x"), request_end("y", x_request_id=None)],
    )
    cli.main(["reconcile", str(folder), "--format", "markdown"])
    headers = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| requests")]
    assert "row: no session header" in headers[0]


def test_the_command_reconciles_in_markdown_without_letting_an_id_out_of_its_cell(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, attempts=[event | {"group_id": "a|b`c"} for event in completed("a", 0, 5)])
    cli.main(["reconcile", str(folder), "--by", "group", "--format", "markdown"])
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1


def shown() -> list[list[str]]:
    """The lines of captures in the page's table of all recorded captures, cell by cell."""
    block = PAGE.read_text(encoding="utf-8").split("rlserve reconcile captures/*/\n", 1)[1].split("```")[0]
    return [line.split() for line in block.splitlines() if "_" in line.partition(" ")[0]]


def recorded() -> list[str]:
    return sorted({words[0] for words in shown()})


def test_the_page_shows_every_recorded_capture() -> None:
    assert set(FIGURES) <= set(recorded())
    if SHARED.is_dir():
        kept = [path.name for path in SHARED.iterdir() if (path / "attempts.jsonl").exists()]
        assert recorded() == sorted(kept)


@pytest.mark.parametrize("name", recorded() if PAGE.exists() else [])
def test_the_page_shows_what_the_command_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = next((root / name for root in (OWN, SHARED) if (root / name).is_dir()), None)
    if place is None:
        pytest.skip(f"{name} is recorded elsewhere")
    cli.main(["reconcile", str(place)])
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(f"{name} ")]
    wanted = [words for words in shown() if words[0] == name]
    # A column that is 0 in all of the captures printed is left out, so one capture alone has fewer.
    assert [[word for word in words if word != "0"] for words in printed] == [
        [word for word in words if word != "0"] for words in wanted
    ]


@pytest.mark.parametrize("name", [*RESIDUALS, *STRAYS, *OUTSIDE])
def test_the_page_explains_every_residual(name: str) -> None:
    assert f"| {name} |" in PAGE.read_text(encoding="utf-8")
