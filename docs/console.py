"""Run what the documentation shows: `python docs/console.py [--update] [PAGE…]`.

The blocks of a page are taken in order, in a scratch copy of the checkout's examples, baselines, policy and captures:

- ```` ```console ````: bash runs each line that begins with "$ "; what follows must be what comes out, with "..."
  for lines left out.
- a block of any other kind that begins with a comment naming a file, such as "# test_serving.py", is written there.

All other blocks are only to be read: what installs, serves or pushes stands in ```` ```bash ````. With `--update` a
page is rewritten with what came out; between two "..." it keeps what lies between the first and the last line shown.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELLIPSIS = "..."
_FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (?P<name>[\w./-]+\.(?:py|toml|ini))")
_TIMES = re.compile(r"in \d+\.\d\ds( \(\d+:\d\d:\d\d\))?")
_SECONDS = 120
# The test extra's other plugins show nothing here, and take as long to load as all the rest.
_WITHOUT = " ".join(f"-p no:{name}" for name in ("benchmark", "datadir", "hypothesispytest", "regressions", "xdist"))


@dataclass(slots=True)
class Command:
    """A command of a page, with the output it shows and the output it had."""

    text: str
    line: int
    shown: list[str]
    actual: list[str]

    @property
    def holds(self) -> bool:
        """Tell whether what is shown is what came out."""
        lines = [r"(?:.*\n)*?" if one == ELLIPSIS else re.escape(f"{one}\n") for one in _plain(self.shown)]
        return bool(re.fullmatch("".join(lines), "".join(f"{one}\n" for one in _plain(self.actual))))


def run(page: Path, rewrite: list[str] | None = None) -> Iterator[Command]:
    """Run a page's blocks and yield its commands; its text with what came out is put into `rewrite`."""
    text = page.read_text(encoding="utf-8")
    done, position = [], 0
    with tempfile.TemporaryDirectory(prefix="rlserve-docs-") as scratch:
        shell = _Shell(Path(scratch))
        for fence in _FENCE.finditer(text):
            body = fence["body"]
            named = _FILE.fullmatch(body.partition("\n")[0])
            if fence["kind"] == "console":
                new = []
                for command in _commands(body, 2 + text.count("\n", 0, fence.start())):
                    command.actual = shell.run(command.text)
                    new += ["$ " + command.text.replace("\n", "\n> "), *_refreshed(command)]
                    yield command
                done += [text[position : fence.start("body")], *(f"{line}\n" for line in new)]
                position = fence.end("body")
            elif named:
                target = shell.here / named["name"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(body, encoding="utf-8")
    if rewrite is not None:
        rewrite.append("".join([*done, text[position:]]))


class _Shell:
    """Runs commands one after another, as if they were typed into one shell inside a fresh clone."""

    def __init__(self, scratch: Path) -> None:
        self.here = scratch / "pytest-rlserve"
        (self.here / "tests" / "data").mkdir(parents=True)
        for name in ("examples", "baselines"):
            shutil.copytree(ROOT / name, self.here / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", self.here)
        (self.here / "tests" / "data" / "captures").symlink_to(ROOT / "tests" / "data" / "captures")
        self._status = 0
        self._place = scratch / "pwd"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI", "GITHUB"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', '')}"
        shown = {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "PY_COLORS": "0"}
        self._environment = {**clean, "PATH": path, **shown, "PYTEST_ADDOPTS": _WITHOUT}

    def run(self, command: str) -> list[str]:
        script = f'(exit {self._status})\n{command}\nstatus=$?; pwd > "{self._place}"; exit $status'
        done = subprocess.run(
            ["bash", "-c", script],
            check=False,
            cwd=self.here,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=_SECONDS,
        )
        self._status = done.returncode
        if self._place.exists():
            self.here = Path(self._place.read_text().rstrip("\n"))
        return [line.rstrip() for line in done.stdout.rstrip().split("\n")] if done.stdout.strip() else []


def difference(command: Command) -> str:
    """Return what would have to change on the page, as a diff."""
    lines = difflib.unified_diff(command.shown, _refreshed(command), "shown", "came out", lineterm="")
    return "\n".join(lines)


def _commands(body: str, line: int) -> Iterator[Command]:
    """Take a block apart; `line` is the page's line on which it begins."""
    found: Command | None = None
    for number, row in enumerate(body.splitlines(), line):
        if row.startswith("$ "):
            if found:
                yield found
            found = Command(row[2:], number, [], [])
        elif found and row.startswith("> ") and not found.shown:
            found.text += f"\n{row[2:]}"
        elif found:
            found.shown.append(row)
    if found:
        yield found


def _plain(lines: list[str]) -> list[str]:
    """Take out what differs between two runs: times, and the rules that fill their line."""
    return [_TIMES.sub("in 0.00s", line).strip("= ") if _TIMES.search(line) else line for line in lines]


def _refreshed(command: Command) -> list[str]:
    """Return what to show: all that came out, or what lies between the nearest to the lines shown before."""
    if command.holds:
        return command.shown
    if ELLIPSIS not in command.shown:
        return command.actual
    new: list[str] = []
    piece: list[str] = []
    rest = command.actual
    for line in [*command.shown, None]:
        if line not in (ELLIPSIS, None):
            piece.append(line)
            continue
        if piece:
            start = _nearest(piece[0], rest)
            end = start + _nearest(piece[-1], rest[start:]) if len(piece) > 1 else start
            new, rest, piece = [*new, *rest[start : end + 1]], rest[end + 1 :], []
        if line:
            new.append(line)
    return new


def _nearest(line: str, lines: list[str]) -> int:
    likeness = [difflib.SequenceMatcher(None, line, one).ratio() for one in lines]
    return likeness.index(max(likeness)) if likeness else 0


def main() -> int:
    """Check or update the pages named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="rewrite the pages with what came out")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    status = 0
    for page in arguments.pages or PAGES:
        rewrite: list[str] = []
        crashed = False
        for command in run(page, rewrite):
            crashed |= any("Traceback (most recent call last)" in line for line in command.actual)
            if not command.holds:
                status = 1
                print(f"{page.name}:{command.line}: $ {command.text}")
                print(difference(command))
        if arguments.update and crashed:
            print(f"{page.name} left as it is: a command crashed")
            return 1
        if arguments.update and rewrite[0] != page.read_text(encoding="utf-8"):
            page.write_text(rewrite[0], encoding="utf-8")
            print(f"{page.name} rewritten")
    return 0 if arguments.update else status


if __name__ == "__main__":
    sys.exit(main())
