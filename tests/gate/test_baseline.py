"""Baseline files: byte-stable, one value a line, refused in one line unless whole and untouched."""

from __future__ import annotations

import copy
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from gate.documents import RATE, baseline, document, sealed
from pytest_rlserve.errors import BaselineError, UsageError
from pytest_rlserve.gate import baseline as store

if TYPE_CHECKING:
    from pathlib import Path

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 5031\n"
THREE = {"a": [10.0], "b": [10.1], "c": [9.9]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "baselines" / "s.json"


@pytest.fixture
def stored(path: Path) -> Path:
    """A good baseline file of two levels."""
    store.write(path, document(THREE, {"d": [8.0], "e": [8.1]}, moved=[-0.2], carried=(0.0001, 2.0)))
    return path


# -- the form -------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_again(stored: Path) -> None:
    found = store.read(stored)
    assert found is not None
    assert found.document == document(THREE, {"d": [8.0], "e": [8.1]}, moved=[-0.2], carried=(0.0001, 2.0))
    assert found.values(RATE) == {"d": [8.0], "e": [8.1]}
    assert found.carried(RATE) == (0.0001, 2.0)
    assert found.carried("ttft.p95") == (0.0, 0.0)


def test_no_file_is_no_baseline(path: Path) -> None:
    assert store.read(path) is None


def test_the_same_document_gives_the_same_bytes_whatever_the_order_of_its_keys(path: Path, tmp_path: Path) -> None:
    def turned(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: turned(node[key]) for key in reversed(list(node))}
        return [turned(one) for one in node] if isinstance(node, list) else node

    some = document(THREE)
    other = tmp_path / "other" / "s.json"
    store.write(path, some)
    store.write(other, turned(some))
    assert path.read_bytes() == other.read_bytes()


def test_every_line_holds_one_value_at_most(stored: Path) -> None:
    lines = stored.read_text().splitlines()
    assert all(line.count('": ') <= 1 and line.count(",") <= 1 for line in lines)
    values = [line for line in lines if line.rstrip(",")[-1] not in "{[}]"]
    assert sum(f'"{RATE}"' in line for line in lines) >= 5
    assert len(values) > 5 * 6  # capture, name, job, commit, time, value, n … of each of five runs


def test_a_new_value_changes_its_line_and_the_digest(path: Path) -> None:
    some = document(THREE)
    store.write(path, some)
    before = path.read_text().splitlines()
    some["levels"][0]["runs"][1]["measurements"][RATE]["value"] = 10.125
    store.write(path, some)
    after = path.read_text().splitlines()
    differ = [(a, b) for a, b in zip(before, after, strict=True) if a != b and '"digest"' not in a]
    assert differ == [('       "value": 10.1', '       "value": 10.125')]


def test_names_of_any_script_are_written_in_ascii(path: Path) -> None:
    some = document(THREE)
    some["levels"][0]["runs"][0]["name"] = "läufe/夜"
    store.write(path, some)
    assert path.read_bytes().isascii() and path.read_bytes().endswith(b"}\n")
    found = store.read(path)
    assert found is not None and found.document == some


def test_what_is_already_there_is_not_written_again(stored: Path) -> None:
    found = store.read(stored)
    assert found is not None
    before = stored.stat()
    assert store.write(stored, found.document) is False
    assert (stored.stat().st_mtime_ns, stored.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_document_that_does_not_fit_its_schema_is_never_written(path: Path) -> None:
    some = document(THREE)
    del some["levels"][0]["runs"][0]["job"]
    with pytest.raises(AssertionError, match="job"):
        store.write(path, some)
    assert not path.exists()


# -- refused ---------------------------------------------------------------------------------------------------------


def text(change: str = "", *, of: dict[str, Any] | None = None) -> bytes:
    whole = sealed(of or document(THREE)).decode()
    return whole.replace("9.9", change, 1).encode() if change else whole.encode()


def changed(**top: Any) -> bytes:
    return text(of={**document(THREE), **top})


def twice() -> bytes:
    return text().replace(b' "series": "s"', b' "series": "s",\n "series": "t"')


def text_for_a_number() -> bytes:
    some = document(THREE)
    some["levels"][0]["runs"][0]["measurements"][RATE]["value"] = "10.0"
    return text(of=some)


def merged() -> bytes:
    """Two branches that each added a run, merged line by line without a conflict: the order is not the tool's."""
    some = document({"a": [10.0], "b": [10.1]})
    lines = text(of=some).decode().splitlines()
    start = next(n for n, line in enumerate(lines) if '"job": "b"' in line)
    lines[start - 1], lines[start] = lines[start], lines[start - 1]
    return ("\n".join(lines) + "\n").encode()


def merged_cleanly() -> bytes:
    """One branch appended a run, another renewed a value: each file is whole, and the lines of both fit together."""
    ours = document({"a": [10.0], "b": [10.1], "c": [9.9]})
    theirs = document({"a": [10.0], "b": [10.1]})
    theirs["levels"][0]["runs"][0]["measurements"][RATE]["value"] = 10.4
    both = copy.deepcopy(ours)
    both["levels"][0]["runs"][0] = theirs["levels"][0]["runs"][0]
    digest = json.loads(sealed(ours))["digest"]
    return json.dumps({**both, "digest": digest}, indent=1, sort_keys=True).encode() + b"\n"


BROKEN = {
    "lfs pointer": (LFS, "Git LFS pointer"),
    "merge conflict": (b"{\n<<<<<<< HEAD\n 1\n=======\n 2\n>>>>>>> topic\n}\n", "marks of a merge conflict"),
    "line-merged": (merged(), "edited or merged by hand"),
    "a value edited by hand": (text().replace(b'"value": 10.0', b'"value": 10.5'), "edited or merged by hand"),
    "two good files merged without a conflict": (merged_cleanly(), "edited or merged by hand"),
    "no digest": (text().replace(b'"digest": "', b'"digested": "'), "digest is missing"),
    "edited by hand": (text().replace(b'"value": 10.0', b'"value": 10.00'), "edited or merged by hand"),
    "reindented": (
        json.dumps(json.loads(text()), indent=2, sort_keys=True).encode() + b"\n",
        "edited or merged by hand",
    ),
    "crlf": (text().replace(b"\n", b"\r\n"), "edited or merged by hand"),
    "no newline at the end": (text()[:-1], "edited or merged by hand"),
    "truncated": (text()[:-200], "not whole JSON"),
    "empty": (b"", "not whole JSON"),
    "blank": (b"\n", "not whole JSON"),
    "nan": (text("NaN"), "NaN is not a finite number"),
    "infinity": (text("-Infinity"), "-Infinity is not a finite number"),
    "number beyond all bounds": (text("1e999"), "is inf"),
    "key twice": (twice(), "a key stands twice"),
    "other version": (
        changed(schema="rlserve.baseline.v2"),
        "written as 'rlserve.baseline.v2', and this version reads 'rlserve.baseline.v1'",
    ),
    "another version of another shape": (b'{"schema": "rlserve.baseline.v3", "runs": []}\n', "'rlserve.baseline.v3'"),
    "another kind of file": (b'{"schema": "rlserve.report.v1"}\n', "written as 'rlserve.report.v1'"),
    "no version": (b'{"levels": []}\n', "is missing"),
    "no levels": (changed(levels=[]), "levels"),
    "unknown key": (changed(note="mine"), "note"),
    "list": (b"[1, 2]\n", "object"),
    "null": (b"null\n", "object"),
    "text for a number": (text_for_a_number(), "value"),
    "not utf-8": (b"\xff\xfe{}", "not whole JSON"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_file_is_refused_by_name_with_the_reason_and_left_alone(path: Path, broken: str) -> None:
    data, reason = BROKEN[broken]
    path.parent.mkdir()
    path.write_bytes(data)
    before = path.stat()
    with pytest.raises(BaselineError) as caught:
        store.read(path)
    first, place, advice = str(caught.value).splitlines()
    assert first.startswith("baseline s.json cannot be read: ") and reason in first
    assert place.strip() == str(path)
    assert "restore it from version control" in advice
    assert path.read_bytes() == data
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize("broken", BROKEN)
def test_no_reason_quotes_what_the_file_holds_at_length(path: Path, broken: str) -> None:
    path.parent.mkdir()
    path.write_bytes(BROKEN[broken][0])
    with pytest.raises(BaselineError) as caught:
        store.read(path)
    assert len(str(caught.value).splitlines()[0]) < 400


def test_every_cut_of_a_good_file_is_refused(stored: Path) -> None:
    """Whatever a writer leaves that is killed in the middle, were it to write in place."""
    whole = stored.read_bytes()
    for length in range(0, len(whole), 97):
        stored.write_bytes(whole[:length])
        with pytest.raises(BaselineError):
            store.read(stored)


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(BaselineError, match="cannot be read"):
        store.read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_file_without_permission_is_refused(stored: Path) -> None:
    stored.chmod(0)
    with pytest.raises(BaselineError, match="Permission denied"):
        store.read(stored)


# -- writing --------------------------------------------------------------------------------------------------------


def new_document() -> dict[str, Any]:
    return document({**THREE, "n": [10.2]})


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    stored: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    before = stored.read_bytes()

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises((BaselineError, KeyboardInterrupt)) as caught:
            store.write(stored, new_document())
    assert stored.read_bytes() == before
    assert list(stored.parent.iterdir()) == [stored]
    if isinstance(error, OSError):
        assert str(caught.value) == f"baseline {stored} cannot be written: No space left on device"


def test_the_content_reaches_the_disk_before_the_name_does(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("sync")
        sync(handle)

    def replaced(old: str, new: Path) -> None:
        done.append("replace")
        assert (stored.parent / old).read_bytes() == sealed(new_document())
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    assert store.write(stored, new_document())
    assert done == ["sync", "replace", "sync"]  # the file, its name, and the folder that holds the name


def test_the_file_keeps_its_permissions_and_a_new_one_is_readable_by_all(stored: Path, tmp_path: Path) -> None:
    stored.chmod(0o664)
    store.write(stored, new_document())
    assert stored.stat().st_mode & 0o777 == 0o664
    store.write(tmp_path / "t.json", new_document())
    assert (tmp_path / "t.json").stat().st_mode & 0o777 == 0o644


def test_where_no_folder_can_be_made_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BaselineError, match="cannot be written"):
        store.write(tmp_path / "file" / "s.json", new_document())


def test_litter_of_a_killed_writer_is_no_baseline(path: Path) -> None:
    path.parent.mkdir()
    (path.parent / ".s.k3j2h1.tmp").write_bytes(text())
    assert store.read(path) is None
    assert store.write(path, document(THREE))


def test_litter_of_a_killed_writer_goes_with_the_next_write_and_nothing_else_does(path: Path) -> None:
    path.parent.mkdir()
    for name in (".s.k3j2h1.tmp", ".t.k3j2h1.tmp", "s.tmp", ".s.json.swp"):
        (path.parent / name).write_bytes(b"half")
    assert store.write(path, document(THREE))
    assert sorted(one.name for one in path.parent.iterdir()) == [".s.json.swp", ".t.k3j2h1.tmp", "s.json", "s.tmp"]


# -- two writers ------------------------------------------------------------------------------------------------------


def test_a_file_that_changed_since_it_was_read_is_left_as_it_is(stored: Path) -> None:
    mine = store.read(stored)
    assert mine is not None
    theirs = copy.deepcopy(dict(mine.document))
    theirs["levels"][-1]["reason"] = "theirs"
    assert store.write(stored, theirs, over=mine)
    with pytest.raises(BaselineError) as caught:
        store.write(stored, new_document(), over=mine)
    assert "baseline s.json was changed by another run" in str(caught.value)
    assert "run again" in str(caught.value)
    found = store.read(stored)
    assert found is not None and found.document == theirs


def test_a_file_that_appeared_meanwhile_is_left_as_it_is(path: Path) -> None:
    assert store.write(path, document(THREE), over=None)
    with pytest.raises(BaselineError, match="changed by another run"):
        store.write(path, new_document(), over=None)


def test_a_file_that_vanished_meanwhile_is_not_made_anew(stored: Path) -> None:
    mine = store.read(stored)
    stored.unlink()
    with pytest.raises(BaselineError, match="changed by another run"):
        store.write(stored, new_document(), over=mine)
    assert not stored.exists()


def test_two_that_write_the_same_do_not_quarrel(stored: Path) -> None:
    mine = store.read(stored)
    assert store.write(stored, new_document(), over=mine) is True
    assert store.write(stored, new_document(), over=mine) is False


def test_without_a_word_on_what_was_read_whatever_is_there_is_replaced(stored: Path) -> None:
    stored.write_bytes(LFS)
    assert store.write(stored, new_document())


# -- names and runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("series", ["", ".hidden", "a/b", "..", "a b", "-x", "x" * 101, "é"])
def test_a_series_that_cannot_name_a_file_is_wrong_use(tmp_path: Path, series: str) -> None:
    with pytest.raises(UsageError, match="cannot name a baseline file"):
        store.path_of(tmp_path, series)


def test_a_series_names_its_file(tmp_path: Path) -> None:
    assert store.path_of(tmp_path, "qwen3-0.6b_4w") == tmp_path / "qwen3-0.6b_4w.json"


def test_only_the_newest_level_is_compared_with() -> None:
    found = baseline(THREE, {"d": [8.0]}, moved=[-0.2])
    assert found.values(RATE) == {"d": [8.0]}
    assert found.anchor(RATE) == THREE
