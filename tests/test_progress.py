"""Progress shows on a terminal that somebody watches, after two seconds, and nowhere else."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hand_made import request_end, write

from pytest_rlserve.cli import main
from pytest_rlserve.engine import progress
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def meter(*instants: float) -> progress.Meter:
    """A meter whose clock shows these instants, one after another."""
    return progress.Meter(Terminal(), iter(instants).__next__)


def shown(some: progress.Meter) -> str:
    stream = some._stream
    assert isinstance(stream, Terminal)
    return stream.getvalue()


def test_rows_bytes_rate_and_time_left_are_shown() -> None:
    some = meter(0, 4)
    some.total = 1_200_000_000
    some.advance(400_000_000, 1234567)
    assert shown(some) == "\rreading: 1,234,567 rows, 400.0 MB of 1.2 GB, 100.0 MB/s, 8 s left"


def test_nothing_is_shown_in_the_first_two_seconds() -> None:
    some = meter(0, 1, 1.9)
    some.advance(10, 1)
    some.advance(10, 1)
    some.close()
    assert shown(some) == ""


def test_the_line_is_renewed_five_times_a_second_and_removed_in_the_end() -> None:
    some = meter(0, 2, 2.1, 2.2)
    for _ in range(3):
        some.advance(10, 1)
    assert shown(some).count("\r") == 2
    some.close()
    assert shown(some).rpartition("\r")[0].rpartition("\r")[2].strip() == ""


def seen(folder: Path, stream: io.StringIO, *, quiet: bool = False) -> str:
    with progress.shown(stream, quiet=quiet):
        open_capture(folder)
    return stream.getvalue()


def test_reading_a_capture_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    folder = write(tmp_path / "capture", rows=[request_end("r")])
    monkeypatch.setattr(progress, "_PAUSE", 0)
    size = (folder / "request-trace.jsonl").stat().st_size
    assert f"reading: 1 rows, {size} B of {size} B" in seen(folder, Terminal())
    assert seen(folder, io.StringIO()) == ""
    assert seen(folder, Terminal(), quiet=True) == ""
    monkeypatch.setenv("CI", "true")
    assert seen(folder, Terminal()) == ""


@pytest.mark.parametrize(("flags", "visible"), [([], True), (["-q"], False)])
def test_a_run_of_pytest_shows_it_on_its_terminal(tmp_path: Path, flags: list[str], visible: bool) -> None:
    folder = write(tmp_path / "capture", rows=[request_end("r")])
    (tmp_path / "conftest.py").write_text("from pytest_rlserve.engine import progress\nprogress._PATIENCE = 0\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rl-trace={folder}", *flags]
    assert (b"reading: " in on_a_terminal(command, tmp_path)) is visible


@pytest.mark.parametrize(("ci", "visible"), [("", True), ("true", False)])
def test_the_command_line_shows_it_on_its_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, visible: bool
) -> None:
    folder = write(tmp_path / "capture", rows=[request_end("r")])
    impatient = "from pytest_rlserve.engine import progress; progress._PATIENCE = 0"
    program = f"{impatient}; from pytest_rlserve.cli import main; main(['check', {str(folder)!r}])"
    monkeypatch.setenv("CI", ci)
    assert (b"reading: " in on_a_terminal([sys.executable, "-c", program], tmp_path)) is visible


def test_rows_of_pieces_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "capture", rows=[request_end(f"r{number}") for number in range(100)])
    monkeypatch.setattr("pytest_rlserve.readers.assemble._LARGE", 0)
    monkeypatch.setattr("pytest_rlserve.engine.local.processors", lambda: 2)
    counted = []
    progress.report_to(lambda size, rows: counted.append((size, rows)))
    open_capture(folder)
    progress.report_to(None)
    assert tuple(map(sum, zip(*counted, strict=True))) == ((folder / "request-trace.jsonl").stat().st_size, 100)


def on_a_terminal(command: list[str], folder: Path) -> bytes:
    """Return what a command writes to its terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, stdin=theirs) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # the other side is closed
                break
            if not chunk:
                break
            text += chunk
        process.wait()
    os.close(ours)
    return text


def test_no_terminal_no_progress(tmp_path: Path) -> None:
    folder = write(tmp_path / "capture", rows=[request_end("r")])
    (tmp_path / "conftest.py").write_text("from pytest_rlserve.engine import progress\nprogress._PATIENCE = 0\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rl-trace={folder}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert b"reading: " not in done.stdout + done.stderr


def test_ctrl_c_ends_a_command_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_rlserve.cli.commands.captures_of", interrupted)
    assert main(["check", "anything"]) == 130
    assert capsys.readouterr().err == "rlserve: interrupted, nothing was judged\n"
