"""What holds for every row, history and file that Hypothesis can think of.

HYPOTHESIS_PROFILE=thorough tries many more.
"""

from __future__ import annotations

import copy
import gzip
import json
import os
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import jsonl
from hypothesis import HealthCheck, assume, example, given, note, settings
from hypothesis import strategies as st

from pytest_rlserve import joins, schema
from pytest_rlserve.checks import run_check, run_checks
from pytest_rlserve.errors import UsageError
from pytest_rlserve.joins.reconciliation import PARTS, Part, reconcile
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Scope, window
from pytest_rlserve.metrics.measuring import all_keys, measure
from pytest_rlserve.readers import attempts, control, dynamo, open_capture, rows
from pytest_rlserve.strategies import attempt_histories, captures, gzip_members, request_rows, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_rlserve.capture import Capture

Record = dict[str, Any]
quick = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("quick", max_examples=100, **quick)
settings.register_profile("thorough", max_examples=2000, **quick)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
fewer = settings(max_examples=max(settings().max_examples // 3, 1))

SHAPES = {
    attempts.FORMAT: attempts.AttemptEvent,
    control.FORMAT: control.ControlEvent,
    dynamo.FORMAT: dynamo.RequestEnd,
}


@contextmanager
def folder(files: dict[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield write(files, Path(name))


def opened(files: dict[str, bytes]) -> Capture:
    with folder(files) as path:
        return open_capture(path)


# Rows: the typed shapes and the schema.

finite = st.floats(allow_nan=False, allow_infinity=False)
edges = st.sampled_from([2**53 + 1, 2**63, 2**64, 2.0**53, 1e19, -0.0, 1e308, 10**400])
numbers = st.integers() | finite | edges
values = st.recursive(
    st.none() | st.booleans() | numbers | st.just("") | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def examples(name: str) -> st.SearchStrategy[Record]:
    """Valid rows of a format: its schema's examples, and drawn ones."""
    known = [row for row in schema.load(name)["examples"] if row.get("event_type", "request_end") == "request_end"]
    drawn = {attempts.FORMAT: attempt_histories().flatmap(st.sampled_from), dynamo.FORMAT: request_rows()}
    return st.sampled_from(known) | drawn.get(name, st.nothing())


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be changed inside a row."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*place, key)
        yield from places(part, (*place, key))


def known_keys(node: Any) -> Iterator[str]:
    for key, part in node.get("properties", {}).items():
        yield key
        yield from known_keys(part)
    for part in node.get("$defs", {}).values():
        yield from known_keys(part)


@st.composite
def mutated(draw: st.DrawFn, name: str) -> Record:
    """A valid row with up to three parts replaced, taken out, or put in."""
    row: Record = copy.deepcopy(draw(examples(name)))
    keys = sorted(set(known_keys(schema.load(name))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from([*places(row), ()]))
        parent: Any = row
        for step in place[:-1]:
            parent = parent[step]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace" if place:
                parent[place[-1]] = draw(values)
            case "remove" if place:
                del parent[place[-1]]
            case _ if isinstance(parent, dict):
                parent[draw(st.sampled_from(keys))] = draw(values)
    return row


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
def test_the_typed_shapes_let_nothing_through_that_the_schema_refuses(name: str, data: st.DataObject) -> None:
    row = data.draw(mutated(name))
    if name == dynamo.FORMAT:
        assume(row.get("event_type") == "request_end")
    refusal = rows.fit(row, SHAPES[name], name)
    problems = schema.problems(name, row)
    note(f"refusal {refusal}, problems {problems}")
    if problems:
        assert refusal is not None
        assert set(refusal.reasons) == set(problems)
    elif refusal is not None:
        assert all("is not exact" in reason for reason in refusal.reasons)


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
def test_a_row_that_fits_can_be_kept_and_one_that_does_not_is_told(name: str, data: st.DataObject) -> None:
    row = data.draw(mutated(name))
    line = json.dumps(row).encode()
    first = json.dumps(schema.load(name)["examples"][0]).encode()
    capture = opened({"x.jsonl": first + b"\n" + line + b"\n"})
    tables = ("requests", "payloads", "tools", "attempt_events", "control_events")
    kept = sum(getattr(capture, table).num_rows for table in tables)
    told = [finding for finding in capture.findings if finding.line == 2]
    decoded = rows.decode(line)
    unwrapped = dynamo.unwrap(decoded) if name == dynamo.FORMAT and isinstance(decoded, dict) else decoded
    fits = isinstance(unwrapped, dict) and not schema.problems(name, unwrapped)
    assert (kept, len(told)) == ((2, 0) if fits and not told else (1, 1))
    if fits and told:
        assert "is not exact" in told[0].message


# Lines: the quick way of decoding and the careful one.


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    key = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"a\\":"', '"\\ud83d"', '":"', '""'])
    pair = st.tuples(key, st.sampled_from([":", " :", ": ", "\t:\t", "\r:"]), inner).map("".join)
    return st.lists(pair, max_size=4).map(lambda pairs: f"{{{','.join(pairs)}}}")


json_text = st.recursive(
    st.sampled_from(
        ["null", "true", "0", "-0", "1.5", "1e3", "1e400", "NaN", "-Infinity", '""', '"a\\":"', '"\\ud800"']
    )
    | st.integers().map(str)
    | st.text(max_size=4).map(json.dumps)
    | st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False)),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]") | objects(inner),
    max_leaves=8,
)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """JSON objects as text, some with a byte changed, taken out or put in."""
    line = draw(objects(json_text)).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.binary(max_size=2)) + line[at + draw(st.integers(0, 2)) :]
    return line.replace(b"\n", b"")


@given(lines() | st.binary(max_size=30))
@example(b'{"a" :1,"a":2}')
@example(b'{"a":"\\":","b" :1,"b":2}')
def test_the_quick_and_the_careful_way_of_decoding_agree(line: bytes) -> None:
    quick_way, careful = rows.decode(line), rows._explain(line)
    assert repr(quick_way) == repr(careful)
    if isinstance(quick_way, dict):
        text = line.decode()
        assert repr(json.loads(text)) == repr(quick_way)
        pairs: list[int] = []
        json.loads(text, object_pairs_hook=lambda one: pairs.append(len(one) - len(dict(one))))
        assert not any(pairs)


# Histories: the algebra of attempts.


AXES = ("dispatched", "completed", "canceled", "failed", "open", "retried", "accepted", "rejected", "pending")
ENDS = {"completed", "canceled", "failed"}


def tally(capture: Capture) -> dict[str, dict[str, int]]:
    """Counts of both levels, unknown ones as 0."""
    found: dict[str, dict[str, int]] = {}
    for level in ("attempt", "request"):
        counts = capture.derive(ledger).counts(level)
        known = asdict(counts) if counts else dict.fromkeys(AXES)
        found[level] = {name: known[name] or 0 for name in AXES}
    return found


def expected(history: list[Record]) -> dict[str, dict[str, int]]:
    """The same counts from the events alone, without the ledger."""
    found = {}
    for level in ("attempt", "request"):
        events: dict[tuple[str | None, str], set[str]] = {}
        for event in history:
            if event.get("level", "attempt") == level:
                key = event.get("run"), event["x_request_id"] if level == "request" else event["attempt_id"]
                events.setdefault(key, set()).add(event["event"])
        count = Counter(name for names in events.values() if "dispatched" in names for name in names)
        count["open"] = count["dispatched"] - count["completed"] - count["canceled"] - count["failed"]
        decisive = level == "attempt" and count["accepted"] + count["rejected"]
        count["pending"] = count["completed"] - count["accepted"] - count["rejected"] if decisive else 0
        found[level] = {name: count[name] for name in AXES}
    return found


def recorded(history: list[Record]) -> Capture:
    return opened({"attempts.jsonl": jsonl(history)})


@given(attempt_histories(max_runs=3))
def test_every_dispatch_ends_in_one_place(history: list[Record]) -> None:
    capture = recorded(history)
    assert tally(capture) == expected(history)
    assert capture.findings == ()
    assert capture.derive(ledger).findings == ()
    for counts in tally(capture).values():
        assert counts["dispatched"] == sum(counts[name] for name in ("completed", "canceled", "failed", "open"))
        decided = counts["accepted"] + counts["rejected"]
        assert not decided or counts["completed"] == decided + counts["pending"]


@given(attempt_histories(max_runs=2), st.data())
def test_the_loss_of_one_event_changes_its_own_axis_only(history: list[Record], data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(history))
    rest = [event for event in history if event is not lost]
    assume(rest)
    whole, left = tally(recorded(history)), tally(recorded(rest))
    level, kind = lost.get("level", "attempt"), lost["event"]
    gone = {kind}
    if kind == "dispatched":
        gone = same_account(history, lost)
    elif kind == "completed":
        gone |= same_account(history, lost) & {"accepted", "rejected"}
    change = Counter(dict.fromkeys(gone, -1))
    if kind in ENDS:
        change["open"] = 1
    elif kind == "dispatched" and not gone & ENDS:
        change["open"] = -1
    if decided(whole[level]) and decided(left[level]):
        change["pending"] = change["completed"] - change["accepted"] - change["rejected"]
    else:  # with the last decision goes whatever could be said of pending ones
        change["pending"] = left[level]["pending"] - whole[level]["pending"]
    changed = {name: left[level][name] - whole[level][name] for name in AXES}
    assert {name: by for name, by in changed.items() if by} == {name: by for name, by in change.items() if by}
    other = "request" if level == "attempt" else "attempt"
    assert left[other] == whole[other]


def decided(counts: dict[str, int]) -> int:
    return counts["accepted"] + counts["rejected"]


def same_account(history: list[Record], lost: Record) -> set[str]:
    """What else is told of the attempt or request that an event speaks of, itself included."""
    names = ["run", "level", "attempt_id", *["x_request_id"] * (lost.get("level") == "request")]
    key = [lost.get(name) for name in names]
    return {event["event"] for event in history if [event.get(name) for name in names] == key}


@given(attempt_histories(max_runs=2), st.data())
def test_the_loss_of_an_event_that_others_rest_on_is_told(history: list[Record], data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from([event for event in history if event["event"] in ENDS | {"dispatched"}]))
    assume(same_account(history, lost) - {lost["event"]})
    rest = [event for event in history if event is not lost]
    assert run_check(recorded(rest), "attempts_reconcile").status == "fail"


# Reconciliation: of the whole, and of each step, group and run.


Line = dict[str, Any]


def parts(capture: Capture, by: Part | None = None) -> dict[tuple[str, str | None], Line]:
    """What each level comes to in each part, with names in an order of their own."""
    found = {}
    for one in reconcile(capture, by):
        assert all(left == right for _, left, right in one.sums())
        told = {kind: {why: sorted(ids) for why, ids in getattr(one, kind).items()} for kind in KINDS}
        figures = {"rows": one.rows, "served": one.served, "trained": one.trained, "odd": sorted(one.unexplained)}
        found[one.level, one.part] = asdict(one.counts) | told | figures
    return found


KINDS = ("residuals", "strays", "outside")


def by_part(history: list[Record], by: Part) -> dict[tuple[str, str | None], Counter[str]]:
    """Count the events of each part from the events alone."""
    field = {"step": "step", "group": "group_id", "run": "run"}[by]
    of = {(e["run"], e["attempt_id"]): e[field] for e in reversed(history) if e["event"] == "dispatched" and field in e}
    found: dict[tuple[str, str | None], Counter[str]] = {}
    for event in history:
        key = event.get("level", "attempt"), str(of[event["run"], event["attempt_id"]])
        found.setdefault(key, Counter())[event["event"]] += 1
    return found


@given(attempt_histories(max_runs=3), st.sampled_from(PARTS))
def test_the_algebra_holds_in_each_step_group_and_run(history: list[Record], by: Part) -> None:
    capture, wanted = recorded(history), by_part(history, by)
    found = parts(capture, by)
    for key, counts in wanted.items():
        kinds = ["dispatched", "completed", "canceled", "failed", "retried"]
        kinds += ["accepted", "rejected"] * (key[0] == "attempt" and found[key]["accepted"] is not None)
        assert {kind: found[key][kind] for kind in kinds} == {kind: counts[kind] for kind in kinds}
    trained = Counter(str(event["step"]) for event in history if event["event"] == "accepted")
    if by == "step":
        assert Counter({part: line["trained"] or 0 for (_, part), line in found.items() if line["trained"]}) == trained
    assert set(found) >= set(wanted)


def added(before: Line, after: Line) -> dict[str, int]:
    """What became more or less, the residuals by their names."""
    change = {}
    for name, value in after.items():
        if name in KINDS:
            for why in {*before[name], *value}:
                change[why] = len(value.get(why, ())) - len(before[name].get(why, ()))
        else:
            change[name] = (value or 0) - (before[name] or 0) if name != "odd" else len(value) - len(before[name])
    return {name: by for name, by in change.items() if by}


def trace_rows(files: dict[str, bytes]) -> tuple[dict[str, bytes], list[bytes]]:
    """The other files, and the rows of the trace."""
    rest = {name: content for name, content in files.items() if not name.startswith("request-trace")}
    shards = [gzip.decompress(content) for name, content in files.items() if name not in rest]
    return rest, [line for shard in shards for line in shard.splitlines(keepends=True)]


@fewer
@given(captures(), st.data())
def test_the_loss_of_one_row_is_one_residual_and_nothing_else(files: dict[str, bytes], data: st.DataObject) -> None:
    rest, rows = trace_rows(files)
    lost = data.draw(st.integers(0, len(rows) - 1))
    left = rows[:lost] + rows[lost + 1 :]
    assume(left)
    before = opened({**rest, "request-trace.jsonl": b"".join(rows)})
    after = opened({**rest, "request-trace.jsonl": b"".join(left)})
    (owner,) = (owner for row, owner in before.derive(joins.join).owners.items() if row == lost)
    why = "lost row" if owner.outcome == "completed" else "early cancel"
    for by in (None, *PARTS):
        first, second = parts(before, by), parts(after, by)
        assert first.keys() == second.keys()
        changes = [change for key in first if (change := added(first[key], second[key]))]
        assert changes == [{"rows": -1, "served": -1, why: 1}]


@fewer
@given(captures(), st.data())
def test_a_row_that_comes_twice_is_one_duplicate_and_nothing_else(files: dict[str, bytes], data: st.DataObject) -> None:
    rest, rows = trace_rows(files)
    again = data.draw(st.sampled_from(rows))
    before = parts(opened({**rest, "request-trace.jsonl": b"".join(rows)}))
    after = parts(opened({**rest, "request-trace.jsonl": b"".join([*rows, again])}))
    changes = [change for key in before if (change := added(before[key], after[key]))]
    assert changes == [{"rows": 1, "duplicate": 1}]


# Captures: nothing depends on the order of lines or the names and number of files.


def story(capture: Capture) -> dict[str, Any]:
    """All that is said of a capture, apart from the places where its rows stand."""
    joined = capture.derive(joins.join)
    names = capture.requests["request_id"].to_pylist()
    scope = Scope(budgets={"request_latency": 1.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "ENOUGH_COMPLETIONS", 1)
        measured = {key: measure(capture, key, scope) for key in all_keys()}
    return {
        "counts": tally(capture),
        "owners": {names[row]: (owner.level, owner.name) for row, owner in joined.owners.items()},
        "shares": (joined.rows, joined.joined, joined.traceable, joined.traceable_served),
        "parts": {by: parts(capture, by) for by in (None, *PARTS)},
        "residuals": {why: sorted(a.name for a in accounts) for why, accounts in joined.without_row.items()},
        "checks": {r.name: (r.status, r.noun == "files" or (r.observed, r.of)) for r in run_checks(capture)},
        "values": {key: one.value if one.value is None else pytest.approx(one.value) for key, one in measured.items()},
        "reasons": {key: (one.n, one.why) for key, one in measured.items()},
    }


def cut(files: dict[str, bytes], data: st.DataObject) -> dict[str, bytes]:
    """The same lines in another order, in other files, under other names."""
    parts: dict[str, list[bytes]] = {}
    for name, content in files.items():
        plain = gzip.decompress(content) if name.endswith(".gz") else content
        parts.setdefault(name.split(".")[0], []).extend(plain.splitlines(keepends=True))
    names = {"request-trace": "rollout_trace", "attempts": "a", "control": "z"}
    new: dict[str, bytes] = {}
    for stem, content_lines in parts.items():
        shuffled = data.draw(st.permutations(content_lines))
        edges = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=2)))
        for number, (start, end) in enumerate(zip([0, *edges], [*edges, len(shuffled)], strict=True)):
            text = b"".join(shuffled[start:end])
            if text or stem == "request-trace":
                packed = stem == "request-trace" and data.draw(st.booleans())
                suffix = f"{number:06d}.jsonl" + ".gz" * packed
                new[f"{names[stem]}.{suffix}"] = gzip.compress(text) if packed else text
    return new


@fewer
@given(captures(), st.data())
def test_order_of_lines_and_names_of_files_change_nothing(files: dict[str, bytes], data: st.DataObject) -> None:
    capture = opened(files)
    assert capture.findings == ()
    statuses = {result.status for result in run_checks(capture)}
    assert not statuses & {"error"}
    again = opened(cut(files, data))
    assert again.findings == ()
    assert story(again) == story(capture)


@fewer
@given(captures(max_samples=2))
def test_every_metric_of_a_drawn_capture_is_a_number_or_says_why(files: dict[str, bytes]) -> None:
    for key, (_, why) in story(opened(files))["reasons"].items():
        assert why is None or why.strip(), key


# Files: gzip members, cuts, and bytes of any kind.

SOME = jsonl([row for row in schema.load(dynamo.FORMAT)["examples"] if row["event_type"] != "request_payload"])
contents = st.lists(request_rows(), min_size=1, max_size=5).map(jsonl)


def without_place(capture: Capture) -> list[Any]:
    return [table.drop_columns(["source"]).to_pylist() for _, table in capture.tables()]


@given(content=contents, bom=st.booleans(), end=st.booleans(), data=st.data())
def test_gzip_members_cut_anywhere_read_like_the_plain_file(
    content: bytes, bom: bool, end: bool, data: st.DataObject
) -> None:
    text = b"\xef\xbb\xbf" * bom + (content if end else content[:-1])
    packed = data.draw(gzip_members(text))
    plain, zipped = opened({"request-trace.jsonl": text}), opened({"request-trace.jsonl.gz": packed})
    assert without_place(zipped) == without_place(plain)
    assert (plain.findings, zipped.findings) == ((), ())


@given(content=contents, data=st.data())
def test_a_gzip_file_cut_anywhere_is_told_and_gives_no_row_that_was_not_written(
    content: bytes, data: st.DataObject
) -> None:
    packed = data.draw(gzip_members(content))
    kept = data.draw(st.integers(1, len(packed) - 1))
    whole = opened({"request-trace.jsonl.gz": packed}).requests.drop_columns(["source"]).to_pylist()
    capture = opened({"request-trace.jsonl.gz": packed[:kept]})
    found = capture.requests.drop_columns(["source"]).to_pylist()
    assert found == whole[: len(found)]
    if not at_a_member(packed, kept):
        assert {run_check(capture, name).status for name in ("shards_are_whole", "rows_fit_schema")} & {"error"}


def at_a_member(packed: bytes, kept: int) -> bool:
    """Tell whether a cut leaves whole members: then nothing in the file says that there were more."""
    import zlib

    rest = packed[:kept]
    while rest:
        member = zlib.decompressobj(31)
        try:
            member.decompress(rest)
        except zlib.error:
            return False
        if not member.eof:
            return False
        rest = member.unused_data
    return True


@given(
    content=st.binary(max_size=200)
    | lines()
    | st.lists(lines(), max_size=4).map(b"\n".join)
    | st.binary(max_size=40).map(gzip.compress)
    | st.binary(max_size=40).map(lambda noise: gzip.compress(SOME)[:200] + noise)
    | st.integers(0, len(SOME)).map(lambda end: SOME[:end]),
    name=st.sampled_from(["x.jsonl", "x.jsonl.gz", "request-trace.jsonl", "request-trace.000000.jsonl.gz", "x.ndjson"]),
)
@example(content=b'{"event":{}}\n', name="x.jsonl")
@example(content=b'{"event":' * 600 + b"{}" + b"}" * 600 + b"\n", name="x.jsonl")
def test_no_file_can_bring_the_reader_down(content: bytes, name: str) -> None:
    guarded(lambda: opened({name: content}))


@given(st.data(), st.sampled_from(list(SHAPES)))
def test_no_row_can_bring_reader_checks_or_metrics_down(data: st.DataObject, format: str) -> None:
    some = [data.draw(mutated(format)) for _ in range(data.draw(st.integers(1, 3)))]
    capture = guarded(lambda: opened({"x.jsonl": jsonl(some), "request-trace.jsonl": SOME}))
    if capture is not None:
        run_checks(capture)
        story(capture)


def guarded(act: Callable[[], Capture]) -> Capture | None:
    try:
        return act()
    except UsageError as error:
        assert str(error).strip()
        return None
