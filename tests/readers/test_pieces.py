"""A trace read in pieces gives what it gives in one go: rows, line numbers, findings and digest."""

from __future__ import annotations

import errno
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from blake3 import blake3
from hand_made import Record, jsonl, members, request_end
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_rlserve.chains import expand
from pytest_rlserve.engine import local
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import assemble, dynamo, open_capture, pieces, whole
from pytest_rlserve.readers import lines as reading
from pytest_rlserve.readers.jsonl import Content, File

if TYPE_CHECKING:
    from collections.abc import Sequence

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def rows(count: int) -> list[Record]:
    replay = {"trace_block_size": 16, "input_length": 48, "input_sequence_hashes": [2**64 - 1, 2, 3]}
    return [request_end(f"r{number}", number, number + 1, session="s", replay=replay) for number in range(count)]


def facts(content: Content) -> dict[str, Any]:
    tables = dict(content.tables)
    tables["requests"] = tables["requests"].append_column("hashes", expand(tables.pop("chains")))
    found: dict[str, Any] = {name: table.to_pylist() for name, table in tables.items()}
    return found | {name: getattr(content, name) for name in ("findings", "kinds", "whole", "digest")}


class Here(local.Crew):
    """Stands in for processes: does the tasks here, by way of JSON."""

    def __init__(self, module: str, _: int) -> None:
        super().__init__(module, 1)

    def do(self, tasks: Sequence[local.Task]) -> list[Any]:
        asked = [local.Task(*json.loads(json.dumps(task))) for task in tasks]
        found: list[Any] = json.loads(json.dumps(super().do(asked)))
        return found


def in_pieces(content: bytes, processes: int) -> tuple[Content | None, Content]:
    """Read a file in pieces and in one go."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "Crew", Here)
        path = Path(folder, "request-trace.jsonl")
        path.write_bytes(content)
        file = File(path, path.name)
        spill = Path(folder, "spill")
        spill.mkdir()
        (parts,) = whole.read([file], spill, processes)
        return parts, dynamo.read(file)


lines = st.sampled_from([*map(json.dumps, rows(3)), "", "{}", "torn", json.dumps(rows(1)[0])[:-30]]).map(str.encode)


@relaxed
@given(st.lists(lines, max_size=12), st.booleans(), st.sampled_from([b"", b"\xef\xbb\xbf"]), st.integers(1, 8))
def test_a_plain_file_cut_anywhere_reads_as_one(some: list[bytes], end: bool, bom: bytes, processes: int) -> None:
    parts, whole = in_pieces(bom + b"\n".join(some) + b"\n" * end, processes)
    assert parts is not None
    assert facts(parts) == facts(whole)


@relaxed
@given(st.lists(lines, min_size=1, max_size=12), st.data())
def test_a_gzip_file_cut_at_its_members_reads_as_one(some: list[bytes], data: st.DataObject) -> None:
    content = b"\n".join(some)
    edges = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    packed = members(*(content[a:b] for a, b in zip([0, *edges], [*edges, len(content)], strict=True)))
    parts, whole = in_pieces(packed, data.draw(st.integers(1, 6)))
    assert parts is not None
    assert facts(parts) == facts(whole)


@relaxed
@given(st.integers(0, 2000), st.integers(1, 255), st.integers(1, 5))
def test_a_damaged_file_is_never_read_in_pieces_as_if_it_were_whole(place: int, change: int, processes: int) -> None:
    packed = bytearray(members(*(jsonl([row]) for row in rows(12))))
    packed[place % len(packed)] ^= change
    parts, whole = in_pieces(bytes(packed), processes)
    if parts is not None:
        assert facts(parts) == facts(whole)


def test_more_bad_lines_than_are_explained_are_counted_over_all_pieces() -> None:
    content = jsonl([*rows(2), *[{}] * 70, *rows(3), *[{"a": 1}] * 30])
    parts, whole = in_pieces(content, 5)
    assert parts is not None
    assert facts(parts) == facts(whole)
    assert parts.findings[-1].count == 50


def test_of_very_many_bad_lines_in_one_piece_the_last_is_named() -> None:
    content = jsonl([*rows(1), *[{}] * 200, *[{"a": 1}] * 200, *rows(1)])
    parts, whole = in_pieces(content, 1)
    assert parts is not None
    assert facts(parts) == facts(whole)
    assert parts.findings[-1].count == 350


def test_a_line_longer_than_a_piece_is_still_one_line() -> None:
    content = jsonl([rows(1)[0], request_end("x" * 100_000), rows(1)[0]])
    parts, whole = in_pieces(content, 6)
    assert parts is not None
    assert facts(parts) == facts(whole)


def test_a_line_too_long_to_read_is_so_in_pieces_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    content = jsonl([rows(1)[0], request_end("x" * 2000), rows(1)[0]])
    for longest in (1500, 10_000):
        monkeypatch.setattr("pytest_rlserve.readers.lines._BLOCK", 100)
        monkeypatch.setattr("pytest_rlserve.readers.lines.LONGEST", longest)
        monkeypatch.setattr(whole, "LONGEST", longest)
        parts, _ = in_pieces(content, 2)
        assert (parts is None) == (longest < 2000)


def test_a_gzip_file_within_a_member_does_not_mislead_the_cuts(tmp_path: Path) -> None:
    inner = gzip.compress(b"x" * 100, mtime=0)
    stored = gzip.compress(inner * 200, 0, mtime=0)  # level 0 stores bytes as they are
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(stored)
    assert len(pieces.cuts(path, 4)) > 1
    parts, _ = in_pieces(stored, 2)
    assert parts is None


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A capture of two shards that counts as large."""
    monkeypatch.setattr(assemble, "_LARGE", 0)
    monkeypatch.setattr(local, "processors", lambda: 2)
    folder = tmp_path / "capture"
    folder.mkdir()
    for number in range(2):
        content = members(*(jsonl([row]) for row in rows(30)))
        (folder / f"request-trace.{number:06d}.jsonl.gz").write_bytes(content)
    return folder


def test_processes_read_what_one_process_reads(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_capture(large)
    monkeypatch.setattr(local, "processors", lambda: 1)
    alone = open_capture(large)
    monkeypatch.setattr(assemble, "_LARGE", 1 << 60)
    small = open_capture(large)
    assert found.requests.equals(alone.requests)
    assert found.requests.equals(small.requests)
    assert found.sources == alone.sources == small.sources
    assert (found.findings, found.digest) == (small.findings, small.digest)


def test_no_more_processes_start_than_have_enough_to_read(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[int]()

    class Counted(Here):
        def __init__(self, module: str, processes: int) -> None:
            started.append(processes)
            super().__init__(module, processes)

    monkeypatch.setattr(local, "Crew", Counted)
    text = 3 * sum(path.stat().st_size for path in large.iterdir())
    for least, processors in ((text, 64), (text // 2, 64), (text // 2, 3)):
        monkeypatch.setattr(assemble, "_LARGE", least)
        monkeypatch.setattr(local, "processors", lambda many=processors: many)
        open_capture(large)
    assert started == [2, 4, 3]


@pytest.mark.parametrize("change", [b"a line more\n", None], ids=["grows", "is cut short"])
def test_a_file_that_changes_while_it_is_read_is_read_again_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: bytes | None
) -> None:
    path = tmp_path / "request-trace.jsonl"
    path.write_bytes(jsonl(rows(40)))

    class Meanwhile(Here):
        def do(self, tasks: Sequence[local.Task]) -> list[Any]:
            *first, last = tasks
            found = super().do(first)
            path.write_bytes(path.read_bytes() + change if change else jsonl(rows(3)))
            return [*found, *super().do([last])]

    monkeypatch.setattr(local, "Crew", Meanwhile)
    monkeypatch.setattr(assemble, "_LARGE", 0)
    monkeypatch.setattr(local, "processors", lambda: 2)
    found = open_capture(path)
    monkeypatch.setattr(assemble, "_LARGE", 1 << 60)
    now = open_capture(path)
    assert found.requests.equals(now.requests)
    assert (found.sources, found.findings) == (now.sources, now.findings)


def test_the_digest_of_a_whole_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "large"
    for size in (0, 1, 1 << 20, (1 << 20) + 1):
        path.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
        assert pieces.digest(str(path)) == blake3(path.read_bytes()).hexdigest()


KILLED = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from pytest_rlserve.engine import local
from pytest_rlserve.readers import pieces
def half(task):
    with open(task["spill"] + "/requests.arrow", "wb") as file:
        file.write(b"ARROW1")
    os.kill(os.getpid(), 9)
pieces.read_piece = half
local.serve()
"""


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed"])
def test_what_a_helper_reads_or_leaves_half_read_is_there_once(
    large: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    alone = open_capture(large)
    if killed:
        monkeypatch.setattr(local, "_CHILD", KILLED)
    read, mine = pieces.read_piece, set[Path]()

    def after_the_helper(task: dict[str, Any]) -> dict[str, Any]:
        spill = Path(task["spill"])
        mine.add(spill)
        for _ in range(1200):
            if any(place.parent not in mine for place in spill.parent.glob("*/*.arrow")) or len(mine) > 1:
                return read(task)
            time.sleep(0.05)
        raise TimeoutError

    monkeypatch.setattr(pieces, "read_piece", after_the_helper)
    found = open_capture(large)
    assert (len(mine) == 16) is killed
    assert found.requests.equals(alone.requests)
    assert (found.sources, found.findings) == (alone.sources, alone.findings)


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_a_file_is_cut_into_as_many_pieces_as_are_asked_for(tmp_path: Path, count: int) -> None:
    path = tmp_path / "request-trace.jsonl"
    path.write_bytes(bytes(100))
    (some,) = whole.planned_pieces([File(path, path.name)], count, None)
    assert len(some) == count
    assert [piece.end for piece in some[:-1]] == [piece.start for piece in some[1:]]
    assert (some[0].start, some[-1].end) == (0, 100)


def test_tables_outlive_the_folder_they_were_mapped_from(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = tempfile.TemporaryDirectory

    def noted(**more: Any) -> Any:
        made.append((folder := real(**more)).name)
        return folder

    monkeypatch.setattr(tempfile, "TemporaryDirectory", noted)
    found = open_capture(large)
    assert made
    assert not any(Path(name).exists() for name in made)
    assert found.requests["line"].to_pylist() == [*range(1, 31)] * 2


def test_what_a_process_could_not_do_is_done_here(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_CHILD", "import os; os.kill(os.getpid(), 9)")
    found = open_capture(large)
    assert (found.requests.num_rows, found.findings) == (60, ())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_folder_for_temporary_files_is_named(
    large: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local, "processors", lambda: processes)
    monkeypatch.setattr(local, "Crew", Here)
    monkeypatch.setattr(pa, "OSFile", full)
    where = tempfile.gettempdir()
    with pytest.raises(UsageError, match=f"^{where} has no room .*: set TMPDIR to a folder that has$"):
        open_capture(large)


@pytest.mark.parametrize("least", [0, 1 << 60])
def test_a_disk_that_fails_while_it_is_read_is_no_traceback(
    large: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    def failing(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(assemble, "_LARGE", least)
    monkeypatch.setattr(local, "Crew", Here)
    monkeypatch.setattr(reading.Part, "readinto", failing)
    with pytest.raises(UsageError, match=r"^capture cannot be read: Input/output error$"):
        open_capture(large)


def test_a_cut_shard_is_told_with_its_member_as_in_one_go(large: Path) -> None:
    shard = large / "request-trace.000001.jsonl.gz"
    shard.write_bytes(shard.read_bytes()[:-10])
    (finding,) = open_capture(large).findings
    assert "truncated inside gzip member 30" in finding.message
