"""Faults that others met in the wild, each a small input with its right answer in expected.json.

The answers are read from there, not typed again. `must_say` is tested for its facts, not its wording.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rlserve.checks import CheckResult, run_check, run_checks
from pytest_rlserve.cli import main
from pytest_rlserve.errors import UsageError
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import Counts, ledger
from pytest_rlserve.metrics import METRICS, Scope
from pytest_rlserve.metrics.measuring import all_keys, measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

CASES = Path(__file__).parent / "data" / "cases"
STATUS = {"pass": ("pass",), "fail": ("fail", "error"), "invalid_input": ("error",)}


class Case:
    """A case's folder and its answers."""

    def __init__(self, number: str) -> None:
        (self.folder,) = CASES.glob(f"{number}_*")
        self.document: dict[str, Any] = json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))

    def answer(self, check: str = "", on: str | None = None) -> dict[str, Any]:
        """Return what is expected of the check whose name begins so (the first there is, or on that file)."""
        found = [one for one in self.document["checks"] if one["check"].startswith(check)]
        return next(one for one in found if on is None or one["on"] == [on])

    def exact(self, check: str = "", on: str | None = None) -> dict[str, Any]:
        exact: dict[str, Any] = self.answer(check, on)["exact"]
        return exact

    def opened(self, file: str | None = None) -> Capture:
        """Open the inputs; expected.json is beside them only here, so a file is named where there is but one."""
        return open_capture(self.folder / file if file else self.folder)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The case whose number is in the test's name."""
    number = re.search(r"case_(\d\d)", request.node.name)
    assert number is not None
    return Case(number[1])


def expect(verdict: str, capture: Capture, name: str) -> CheckResult:
    result = run_check(capture, name)
    assert result.status in STATUS[verdict], result.message()
    return result


def foundations(capture: Capture) -> set[str]:
    return {run_check(capture, name).status for name in ("rows_fit_schema", "shards_are_whole", "requests_are_unique")}


def tokens(capture: Capture) -> int:
    return sum(capture.requests["output_tokens"].to_pylist())


def at_line(result: CheckResult, line: int) -> str:
    return " · ".join(finding.message for finding in result.findings if finding.line == line)


def gate(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Run `rlserve check` and return its exit status and all that it printed."""
    status = main(["check", str(path), *options])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out + err


def algebra(counts: Counts | None, expected: dict[str, Any]) -> None:
    assert counts is not None
    named = {name: value for name, value in expected.items() if name in Counts.__dataclass_fields__}
    assert {name: getattr(counts, name) for name in named} == named


def test_case_01_all_members_are_read_and_the_wrappers_clock_is_not_the_time(case: Case) -> None:
    expected = case.exact()
    parts = [case.opened(name) for name in case.answer()["on"]]
    rows = [row for part in parts for row in part.requests.to_pylist()]
    first, last = min(row["received_at"] for row in rows), max(row["ended_at"] for row in rows)
    assert {
        "lines": sum(source.rows for part in parts for source in part.sources),
        "request_end": len(rows),
        "request_payload": sum(part.payloads.num_rows for part in parts),
        "request_end_in_gz": parts[0].requests.num_rows,
        "output_tokens_total": sum(row["output_tokens"] for row in rows),
        "first_request_received_ms": round(first * 1000),
        "last_request_end_ms": round(last * 1000),
        "span_ms": round((last - first) * 1000),
    } == expected
    for part in parts:
        assert foundations(part) == {"pass"}


def test_case_02_a_cut_member_is_broken_evidence_and_names_its_shard(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    capture, expected = case.opened(), case.exact("load")
    result = expect(case.answer("load")["verdict"], capture, "shards_are_whole")
    complete, recovered = (
        expected["request_end_in_complete_members"],
        expected["whole_lines_recoverable_from_cut_member"],
    )
    assert capture.requests.num_rows == complete + recovered
    cut = "request-trace.000001.jsonl.gz"
    (finding,) = result.findings
    read_from_it = sum(source.rows for source in capture.sources if source.path == cut)
    assert (finding.path, "truncated" in finding.message) == (cut, True)
    assert f"{read_from_it} whole rows" in finding.message
    assert [source.path for source in capture.sources if not source.whole] == [cut]
    assert gate(case.folder, capsys)[0] == 1


def test_case_02_attempts_without_a_row_may_lie_in_the_cut_shard(case: Case) -> None:
    answer, capture = case.answer("reconcile"), case.opened()
    expected, joined = answer["exact"], capture.derive(join)
    algebra(capture.derive(ledger).counts("attempt"), expected)
    assert joined.traceable_served >= expected["matched_min"]
    assert sum(map(len, joined.without_row.values())) <= expected["unmatched_max"]
    result = expect(answer["verdict"], capture, "requests_are_joined")
    assert "may lie in the truncated request-trace.000001.jsonl.gz" in result.message()


def test_case_03_a_missing_segment_and_a_second_producer_are_named_and_not_mixed(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, capture = case.answer("shard inventory"), case.opened()
    expected = answer["exact"]
    text = expect(answer["verdict"], capture, "shards_are_whole").message()
    for index in expected["indices_missing"]:
        assert f"segment {index:06d} of '{expected['prefix']}' is missing" in text
    assert capture.requests.num_rows == expected["rows"]
    for prefix, rows in expected["other_prefixes"].items():
        assert f"a second prefix is present: '{prefix}'" in text
        assert case.opened(f"{prefix}.000000.jsonl.gz").requests.num_rows == rows
        assert any(path.startswith(prefix) for path, _ in capture.not_read)
    assert gate(case.folder, capsys)[0] == 1


def test_case_03_attempts_in_the_missing_segment_are_named_although_all_rows_would_be_as_many(case: Case) -> None:
    answer, capture = case.answer("reconcile"), case.opened()
    expected, joined = answer["exact"], capture.derive(join)
    result = expect(answer["verdict"], capture, "requests_are_joined")
    counts = capture.derive(ledger).counts("attempt")
    assert counts is not None
    assert (counts.dispatched, joined.joined) == (expected["dispatched"], expected["matched"])
    assert [name for finding in result.problems for name in finding.ids] == expected["unmatched_attempts"]
    strangers = case.opened("request-trace-canary.000000.jsonl.gz").requests.num_rows
    assert strangers == expected["rows_without_attempt_if_all_files_are_read"]


def test_case_04_only_line_feeds_end_lines(case: Case) -> None:
    expected, capture = case.exact(on="mixed_lines.jsonl"), case.opened("mixed_lines.jsonl")
    text = (case.folder / "mixed_lines.jsonl").read_bytes().decode()
    pieces = [piece for piece in text.splitlines() if piece.strip()]
    assert len(pieces) == expected["non_blank_pieces_if_str_splitlines_is_used"]
    assert (capture.requests.num_rows, tokens(capture)) == (expected["request_end"], expected["output_tokens_total"])
    assert foundations(capture) == {"pass"}


def test_case_04_a_byte_order_mark_costs_no_row(case: Case) -> None:
    capture = case.opened("bom.jsonl")
    assert capture.requests.num_rows == case.exact(on="bom.jsonl")["request_end_if_accepted"]
    assert foundations(capture) == {"pass"}


def test_case_05_hashes_are_exact_to_the_last_bit(case: Case) -> None:
    answer, capture = case.answer("reuse ceiling"), case.opened("trace.jsonl")
    expected, hashes = answer["exact"], capture.requests["input_sequence_hashes"].to_pylist()
    blocks = [one for prompt in hashes for one in prompt]
    seen: set[int] = set()
    again = 0
    for prompt in hashes:
        again += next((n for n, one in enumerate(prompt) if one not in seen), len(prompt))
        seen.update(prompt)
    assert (len(set(blocks)), len(blocks)) == (expected["distinct_hashes"], expected["blocks"])
    assert again == expected["blocks_seen_before_as_prefix"]
    assert Fraction(again, len(blocks)) == Fraction(expected["ceiling"]["fraction"])
    assert len({float(one) for one in blocks}) < len(set(blocks))
    assert max(blocks) >= 2**63
    assert foundations(capture) == {"pass"}


def test_case_05_a_hash_beyond_64_bits_is_refused(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    file = "out_of_range.jsonl"
    text = at_line(expect(case.answer(on=file)["verdict"], case.opened(file), "rows_fit_schema"), 1)
    assert "input_sequence_hashes" in text
    assert str(2**64 - 1) in text
    assert gate(case.folder / file, capsys)[0] == 1


def test_case_06_what_is_no_number_is_no_row(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    answer, capture = case.answer("schema"), case.opened("trace.jsonl")
    expected = answer["exact"]
    result = expect(answer["verdict"], capture, "rows_fit_schema")
    assert capture.requests.num_rows == expected["valid_rows"]
    assert [finding.line for finding in result.findings] == expected["bad_lines"]
    for line, field in expected["bad_fields"].items():
        assert field in at_line(result, int(line))
    assert gate(case.folder / "trace.jsonl", capsys)[0] == 1
    main(["measure", str(case.folder / "trace.jsonl")])
    assert not re.search(r"\b(nan|inf|infinity)\b", capsys.readouterr().out, re.IGNORECASE)


def test_case_07_a_field_given_twice_spoils_its_line(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    answer, capture = case.answer("load"), case.opened("trace.jsonl")
    expected = answer["exact"]
    result = expect(answer["verdict"], capture, "rows_fit_schema")
    assert [finding.line for finding in result.findings] == expected["bad_lines"]
    assert (capture.requests.num_rows, tokens(capture)) == (
        expected["valid_rows"],
        expected["output_tokens_of_valid_rows"],
    )
    assert re.search(r"output_tokens.*given twice", at_line(result, 2))
    assert gate(case.folder / "trace.jsonl", capsys)[0] == 1


def test_case_08_a_long_payload_is_read_past_and_leaves_no_word(
    case: Case, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer = case.answer("load")
    expected, path = answer["exact"], case.folder / "request-trace.000000.jsonl.gz"
    capture = open_capture(path)
    assert (capture.requests.num_rows, capture.payloads.num_rows, tokens(capture)) == (
        expected["request_end"],
        expected["request_payload"],
        expected["output_tokens_total"],
    )
    assert foundations(capture) == {"pass"}
    (marker,) = re.findall(r"SYNTHETIC-PRIVATE-MARKER-\d+", " ".join(answer["must_not"]))
    seen = [str(table.to_pydict()) for _, table in capture.tables()]
    seen += [repr(capture.findings), *(repr(result) for result in run_checks(capture))]
    seen += [repr(measure(capture, key)) for key in all_keys()]
    for command in ("check", "measure", "compare --format=json", "compare --format=markdown", "init --output=-"):
        name, *options = command.split()
        try:
            main([name, str(path), *options, *([f"--baseline={tmp_path}"] if name == "compare" else [])])
        except UsageError as error:
            seen.append(str(error))
        seen += capsys.readouterr()
    assert marker.encode() in _unzipped(path)
    assert not [text for text in seen if marker in text]


def _unzipped(path: Path) -> bytes:
    import gzip

    return gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(
    ("file", "facts"),
    [
        ("lfs_pointer.jsonl", "Git LFS pointer"),
        ("empty.jsonl", "no request_end rows"),
        ("empty_member.jsonl.gz", "no request_end rows"),
        ("zero_bytes.jsonl.gz", "no request_end rows"),
        ("payload_only.jsonl", "no request_end rows (2 request_payload rows seen)"),
    ],
)
def test_case_09_nothing_to_check_is_never_green(
    file: str, facts: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    case = Case("09")
    answer = case.answer(on=file)
    assert answer["verdict"] == "invalid_input"
    status, printed = gate(case.folder / file, capsys)
    assert status != 0
    assert facts in printed
    try:
        capture = case.opened(file)
    except UsageError:
        pass
    else:
        assert capture.requests.num_rows == answer["exact"]["request_end"]
        assert "error" in foundations(capture)
        scope = Scope(budgets={"ttft": 1.0})
        served = [key for key in all_keys() if "requests" in METRICS[key.partition(".")[0]].needs]
        assert {measure(capture, key, scope).value for key in served} == {None}
    baselines = tmp_path / "baselines"
    update = ["baseline", "update", str(case.folder / file), "--series=s", "--reason=r", f"--baseline={baselines}"]
    assert main(update) != 0
    assert not baselines.exists() or not list(baselines.iterdir())


def test_case_12_hash_counts_must_fit_the_length_and_each_bad_line_says_why(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, capture = case.answer("replay readiness"), case.opened("trace.jsonl")
    expected = answer["exact"]
    result = expect(answer["verdict"], capture, "replay_ready")
    named = {name for finding in result.findings for name in finding.ids}
    good = [name for name in capture.requests["request_id"].to_pylist() if name not in named]
    assert good == expected["valid"]
    assert result.observed == len(expected["valid"])
    for line, reason in expected["invalid_lines"].items():
        text = at_line(result, int(line))
        assert reason in text or all(word in text for word in reason.split())
    assert {finding.line for finding in result.findings} == set(map(int, expected["invalid_lines"]))
    assert gate(case.folder / "trace.jsonl", capsys, "--only=replay_ready")[0] == 1


def test_case_17_a_row_does_not_make_a_completion(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    answer, capture = case.answer("reconcile"), case.opened()
    expected, joined, accounts = answer["exact"], capture.derive(join), capture.derive(ledger)
    algebra(accounts.counts("attempt"), expected)
    assert joined.rows == expected["trace_rows"]
    produced = capture.requests["output_tokens"].to_pylist()

    def with_row(outcome: str | None) -> int:
        return sum(bool(joined.rows_of(account)) for account in accounts.attempts if account.outcome == outcome)

    def of(*, outcome: str | None = None, acceptance: str | None = None) -> int:
        wanted = [
            a
            for a in accounts.attempts
            if (outcome or a.outcome, acceptance or a.acceptance) == (a.outcome, a.acceptance)
        ]
        return sum(produced[number] for account in wanted for number in joined.rows_of(account))

    assert with_row("canceled") == expected["canceled_with_row"]
    assert with_row("failed") == expected["failed_with_row"]
    assert len(joined.without_row["early cancel"]) == expected["canceled_without_row"]
    assert len(joined.without_row["open at the end"]) == expected["open_without_row"]
    assert of(outcome="completed") == expected["output_tokens_completed"]
    assert of(acceptance="accepted") == expected["output_tokens_accepted"]
    assert sum(produced) == expected["output_tokens_all_rows"]
    wasted = 1 - expected["output_tokens_accepted"] / expected["output_tokens_all_rows"]
    assert measure(capture, "wasted_token_fraction").value == pytest.approx(wasted)
    (finding,) = expect(answer["verdict"], capture, "attempts_reconcile").problems
    assert "p6#1 was dispatched and never ended" in finding.message
    assert run_check(capture, "requests_are_joined").status == "pass"
    assert "lost row" not in joined.without_row
    assert gate(case.folder, capsys)[0] == 1


def test_case_18_a_client_that_sends_again_by_itself_is_seen(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    answer, capture = case.answer("reconcile"), case.opened()
    expected, joined, accounts = answer["exact"], capture.derive(join), capture.derive(ledger)
    algebra(accounts.counts("attempt"), expected)
    assert (joined.rows, joined.joined) == (expected["trace_rows"], expected["trace_rows"])
    several = {a.name: len(joined.rows_of(a)) for a in accounts.attempts if len(joined.rows_of(a)) > 1}
    assert several == expected["attempts_with_more_than_one_row"]
    (finding,) = expect(answer["verdict"], capture, "attempts_reconcile").problems
    assert "x_request_id dx1 has two serving rows" in finding.message
    assert finding.count == expected["extra_rows"]
    assert tokens(capture) == expected["output_tokens_all_rows"]
    produced = dict(zip(*(capture.requests[name].to_pylist() for name in ("request_id", "output_tokens")), strict=True))
    extra = sorted(produced[name] for name in finding.ids)
    assert [extra[0], extra[-1]] == [expected["output_tokens_wasted_min"], expected["output_tokens_wasted_max"]]
    assert gate(case.folder, capsys)[0] == 1


def test_case_19_requests_copied_into_two_shards_are_refused(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    answer, capture = case.answer("load"), case.opened()
    expected = answer["exact"]
    result = expect(answer["verdict"], capture, "requests_are_unique")
    copies = [finding.message for finding in result.findings if "same values" in finding.message]
    conflicts = [finding.message for finding in result.findings if "same values" not in finding.message]
    assert sum(source.rows for source in capture.sources) == expected["lines"]
    assert result.of == expected["distinct_request_ids"]
    assert re.findall(r"request_id (\w+)", " ".join(copies)) == expected["identical_duplicates"]
    assert re.findall(r"request_id (\w+)", " ".join(conflicts)) == expected["conflicting_duplicates"]
    (text,) = conflicts
    assert "request_id s1 appears twice" in text
    assert "output_tokens 20 and 999" in text
    for place in ("request-trace.000000.jsonl:2", "request-trace.000001.jsonl:4"):
        assert place in text
    produced = dict(zip(*(capture.requests[name].to_pylist() for name in ("request_id", "output_tokens")), strict=True))
    kept = sum(count for name, count in produced.items() if name not in expected["conflicting_duplicates"])
    assert kept == expected["output_tokens_if_identical_duplicates_are_dropped_and_s1_excluded"]
    assert gate(case.folder, capsys)[0] == 1
