"""Write docs/reference/ from the registries, parsers and schemas: `python docs/generate.py [--check]`.

What the code says of itself is not said a second time by hand. The policy's keys are shown by policy.toml.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schema_fields import fields

from pytest_rlserve import checks, cli, metrics, plugin, reports, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HERE = Path(__file__).parent
_NOTE = "<!-- Written by docs/generate.py: change the code that it reads, or the script. -->"
_RULES = {"fresh": "lag within the policy's `[freshness]`", "kind": "the version that the policy's `kind` names"}
_QUESTIONS = {
    1: "Can this evidence be trusted?",
    2: "Is every attempt accounted for?",
    3: "Did serving do its work well?",
}


def main() -> int:
    """Write the pages, or with --check only tell whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    check = parser.parse_args().check
    stale = 0
    for page in (checks_page, metrics_page, flags_page, formats_page):
        path = HERE / "reference" / f"{page.__name__.removesuffix('_page')}.md"
        text = "\n".join([_NOTE, "", *page()]).rstrip() + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{path.name} {'is out of date: run python docs/generate.py' if check else 'written'}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


# -- checks and metrics -------------------------------------------------------------------------------------------


def checks_page() -> Iterator[str]:
    """Yield the lines of the page on checks, by the question they answer."""
    yield "# Checks"
    yield from _prose("""
        A check states a fact about a capture: it holds, it does not, or it cannot be told. It names what it found
        with `file:line` and says how much it looked at; with nothing to look at it is inconclusive, never a pass.
        `rlserve check CAPTURE --only=NAME` runs one by itself.""")
    for number, question in _QUESTIONS.items():
        found = [one for one in checks.CHECKS.values() if one.question == number and _own(one.func)]
        if found:
            yield from ("", f"## {number}. {question}")
        if found and number == 1:
            yield from _prose("Where one of these does not hold, nothing else is judged.")
        for one in found:
            yield from ("", f"### `{one.name}`", "", one.doc)
            if not one.default:
                yield from _prose(f'Runs only where the policy asks for it: `also = ["{one.name}"]` in `[evidence]`.')


def metrics_page() -> Iterator[str]:
    """Yield the lines of the page on metrics, family by family."""
    yield "# Metrics"
    yield from _prose("""
        A metric is a number with its definition. Numerator, denominator, freshness and phase are stored with every
        baseline, and numbers with different definitions are not compared. What a capture does not hold is “not
        observable”, with the reason; it is never 0.""")
    yield from _prose("""
        A metric of many values is asked for by a statistic: `ttft.p95`. There are `p50`, `p90`, `p95`, `p99`, `mean`
        and `max`; p90 needs 100 values, p95 needs 200, p99 needs 1,000. The bare name means the first that is
        reported. A rate per GPU is `accepted_trajectory_throughput.per_gpu`, where the manifest gives `gpus`.""")
    families: dict[str, list[metrics.Metric]] = {}
    for one in metrics.METRICS.values():
        if _own(one.func):
            families.setdefault(one.func.__module__, []).append(one)
    for module, found in sorted(families.items()):
        title, _, more = (sys.modules[module].__doc__ or module).partition("\n")
        yield from ("", f"## {title.rstrip('.')}", *([more.rstrip()] if more.strip() else []))
        for one in found:
            yield from ("", f"### `{one.name}`", "", one.doc, "", *_definition(one))


def _definition(one: metrics.Metric) -> Iterator[str]:
    unit = f"{one.unit}; {one.better} is better"
    reported = f"; reported as {', '.join(one.statistics)}" if one.statistics else ""
    yield from _table(
        ("unit", f"{unit}{reported}"),
        [
            ("numerator", one.numerator),
            ("denominator", one.denominator),
            ("freshness", one.freshness.format(**_RULES)),
            ("phase", one.phase),
            ("needs", ", ".join(f"`{name}`" for name in sorted(one.needs))),
        ],
    )


def _own(func: Callable[..., Any]) -> bool:
    """Tell whether this project registered it, and not a conftest.py or another distribution."""
    return func.__module__.startswith("pytest_rlserve.")


# -- flags, settings, commands ------------------------------------------------------------------------------------


class _Options:
    """Stands for pytest's parser and keeps what the plugin adds to it."""

    def __init__(self) -> None:
        self.flags: list[tuple[str, str]] = []
        self.settings: list[tuple[str, str, str]] = []

    def getgroup(self, *_: object) -> _Options:
        return self

    def addoption(self, name: str, *, help: str, **more: Any) -> None:
        value = more.get("metavar") or "|".join(more.get("choices", ()))
        self.flags.append((_flag(name, value), _sentence(help % {"default": more.get("default")})))

    def addini(self, name: str, help: str, *, type: str, **_: Any) -> None:
        self.settings.append((f"`{name}`", type, _sentence(help)))


def flags_page() -> Iterator[str]:
    """Yield the lines of the page on what a user can type."""
    options = _Options()
    plugin.pytest_addoption(options)  # type: ignore[arg-type]
    yield from ("# Flags, settings, commands", "", "## pytest", "", *_table(("flag", "meaning"), options.flags))
    yield from _prose("""
        Flags with a value are written with `=`. `--rl-trace PATH`, with a space, is refused (exit 4), and so is
        `-rl-trace=PATH`, with one dash: pytest would take the first for a folder of tests and the second for its own
        `-r`, and the run would go green without a capture.""")
    yield from ("", "## pytest configuration")
    yield from _prose("""
        In `pytest.ini`, or in `[tool.pytest.ini_options]` of `pyproject.toml`. Paths count from that file. A flag
        goes before a setting.""")
    yield from ("", *_table(("setting", "type", "meaning"), options.settings))
    yield from ("", "## Policy file")
    yield from _prose("""
        The file that `--rl-policy` names, else `rlserve.toml` in pytest's root directory, else `[tool.rlserve]` in
        the `pyproject.toml` there, else the defaults; never one inside a capture. `rlserve init CAPTURE` writes one
        to begin with.""")
    yield from ("", "```toml", (HERE / "policy.toml").read_text(encoding="utf-8").rstrip(), "```")
    yield from _commands()


def _commands() -> Iterator[str]:
    yield from ("", "## rlserve")
    yield from _prose("""
        The same core for a shell without pytest. Exit status: 0 good, 1 bad, 2 wrong use. Without `--policy`,
        `rlserve.toml` of the current folder counts, else `[tool.rlserve]` of the `pyproject.toml` there, else the
        defaults.""")
    for words, command in _leaves("rlserve", cli._parser()):
        options = [one for one in command._actions if not isinstance(one, argparse._HelpAction)]
        places = [f"{one.metavar}{'…' * (one.nargs == '+')}" for one in options if not one.option_strings]
        flags = [
            (_flag(one.option_strings[0], one.metavar), _sentence(str(one.help) % {"default": one.default}))
            for one in options
            if one.option_strings
        ]
        yield from ("", f"### `{' '.join([words, *places])}`", *_prose(command.description or ""))
        yield from ("", *_table(("flag", "meaning"), flags)) if flags else ()


def _leaves(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands that do something, each with the words that call it."""
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    for group in groups:
        for name, inner in group.choices.items():
            yield from _leaves(f"{words} {name}", inner)
    if not groups:
        yield words, parser


def _flag(name: str, metavar: object) -> str:
    return f"`{name}={metavar}`" if metavar else f"`{name}`"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


# -- formats ------------------------------------------------------------------------------------------------------


def formats_page() -> Iterator[str]:
    """Yield the lines of the page on formats, schema by schema."""
    yield "# Formats"
    names = ", ".join(f"`{name}`" for name in reports.REPORTS)
    yield from _prose(f"""
        Each format is a JSON Schema (2020-12) in `schemas/`, shipped in the wheel as `pytest_rlserve/schemas`; every
        row is held against it. Files of rows are named `*.jsonl` or `*.ndjson`, with or without `.gz`; they may be
        gzip, of one member or of many, and a line ends at LF only. Reports are written as {names}; of these, `json`
        is a format that is kept stable. Fields in bold are required.""")
    for path in sorted(Path(str(schema.ROOT)).glob("*.json")):
        document = schema.load(path.stem)
        yield from ("", f"## `{path.stem}`", *_prose(f"{document['title']}. {document['description']}"), "")
        yield from _table(("field", "type", "meaning"), fields(document))
        if len(example := json.dumps(document["examples"][0])) < 1200:
            yield from ("", "```json", example, "```")


# -- Markdown -----------------------------------------------------------------------------------------------------


def _prose(text: str) -> list[str]:
    """Return a paragraph, with the empty line before it."""
    return ["", *textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
