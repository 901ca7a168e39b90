"""From bytes to lines: what ends a line, what a gzip file may look like, and how its troubles are told."""

from __future__ import annotations

import gzip
import hashlib
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3
from hand_made import members

from pytest_rlserve.readers import lines as module
from pytest_rlserve.readers.lines import Lines

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.jsonl.gz"


def read(file: Path, content: bytes) -> tuple[list[tuple[int, bytes]], str | None]:
    file.write_bytes(content)
    lines = Lines(file)
    found = list(lines)
    assert lines.digest == blake3(content).hexdigest()
    return found, lines.trouble


def test_only_a_line_feed_ends_a_line(file: Path) -> None:
    inside = "a\u2028b\u2029c\u0085d\fe\vf\rg".encode()
    assert read(file, inside + b"\nh\n") == ([(1, inside), (2, b"h")], None)


def test_blank_lines_are_numbered_but_not_returned(file: Path) -> None:
    assert read(file, b"\n\r\n  \t\na\r\n\n b \nc") == ([(4, b"a"), (6, b"b"), (7, b"c")], None)


def test_a_file_without_a_byte_has_no_line(file: Path) -> None:
    assert read(file, b"") == ([], None)


def test_a_byte_order_mark_is_taken_off_line_1_only(file: Path) -> None:
    bom = b"\xef\xbb\xbf"
    assert read(file, bom + b"a\n" + bom + b"b\n") == ([(1, b"a"), (2, bom + b"b")], None)


def test_a_byte_order_mark_may_be_cut_by_gzip_members(file: Path) -> None:
    assert read(file, members(b"\xef", b"\xbb\xbfa\nb")) == ([(1, b"a"), (2, b"b")], None)


def test_all_members_are_read_and_a_line_may_cross_them(file: Path) -> None:
    assert read(file, members(b"a\nb", b"", b"c\n", b"d\n")) == ([(1, b"a"), (2, b"bc"), (3, b"d")], None)


def test_the_content_tells_gzip_from_plain_not_the_name(tmp_path: Path) -> None:
    assert read(tmp_path / "x.jsonl", members(b"a\n")) == ([(1, b"a")], None)
    assert read(tmp_path / "x.jsonl.gz", b"a\n") == ([(1, b"a")], None)


@pytest.mark.parametrize("chunk", [2, 3, 7, 64])
def test_lines_do_not_depend_on_how_much_is_read_at_a_time(
    file: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"\xef\xbb\xbfone\r\n\ntwo\n" + b"x" * 100 + b"\nlast"
    expected = [(1, b"one"), (3, b"two"), (4, b"x" * 100), (5, b"last")]
    monkeypatch.setattr(module, "_BLOCK", chunk)
    assert read(file, members(content[:5], b"", content[5:40], content[40:])) == (expected, None)
    assert read(file, content) == (expected, None)


@pytest.mark.parametrize("size", [1000, 30_000, 1 << 20])
def test_what_was_given_out_before_the_trouble_is_not_given_again(
    file: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", size)
    monkeypatch.setattr(module, "_CHUNK", 777)
    some = [hashlib.sha256(bytes([i % 256, i // 256])).hexdigest().encode() for i in range(2000)]
    text = b"\n".join(some) + b"\n"
    found, trouble = read(file, members(text[:50_000], text[50_000:]) + members(text)[:-9])
    assert [line for _, line in found][:2000] == some
    assert [line for _, line in found][2000:] == some[: len(found) - 2000]
    assert len(found) > 3000
    assert trouble is not None
    assert trouble.startswith("is truncated inside gzip member 3")


@pytest.mark.parametrize("cut", ["header", "data", "checksum"])
def test_a_cut_member_gives_its_whole_lines_and_the_member_is_named(file: Path, cut: str) -> None:
    noise = b"".join(hashlib.sha256(bytes([i])).hexdigest().encode() + b"\n" for i in range(50))
    first, second = members(b"a\n"), members(noise)
    kept = {"header": 5, "data": len(second) * 2 // 3, "checksum": len(second) - 4}[cut]
    found, trouble = read(file, first + second[:kept])
    assert trouble is not None
    assert "truncated inside gzip member 2" in trouble
    written = [b"a", *noise.splitlines()]
    assert [line for _, line in found] == written[: len(found)]
    assert len(found) == {"header": 1, "checksum": 51}.get(cut, len(found)) < 52


def test_a_line_that_the_cut_leaves_unfinished_is_not_a_line(file: Path) -> None:
    found, trouble = read(file, members(b"a\nhalf")[:-4])
    assert found == [(1, b"a")]
    assert trouble is not None
    assert "line 2 is incomplete and was not read" in trouble


@pytest.mark.parametrize("place", [-1, -6, 20])
def test_a_changed_byte_is_damage(file: Path, place: int) -> None:
    content = bytearray(members(b"a\n", b"bcd\nefg\n" * 9)[len(members(b"a\n")) :])
    content[place] ^= 0x55
    found, trouble = read(file, members(b"a\n") + bytes(content))
    assert found[0] == (1, b"a")
    assert trouble is not None
    assert "damaged inside gzip member 2" in trouble


def test_bytes_after_a_member_that_are_not_gzip_are_told(file: Path) -> None:
    found, trouble = read(file, members(b"a\n") + b"junk")
    assert found == [(1, b"a")]
    assert trouble == "has bytes that are not gzip after member 1"


def test_one_byte_of_a_next_member_is_told_too(file: Path) -> None:
    found, trouble = read(file, members(b"a\n") + b"\x1f")
    assert found == [(1, b"a")]
    assert trouble is not None


def test_padding_with_zeros_after_a_member_is_harmless(file: Path) -> None:
    assert read(file, members(b"a\n") + b"\0" * 512) == ([(1, b"a")], None)


def test_a_git_lfs_pointer_is_no_line(file: Path) -> None:
    found, trouble = read(file, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert found == []
    assert trouble is not None
    assert "Git LFS pointer" in trouble


def test_a_member_larger_than_the_buffer_is_whole(file: Path) -> None:
    line = b"x" * (3 << 20)
    assert read(file, gzip.compress(line + b"\n" + line, 1)) == ([(1, line), (2, line)], None)


@pytest.mark.parametrize("size", [1, 3])
def test_a_line_that_no_memory_would_hold_is_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "_BLOCK", size)
    monkeypatch.setattr(module, "LONGEST", 10)
    assert read(file, members(b"a" * 10 + b"\nb\n" + b"c" * 10)) == ([(1, b"a" * 10), (2, b"b"), (3, b"c" * 10)], None)
    for end in (b"", b"\n", b"\nd\n"):
        found, trouble = read(file, members(b"a\nb\n" + b"c" * 11 + end))
        assert found == [(1, b"a"), (2, b"b")]
        assert trouble is not None
        assert "a line of more than 10 bytes" in trouble
        assert "line 3 is incomplete and was not read" in trouble
