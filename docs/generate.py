"""Write docs/reference/ from the registries, parsers and schemas: `python docs/generate.py [--check]`.

What the code knows of itself is not said twice by hand. Only the policy's keys have their descriptions here, since a
dictionary of types cannot hold them; a key without one stops the generator.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve import checks, cli, metrics, plugin, reports, schema
from pytest_rlserve.gate import policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REFERENCE = Path(__file__).parent / "reference"
_NOTE = "<!-- Written by docs/generate.py; change the code instead. -->"
_QUESTIONS = {
    1: "Can this evidence be trusted?",
    2: "Is every attempt accounted for?",
    3: "Did serving do its work well?",
}
POLICY = {
    "series": "Names the baseline file, `baselines/<series>.json`. Default: the `series` of the captures' `rlserve.json`. "
    'Example: `series = "qwen3-0.6b-4w"`.',
    "primary": "The metric that is judged at full confidence, whatever else is gated. Default: "
    "`accepted_trajectory_throughput`.",
    "no_baseline": '`"fail"` or `"skip"`: what a missing baseline does. Default: fail where `CI` is set, else skip.',
    "freshness": "What “fresh” means in this project.",
    "freshness.kind": '`"start"` (default), `"end"`, `"worst"` or `"token_mean"`: which of an attempt\'s generating '
    "versions its lag is measured from.",
    "freshness.max_lag": "Largest lag, in policy versions, at which an accepted attempt is fresh. Default: 1.",
    "window": "The time that throughput is taken over.",
    "window.skip_steps": "Whole trainer steps left out at the start, e.g. for warm-up. Default: 0.",
    "kv": "KV reuse.",
    "kv.after_reset": 'Time left out of reuse after each cache reset, shown where it was. Default: `"0s"`.',
    "updates": "Weight updates.",
    "updates.in_flight": '`"drain"` (default) or `"keep"`: whether requests may run through an update.',
    "metrics": "Metrics compared with the baseline, a table each: "
    '`[metrics.accepted_trajectory_throughput]` with `regression = "5%"`, the change that is allowed. The primary is '
    "always among them. Naming any replaces the default, which is the primary at 5 % and `update_downtime` at 20 %.",
    "limits": 'Absolute limits, whatever the baseline says: `"ttft.p95" = "<= 120ms"`, `"kv_reuse_fraction" = ">= 55%"`. '
    "Limits on `ttft`, `itl` and `request_latency` are also the budgets of `served_within_budget_fraction`.",
    "evidence": "How much may be missing before a check fails.",
    "evidence.open_attempts": "Attempts that may be open at the end: a number, or a fraction of those dispatched if "
    "below 1. Default: 0.",
    "evidence.rows_joined": "Smallest share of rows that must have an attempt. Default: 0.999.",
    "evidence.traceable_served": "Smallest share of completed, traceable requests that must have a row. Default: 0.999.",
    "evidence.also": 'Checks to run beside the default ones: `also = ["replay_ready"]`.',
    "waivers": "`[[waivers]]`: known problems, each with `metric`, `until` (a date, the last day it holds), `owner` and "
    "`reason`. All four are needed. A waived failure is shown as xfailed; after its date it fails again.",
}
"""Policy key → what it means. Keys that this version does not know yet are left out of the page."""


def main() -> int:
    """Write the pages, or with --check only tell whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    check = parser.parse_args().check
    stale = 0
    for name, lines in pages().items():
        path, text = REFERENCE / f"{name}.md", "\n".join([_NOTE, "", *lines]).rstrip() + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{path.name} {'is out of date: run python docs/generate.py' if check else 'written'}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


def pages() -> dict[str, Iterable[str]]:
    """Return the lines of each page by its name."""
    return {"checks": _checks(), "metrics": _metrics(), "flags": _flags(), "formats": _formats()}


# -- checks and metrics -------------------------------------------------------------------------------------------


def _checks() -> Iterator[str]:
    yield "# Checks"
    yield ""
    yield (
        "A check states a fact about a capture: it holds, it does not, or it cannot be told. It names what it found "
        "with `file:line`, and says how much it looked at; with nothing to look at it is inconclusive, never a pass. "
        "`rlserve check CAPTURE --only=NAME` runs one by itself."
    )
    for number, question in _QUESTIONS.items():
        found = [one for one in checks.CHECKS.values() if one.question == number and _own(one.func)]
        if not found:
            continue
        yield from ("", f"## {number}. {question}")
        if number == 1:
            yield from ("", "If one of these does not hold, it errs or fails, and nothing else is judged.")
        for one in found:
            yield from ("", f"### `{one.name}`", "", one.doc)
            if not one.default:
                yield from ("", f'Not in the default suite. To run it: `also = ["{one.name}"]` under `[evidence]`.')


def _metrics() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield (
        "A metric is a number with its definition. The four parts of the definition (numerator, denominator, freshness, "
        "phase) are stored with every baseline by their digest: numbers that were computed by different definitions are "
        "not compared. What a capture does not hold is “not observable”, with the reason; it is never 0."
    )
    yield ""
    yield (
        "A metric of many values is asked for by a statistic: `ttft.p95`. There are `p50`, `p90`, `p95`, `p99`, `mean` "
        "and `max`; p90 needs 100 values, p95 needs 200, p99 needs 1,000. The bare name means the first one listed. "
        "A throughput per GPU is `accepted_trajectory_throughput.per_gpu`, where the manifest gives `gpus`."
    )
    found = [one for one in metrics.METRICS.values() if _own(one.func)]
    yield from ("", "| metric | unit | better | reported |", "|---|---|---|---|")
    for one in found:
        shown = ", ".join(f"`.{name}`" for name in one.statistics) if len(one.statistics) > 1 else ""
        yield f"| [`{one.name}`](#{one.name}) | {one.unit} | {one.better} | {shown or ''.join(one.statistics)} |"
    for one in found:
        yield from ("", f"## `{one.name}`", "", one.doc, "")
        tables = ", ".join(f"`{name}`" for name in sorted(one.needs))
        fresh = one.freshness.replace("{fresh}", "lag within the policy's `[freshness]`")
        yield from ("| | |", "|---|---|", f"| numerator | {one.numerator} |", f"| denominator | {one.denominator} |")
        yield from (f"| freshness | {fresh} |", f"| phase | {one.phase} |", f"| needs | {tables} |")


def _own(func: Any) -> bool:
    """Tell whether this project registered it, and not a conftest.py or another distribution."""
    return str(func.__module__).startswith("pytest_rlserve.")


# -- flags, settings, commands ------------------------------------------------------------------------------------


class _Options:
    """Stands for pytest's parser and keeps what the plugin adds to it."""

    def __init__(self) -> None:
        self.flags: list[tuple[str, dict[str, Any]]] = []
        self.settings: list[tuple[str, str, str]] = []

    def getgroup(self, *_: object) -> _Options:
        return self

    def addoption(self, name: str, **more: Any) -> None:
        self.flags.append((name, more))

    def addini(self, name: str, text: str, **more: Any) -> None:
        self.settings.append((name, str(more["type"]), text))


def _flags() -> Iterator[str]:
    options = _Options()
    plugin.pytest_addoption(options)  # type: ignore[arg-type]
    yield from ("# Flags, settings, commands", "", "## pytest", "", "| flag | meaning |", "|---|---|")
    for name, more in options.flags:
        value = f"={more['metavar']}" if "metavar" in more else ""
        yield f"| `{name}{value}` | {_cell(_sentence(more['help']))} |"
    yield ""
    yield (
        "Flags with a value are written with `=`. `--rl-trace PATH`, with a space, is refused (exit 4), and so is "
        "`-rl-trace=PATH` with one dash: pytest would take the first for a folder of tests and the second for its own "
        "`-r`, and the run would go green without a capture."
    )
    yield from (
        "",
        "## pytest configuration",
        "",
        "In `pytest.ini`, or `[tool.pytest.ini_options]` of `pyproject.toml`;",
    )
    yield "paths count from that file. A flag goes before a setting."
    yield from ("", "| setting | type | meaning |", "|---|---|---|")
    for name, kind, text in options.settings:
        yield f"| `{name}` | {kind} | {_cell(_sentence(text))} |"
    yield from _policy_keys()
    yield from _commands()


def _policy_keys() -> Iterator[str]:
    yield from ("", "## Policy file", "")
    yield (
        "`rlserve.toml` in pytest's root directory, else `[tool.rlserve]` in its `pyproject.toml`, else the file that "
        "`--rl-policy` names; never one inside a capture. A key that is not listed here is an error that names the "
        "nearest right one. `rlserve init CAPTURE` writes a commented file to begin with."
    )
    yield from ("", "| key | meaning |", "|---|---|")
    for key in _keys(policy._KEYS):
        if key not in POLICY:
            raise SystemExit(f"docs/generate.py does not say what the policy key {key!r} means: add it to POLICY")
        yield f"| `{key}` | {_cell(POLICY[key])} |"


def _keys(table: dict[str, Any], where: str = "") -> Iterator[str]:
    for key, wanted in table.items():
        yield f"{where}{key}"
        if isinstance(wanted, dict):
            yield from _keys(wanted, f"{where}{key}.")


def _commands() -> Iterator[str]:
    yield from (
        "",
        "## rlserve",
        "",
        "The same core for a shell without pytest. Exit status: 0 good, 1 bad, 2 wrong use.",
    )
    yield "Without `--policy`, `rlserve.toml` of the current folder counts, else `[tool.rlserve]` of its `pyproject.toml`,"
    yield "else the defaults."
    parser = cli._parser()
    (commands,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    for name, command in commands.choices.items():
        words = [one for one in command._actions if not isinstance(one, argparse._HelpAction)]
        usage = " ".join(_word(one) for one in words if not one.option_strings)
        yield from ("", f"### `rlserve {name} {usage}`", "", command.description or "")
        flags = [one for one in words if one.option_strings]
        if flags:
            yield from ("", "| flag | meaning |", "|---|---|")
        for one in flags:
            text = (one.help or "").replace("%(default)s", str(one.default))
            yield f"| `{one.option_strings[0]}={one.metavar}` | {_cell(_sentence(text))} |"


def _word(action: argparse.Action) -> str:
    return f"{action.metavar}…" if action.nargs == "+" else str(action.metavar)


# -- formats ------------------------------------------------------------------------------------------------------


def _formats() -> Iterator[str]:
    yield from ("# Formats", "")
    yield (
        "Each format is a JSON Schema (2020-12) in `schemas/`, shipped in the wheel as `pytest_rlserve/schemas`. Every "
        "row is held against it. JSON lines end at LF; a file may be gzip, of one member or many, whatever its name. "
        f"Reports are written in {_listed(reports.REPORTS)}; only the JSON one is a format."
    )
    for path in sorted(Path(str(schema.ROOT)).glob("*.json")):
        document = schema.load(path.stem)
        yield from ("", f"## `{path.stem}`", "", f"{document['title']}. {document['description']}", "")
        yield from ("| field | type | meaning |", "|---|---|---|")
        for name, kind, text in _fields(document, document):
            yield f"| {name} | {_cell(kind)} | {_cell(text)} |"
        if len(example := json.dumps(document["examples"][0])) < 1200:
            yield from ("", "```json", example, "```")
    yield from ("", "Fields in bold are required.")


def _fields(node: dict[str, Any], document: dict[str, Any], where: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield name, type and description of every field, those of nested objects after their own."""
    for name, given in node.get("properties", {}).items():
        found = _resolved(given, document)
        label = f"`{where}{name}`"
        yield (
            f"**{label}**" if name in node.get("required", ()) else label,
            _type(found),
            found.get("description", ""),
        )
        yield from _inner(found, document, f"{where}{name}")


def _inner(node: dict[str, Any], document: dict[str, Any], where: str) -> Iterator[tuple[str, str, str]]:
    yield from _fields(node, document, f"{where}.")
    for key, sign in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(node.get(key), dict):
            yield from _inner(_resolved(node[key], document), document, where + sign)


def _resolved(node: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Put what a reference points to under what stands beside it."""
    if "$ref" not in node:
        return node
    target = document
    for part in node["$ref"].removeprefix("#/").split("/"):
        target = target[part]
    return {**_resolved(target, document), **{key: value for key, value in node.items() if key != "$ref"}}


def _type(node: dict[str, Any]) -> str:
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return " ".join(f"`{one}`" for one in node["enum"])
    kind = node.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


# -- words --------------------------------------------------------------------------------------------------------


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _listed(names: Iterable[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


if __name__ == "__main__":
    sys.exit(main())
