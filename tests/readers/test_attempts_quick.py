"""The quick path and the careful path through a log of attempts: the same table, counts and findings."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import attempt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_rlserve.readers import attempts, lines
from pytest_rlserve.readers.jsonl import Content, File
from pytest_rlserve.readers.typed import Doubt
from pytest_rlserve.strategies import attempt_histories

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = attempt(
    "accepted", "a", run=7, group_id="g", policy=3, policy_end="3", tokens_by_version={"3": 5, "4": 6}, retry_of=-1,
    x_request_ids=["x", "y"], reward=-0.5, n=2, turn=1, parent_session_id="p", ttft_ms=4, step=-3,
)  # fmt: skip


def never(text: bytes) -> Any:
    raise Doubt


def read(content: bytes, how: Callable[[bytes], Any] = attempts.understand) -> Content:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "attempts.jsonl")
        path.write_bytes(content)
        patch.setattr(attempts, "understand", how)
        return attempts.read(File(path, path.name))


def facts(content: Content) -> tuple[Any, ...]:
    table = content.tables["attempt_events"]
    return table.to_pylist(), table.schema, content.findings, content.kinds, content.whole, content.digest


def agree(content: bytes) -> None:
    assert facts(read(content)) == facts(read(content, never))


def quick(content: bytes) -> bool:
    try:
        attempts.understand(content)
    except Doubt:
        return False
    return True


def line(row: object) -> bytes:
    return json.dumps(row).encode() + b"\n"


def test_events_as_recorders_write_them_take_the_quick_path() -> None:
    log = line(FULL) + line(attempt("dispatched", "a"))
    assert quick(log)
    agree(log)


@pytest.mark.parametrize("more", [{"mine": {"a": [{"b": 1}, {"b": 2}]}}, {"reason": 'what": it is'}])
def test_keys_of_somebodys_own_take_the_quick_path_as_well(more: dict[str, Any]) -> None:
    log = line(FULL) + line(attempt("dispatched", "a", **more))
    assert quick(log)
    agree(log)


def test_keys_that_stand_apart_from_their_colons_take_the_quick_path_as_well() -> None:
    log = line(FULL).replace(b'":', b'" :')
    assert quick(log)
    agree(log)


@pytest.mark.parametrize(
    "odd",
    [
        line(attempt("dispatched", "a", run=None)),
        line(attempt("dispatched", 7.0)),
        line(attempt("dispatched", "a", n=2**63)),
        line(attempt("completed", "a", tokens_by_version={"1": -1})),
        line(attempt("dispatched", "a", mine=1)).replace(b'"mine": 1', b'"mine": 1, "mine": 2'),
        line(attempt("dispatched", "a", mine=1)).replace(b'"mine": 1', b'"mine": 1e400'),
        line(attempt("dispatched", "a", mine=1)).replace(b'"mine": 1', b'"mine": "\\udc00"'),
        line(attempt("dispatched", "a")).replace(b'"t"', b'"t": 5, "t"'),
        line(attempt("dispatched", "a")).replace(b"\n", b"") * 2 + b"\n\n",
        b"\xef\xbb\xbf" + line(attempt("dispatched", "a")),
        b"\n" + line(attempt("dispatched", "a")),
        line(attempt("dispatched", "a")).rstrip(),
        line(attempt("completed", "a", tokens_by_version={"1": 1})).replace(b'{"1": 1}', b'{"1": 1, "1": 2}'),
    ],
)
def test_what_a_type_would_pass_over_or_cannot_hold_is_left_to_the_careful_path(odd: bytes) -> None:
    assert not quick(odd)
    agree(line(FULL) + odd)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Events of several samples, as different writers write them, then perhaps hurt."""
    own = attempt("dispatched", "b", mine={"a": 1, "t": [{"b": "c"}]})
    rows = [*draw(attempt_histories()), *draw(st.lists(st.sampled_from([FULL, own]), max_size=2))]
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (",", " : ")]))
    content = b"\n".join(
        json.dumps(row, separators=separators, ensure_ascii=draw(st.booleans())).encode() for row in rows
    )
    content += draw(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]))
    if content and draw(st.booleans()):
        at, gone = draw(st.integers(0, len(content))), draw(st.integers(0, 3))
        put = draw(st.sampled_from([b"", b'"', b",", b"]", b"{", b"}\n{", b"\n", b":", b" ", b"7", b"1e400", b"\xff"]))
        content = content[:at] + put + content[at + gone :]
    return content


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(logs(), st.sampled_from([1, 300, 1 << 20]))
def test_both_paths_agree_on_whatever_is_in_a_log(content: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK", size)
        agree(content)
