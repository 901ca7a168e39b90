"""The quick path and the careful path through a trace: the same tables, counts and findings, whatever the bytes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, jsonl, request_end
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_rlserve.chains import expand
from pytest_rlserve.readers import dynamo, dynamo_prompts, lines
from pytest_rlserve.readers.dynamo_quick import understand
from pytest_rlserve.readers.jsonl import Content, File
from pytest_rlserve.readers.typed import Doubt
from pytest_rlserve.strategies import request_rows

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 2**64 - 1
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def never(text: bytes) -> Any:
    raise Doubt


def read(content: bytes, how: Callable[[bytes], Any] = understand) -> Content:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "request-trace.jsonl")
        path.write_bytes(content)
        patch.setattr(dynamo, "understand", how)
        return dynamo.read(File(path, path.name))


def facts(content: Content) -> dict[str, Any]:
    tables = dict(content.tables)
    tables["requests"] = tables["requests"].append_column("hashes", expand(tables.pop("chains")))
    found: dict[str, Any] = {name: table.to_pylist() for name, table in tables.items()}
    found |= {name: getattr(content, name) for name in ("findings", "kinds", "whole", "digest")}
    return found


def agree(content: bytes) -> Content:
    """Read both ways and return what the quick one gave."""
    quick = read(content)
    assert facts(quick) == facts(read(content, never))
    return quick


def taken(content: bytes) -> tuple[int, int]:
    """Return how many blocks of lines the quick path took, and how many it left."""
    counts = [0, 0]

    def counted(text: bytes) -> Any:
        try:
            block = understand(text)
        except Doubt:
            counts[1] += 1
            raise
        counts[0] += 1
        return block

    read(content, counted)
    return counts[0], counts[1]


def replay(*hashes: Any, **more: Any) -> Record:
    return {
        "replay": {"trace_block_size": 16, "input_length": 16 * len(hashes), "input_sequence_hashes": hashes}
    } | more


def compact(row: Record) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()


def turns(count: int = 5) -> list[Record]:
    """The turns of two samples of a group: each repeats all hashes of the turn before but its last."""
    rows = []
    for turn in range(count):
        for sample in ("s0", "s1"):
            hashes = [*range(LARGEST, LARGEST - turn - 1, -1), 100 * turn + len(rows) % 2]
            row = request_end(f"{sample}-{turn}", turn, turn + 1, session=sample, **replay(*hashes))
            row["agent_context"]["parent_session_id"] = "group"
            rows.append(row)
    return rows


PAYLOAD: Record = {
    "schema": "dynamo.request.trace.v1",
    "event_type": "request_payload",
    "event_time_unix_ms": 1,
    "payload": {"request_id": "r1", "request": {"tool": {"input_sequence_hashes": [1, 2]}}},
}
TOOL: Record = {
    "schema": "dynamo.request.trace.v1",
    "event_type": "tool_end",
    "event_time_unix_ms": 1,
    "agent_context": {"session_id": "s0", "agent_headers": {"thread-id": ["t"]}},
    "tool": {"tool_call_id": "c", "started_at_unix_ms": 1, "duration_ms": 5},
}


def test_rows_as_dynamo_writes_them_take_the_quick_path() -> None:
    rows = [*turns(), TOOL]
    wrapped = [{"timestamp": 5, "event": row} for row in rows]
    assert taken(b"".join(compact(row) + b"\n" for row in rows + wrapped)) == (1, 0)


def test_a_payload_does_not_slow_its_neighbours_down() -> None:
    plain = PAYLOAD | {"payload": {"request_id": "r1", "request": {"text": 'a" : "b'}}}
    content = jsonl([request_end("r1"), plain, request_end("r2")]).replace(b": ", b":")
    assert taken(content) == (1, 0)
    assert agree(content).kinds == {"request_payload": 1, "request_end": 2}


def test_keys_that_a_newer_dynamo_may_add_take_the_quick_path_as_well() -> None:
    rows = turns()
    for row in rows:
        row["router"] = {"candidates": [{"worker": 1, "score": 0.5}, {"worker": 2, "score": 1}], "why": None}
        row["request"]["routing_score"] = 0.25
    content = b"".join(compact(row) + b"\n" for row in rows)
    assert taken(content) == (1, 0)
    agree(content)


@pytest.mark.parametrize(
    "open_part",
    [
        {"worker": None},
        {"finish_reason_metadata": {"tool_calls": [{"arguments": {"a": 1}, "id": None}, 7]}},
        {"finish_reason_metadata": {"tool_calls": None}},
        {"later": 'said "é"'},
    ],
    ids=str,
)
def test_what_the_schema_leaves_open_takes_the_quick_path(open_part: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    row = request_end("r", session="s", **replay(7, 8), **open_part)
    row["agent_context"]["agent_headers"] = {"a": "b", "c": [{"d": 1}]}
    content = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    assert agree(content).kinds == {"request_end": 1}
    monkeypatch.setattr(dynamo.Shard, "judged", lambda *_: pytest.fail("left to the careful path"))
    read(content)


@pytest.mark.parametrize(
    "odd",
    [
        b'"extra":{"input_sequence_hashes":[1,2]}',
        b'"extra":{"a":1,"a":2}',
        b'"extra":1,"extra":2',
        b'"extra":"\\ud800"',
        b'"extra":1e400',
        b'"model":"m","extra":1',
    ],
)
def test_unknown_keys_hide_nothing(odd: bytes) -> None:
    plain = request_end("r", **replay(7, 8))
    spaced = compact(plain).replace(b'hashes":[', b'hashes": [')
    hurt = compact(request_end("r2")).replace(b'"request":{', b'"request":{' + odd + b",")
    content = b"\n".join([compact(plain), hurt, spaced]) + b"\n"
    assert hurt != compact(request_end("r2"))
    assert taken(content) == (0, 1)
    agree(content)


def test_hashes_that_an_earlier_turn_has_are_kept_once() -> None:
    found = agree(b"".join(compact(row) + b"\n" for row in turns()))
    chains = found.tables["chains"]
    assert sum(map(len, chains["own"].to_pylist())) < sum(map(len, expand(chains).to_pylist()))
    assert expand(chains)[-1].as_py()[:2] == [LARGEST, LARGEST - 1]


def test_what_is_shared_may_lie_many_blocks_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_BLOCK", 1)
    monkeypatch.setattr(lines, "_CHUNK", 700)
    content = b"".join(compact(row) + b"\n" for row in turns(40))
    assert taken(content)[0] > 10
    assert agree(content).tables["chains"]["back"].to_numpy().max() >= 2


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamo_prompts, "_LEAST", 100)
    monkeypatch.setattr(lines, "_BLOCK", 1)
    monkeypatch.setattr(lines, "_CHUNK", 700)
    agree(b"".join(compact(row) + b"\n" for row in turns(40)))


FIRST = compact(request_end("r0", session="s", **replay(1, 2, 3)))
WITH = b'"input_sequence_hashes":[1,2,3]'
TRAPS = {
    "the largest": WITH.replace(b"3", b"18446744073709551615"),
    "too large": WITH.replace(b"3", b"18446744073709551616"),
    "much too large": WITH.replace(b"3", b"3" * 21),
    "much too large and first": WITH.replace(b"1", b"7" * 40),
    "negative": WITH.replace(b"3", b"-3"),
    "minus zero": WITH.replace(b"3", b"-0"),
    "a fraction": WITH.replace(b"3", b"3.5"),
    "a whole number written as a fraction": WITH.replace(b"3", b"3.0"),
    "beyond what a float holds": WITH.replace(b"3", b"1e19"),
    "a string": WITH.replace(b"3", b'"3"'),
    "null": WITH.replace(b"3", b"null"),
    "nested": WITH.replace(b"1,2,3", b"[1],[2,3]"),
    "an object": WITH.replace(b"3", b'{"a":3}'),
    "a leading zero": WITH.replace(b"3", b"03"),
    "a trailing comma": WITH.replace(b"3", b"3,"),
    "only a comma after what is known": WITH.replace(b"3", b""),
    "no comma": WITH.replace(b",3", b" 3"),
    "empty": WITH.replace(b"1,2,3", b""),
    "blanks": WITH.replace(b"1,2,3", b" 1 ,\t2, 3 "),
    "a blank before the list": WITH.replace(b":[", b": ["),
    "an empty list after a blank": WITH.replace(b":[1,2,3", b": ["),
    "a blank before the colon": WITH.replace(b'":', b'" :'),
    "a line's end inside": WITH.replace(b"2,", b"2,\n"),
    "a carriage return inside": WITH.replace(b"2,", b"2,\r"),
    "never closed": WITH.replace(b"]", b""),
    "twice": WITH + b"," + WITH,
    "twice, once after a blank": WITH.replace(b":[1,2,3", b": [") + b"," + WITH,
    "the key escaped": WITH.replace(b"_", b"\\u005f", 1),
    "no list": WITH.replace(b"[1,2,3]", b"5"),
    "another key": b'"another":[1]',
    "another key with hashes in it": b'"another":{' + WITH + b"}",
    "a key given twice": b'"input_length":5,"input_length":6,' + WITH,
    "a key given twice, once before a blank": b'"input_length" :5,' + WITH,
    "not a number": b'"input_length":NaN,' + WITH,
    "an escaped quote and a colon": b'"another":"\\":",' + WITH,
}


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize("after", [[], ["empty"], ["another key with hashes in it"]], ids=str)
def test_both_paths_agree_on_hashes_that_are(name: str, after: list[str]) -> None:
    changed = [FIRST.replace(b"r0", b"r1").replace(WITH, TRAPS[one]) for one in (name, *after)]
    last = FIRST.replace(b"r0", b"r2").replace(b"[1,2,3]", b"[1,2,4,5]")
    agree(b"\n".join([FIRST, *changed, last]))


@pytest.mark.parametrize("name", ["an empty list after a blank", "a blank before the list"])
def test_hashes_that_are_not_cut_out_never_get_those_of_an_agents_header(name: str) -> None:
    header = compact(TOOL).replace(b'"thread-id":["t"]', WITH)
    agree(b"\n".join([header, FIRST.replace(WITH, TRAPS[name])]))


OTHER = WITH.replace(b"1,2,3", b"7,8")
UNCUT = {
    "after a blank": WITH.replace(b":[", b": ["),
    "none, after a blank": WITH.replace(b":[1,2,3", b": ["),
    "under an escaped key": WITH.replace(b"i", b"\\u0069", 1),
    "none, under an escaped key": WITH.replace(b"i", b"\\u0069", 1).replace(b"1,2,3", b""),
}
LURES = {
    "an unknown key": b'"request":{"extra":{%b},' % OTHER,
    "a key that ends like theirs": b'"request":{"x\\"%b,' % OTHER[1:],
    "a key that ends like theirs, after an escaped one": b'"request":{"\\u0022":1,"y\\"%b,' % OTHER[1:],
    "a tool call with such a key": b'"request":{"finish_reason_metadata":{"tool_calls":{"a":[{%b}]}},' % OTHER,
    "a header that ends like theirs": b'"agent_context":{"agent_headers":{"x\\"input_sequence_hashes":[]},',
}


@pytest.mark.parametrize("lure", LURES)
@pytest.mark.parametrize("own", UNCUT)
def test_a_row_never_gets_hashes_that_stand_elsewhere_in_it(lure: str, own: str) -> None:
    where = LURES[lure].partition(b"{")[0] + b"{"
    line = FIRST.replace(WITH, UNCUT[own]).replace(where, LURES[lure])
    found = agree(line + b"\n")
    assert expand(found.tables["chains"]).to_pylist() == [[] if "none" in own else [1, 2, 3]]


def test_what_one_block_refused_is_not_known_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_BLOCK", 1)
    monkeypatch.setattr(lines, "_CHUNK", 300)
    refused = FIRST.replace(b"2,3", b"18446744073709551616,3")
    assert len(agree(b"\n".join([FIRST, refused, refused.replace(b"3]", b"3,4]"), b""])).findings) == 2


ROW = compact(request_end("r9", worker={"decode_worker_id": 7}))
ROLLOUT = compact(request_end("r9") | {"agent_context": {"session_id": "s", "trajectory_id": "t9"}})
ODD_LINES = {
    "a null worker": ROW.replace(b'{"decode_worker_id":7}', b"null"),
    "a worker beyond 64 bits": ROW.replace(b":7", b":18446744073709551616"),
    "the largest worker": ROW.replace(b":7", b":18446744073709551615"),
    "a whole number as a fraction": ROW.replace(b'"output_tokens":10', b'"output_tokens":10.0'),
    "an instant beyond what a float holds": ROW.replace(b'_unix_ms":', b'_unix_ms":9007199254740993,"x":'),
    "a large instant": ROW.replace(b'"request_received_ms":1790000000000', b'"request_received_ms":9007199254740993'),
    "a time too large for a float": ROW.replace(b'"output_tokens":10', b'"ttft_ms":1e400'),
    "a key given twice": ROW.replace(b'"output_tokens":10', b'"output_tokens":10,"output_tokens":10'),
    "an unknown field": ROW.replace(b'"output_tokens":10', b'"output_tokens":10,"later":{"a":[1]}'),
    "no schema": ROW.replace(b'"schema":"dynamo.request.trace.v1",', b""),
    "another schema": ROW.replace(b"trace.v1", b"trace.v2"),
    "no request": b'{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1}',
    "a tool as well": ROW.replace(b'"request":{', b'"tool":{"tool_call_id":"c"},"request":{'),
    "a tool with a request whose worker is beyond 64 bits": compact(TOOL).replace(
        b'"tool":{', b'"request":{"request_id":"r","worker":{"prefill_worker_id":18446744073709551616}},"tool":{'
    ),
    "half a tool as well": ROW.replace(b'"request":{', b'"tool":{},"request":{'),
    "a payload as well": ROW.replace(b'"request":{', b'"payload":{},"request":{'),
    "two on a line": ROW + ROW,
    "one and a half": ROW + ROW[:-20],
    "torn": ROW[:-20],
    "wrapped twice": b'{"timestamp":1,"event":{"event":' + ROW + b"}}",
    "wrapped with more": b'{"timestamp":1,"more":1,"event":' + ROW + b"}",
    "wrapped over a row": ROW[:-1] + b',"event":' + ROW + b"}",
    "a wrapper without clock": b'{"event":' + ROW + b"}",
    "a stamp of text": b'{"timestamp":"now","event":' + ROW + b"}",
    "a rollout beside its run": ROLLOUT,
    "a rollout without a name": ROLLOUT.replace(b'"t9"', b'""'),
    "one over two lines": ROW.replace(b'{"r', b'{\n"r', 1),
    "a payload with hashes": compact(PAYLOAD),
    "a tool": compact(TOOL),
    "a header of that name": compact(TOOL).replace(b'"thread-id":["t"]', WITH.replace(b"1,2,3", b"")),
    "headers of another kind": compact(TOOL).replace(b'["t"]', b"7"),
    "blank": b"",
    "spaces": b"  \t ",
    "a carriage return": ROW + b"\r",
    "a raw line separator": ROW.replace(b'"r9"', '"\u2028\u0085"'.encode()),
    "half a surrogate pair": ROW.replace(b'"r9"', rb'"\ud800"'),
    "no UTF-8": ROW.replace(b'"r9"', b'"\xff"'),
    "a byte order mark": b"\xef\xbb\xbf" + ROW,
    "other JSON": b"[1]",
    "no JSON": b"hello",
    "very long": ROW.replace(b'"r9"', b'"%b"' % (b"r" * (3 << 20))),
    "nested deeply": b'{"a":' * 5000 + b"1" + b"}" * 5000,
}


@pytest.mark.parametrize("name", ODD_LINES)
def test_both_paths_agree_on_a_line_that_is(name: str) -> None:
    line, tool = ODD_LINES[name], compact(TOOL)
    agree(b"\n".join([FIRST, tool, line, compact(PAYLOAD), FIRST.replace(b"r0", b"r1")]))
    agree(line)
    agree(b"\n".join([line, FIRST, b""]))


def test_as_many_records_as_lines_are_not_one_a_line() -> None:
    torn = compact(PAYLOAD).replace(b"[1,2]", b'["}\n{"]')
    assert torn.count(b"\n") == 1
    both = FIRST + FIRST.replace(b"r0", b"r1")
    found = agree(b"\n".join([torn, both, FIRST.replace(b"r0", b"r2"), b""]))
    assert [finding.line for finding in found.findings] == [1, 2, 3]


def test_a_rollout_is_the_session_where_both_are_named() -> None:
    found = agree(b"\n".join([FIRST, ROLLOUT, b""]))
    assert found.tables["requests"]["session_id"].to_pylist() == ["s", "t9"]


def test_many_refused_lines_are_counted_the_same_way() -> None:
    rows = [compact(row) for row in turns(30)]
    rows[2:50:2] = [b"{}"] * 24
    rows += [b"torn", compact(PAYLOAD)] * 40
    assert agree(b"\n".join(rows)).findings[-1].count == 14


@st.composite
def traces(draw: st.DrawFn) -> bytes:
    """Lines of every kind, as different writers write them, then perhaps hurt."""
    newer = [row | {"more": {"score": [1, {"a": 2}], "model": None}} for row in turns()]
    whole = st.sampled_from([*turns(), *newer]) | request_rows() | st.sampled_from([PAYLOAD, TOOL])
    written = []
    for row in draw(st.lists(whole, max_size=8)):
        record = {"timestamp": 7, "event": row} if draw(st.booleans()) else row
        separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (",", " : ")]))
        written.append(json.dumps(record, separators=separators, ensure_ascii=draw(st.booleans())).encode())
    odd = st.sampled_from([line for name, line in ODD_LINES.items() if name not in ("very long", "nested deeply")])
    traps = st.sampled_from(list(TRAPS.values())).map(lambda trap: FIRST.replace(WITH, trap))
    some = draw(st.permutations([*written, *draw(st.lists(odd | traps, max_size=3))]))
    content = b"\n".join(some)
    if content and draw(st.booleans()):
        at, gone = draw(st.integers(0, len(content))), draw(st.integers(0, 3))
        put = draw(st.sampled_from([b"", b'"', b",", b"]", b"[", b"{", b"\n", b":", b" ", b"7", b"\\", b"\xff"]))
        content = content[:at] + put + content[at + gone :]
    return content


@relaxed
@given(traces(), st.sampled_from([1, 300, 1 << 20]))
@example(b"", 1)
def test_both_paths_agree_on_whatever_is_in_a_file(content: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK", size)
        patch.setattr(lines, "_CHUNK", max(size, 64))
        agree(content)


@relaxed
@given(traces())
def test_without_simdjson_the_same_is_read(content: bytes) -> None:
    expected = facts(read(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamo_prompts, "_decoder", lambda: dynamo_prompts.with_msgspec)
        assert facts(read(content)) == expected
