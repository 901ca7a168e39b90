"""The command line: the same core as the plugin, for a shell without pytest.

Exit status: 0 good, 1 bad, 2 wrong use.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import EvidenceError, RlserveError, UsageError
from pytest_rlserve.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.policy import Policy
    from pytest_rlserve.gate.verdicts import Gate

_GOOD, _BAD, _WRONG = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except UsageError as error:
        print(f"rlserve: {error}", file=sys.stderr)
        return _WRONG
    except RlserveError as error:
        print(f"rlserve: {error}", file=sys.stderr)
        return _BAD
    except BrokenPipeError:
        sys.stderr.close()
        return _BAD
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rlserve", description="Judge captures of RL serving runs.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"rlserve {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    check = command("check", _check, "Check whether captures can be trusted and every attempt is accounted for.")
    check.add_argument("captures", nargs="+", metavar="CAPTURE")
    check.add_argument("--only", action="append", metavar="CHECK", help="run this check alone; repeat for several")
    _policy_flag(check)
    measure = command("measure", _measure, "Print the metrics of captures.")
    measure.add_argument("captures", nargs="+", metavar="CAPTURE")
    measure.add_argument(
        "--metric", action="append", metavar="NAME", help="print this metric alone; repeat for several"
    )
    _policy_flag(measure)
    compare = command("compare", _compare, "Compare captures with the baseline of their series.")
    compare.add_argument("captures", nargs="+", metavar="CAPTURE")
    compare.add_argument(
        "--baseline",
        default="baselines",
        metavar="DIR",
        help="folder of baseline files (default: %(default)s)",
    )
    compare.add_argument(
        "--series", metavar="NAME", help="series to compare with (default: the policy's, else the capture's)"
    )
    compare.add_argument(
        "--format",
        default="terminal",
        metavar="FORMAT",
        help="terminal, markdown, summary or json (default: %(default)s)",
    )
    _policy_flag(compare)
    init = command("init", _init, "Write a commented starter policy with the values just measured, plus margins.")
    init.add_argument("capture", metavar="CAPTURE")
    init.add_argument(
        "--output",
        default="rlserve.toml",
        metavar="FILE",
        help="file to write; '-' prints (default: %(default)s)",
    )
    report = command("report", _report, "Render a JSON report in another format.")
    report.add_argument("report", metavar="REPORT.json")
    report.add_argument(
        "--format",
        default="terminal",
        metavar="FORMAT",
        help="terminal, markdown or summary (default: %(default)s)",
    )
    return parser


def _policy_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy", metavar="FILE", help="policy file (default: rlserve.toml here, else the defaults)"
    )


def _policy(given: str | None) -> Policy:
    from pytest_rlserve.gate.policy import Policy, has_policy, load

    if given:
        return load(Path(given))
    if Path("rlserve.toml").is_file():
        return load(Path("rlserve.toml"))
    return load(Path("pyproject.toml")) if has_policy(Path("pyproject.toml")) else Policy()


def _captures(paths: Sequence[str]) -> list[Capture]:
    from pytest_rlserve.readers import open_capture
    from pytest_rlserve.readers.discover import captures_in

    return [open_capture(one) for path in paths for one in captures_in(path)]


def _check(arguments: argparse.Namespace) -> int:
    from pytest_rlserve.checks import default_checks, run_checks

    policy = _policy(arguments.policy)
    names = arguments.only or [*default_checks(), *policy.also]
    good = True
    for capture in _captures(arguments.captures):
        for result in run_checks(capture, names=names, evidence=policy.evidence):
            good &= result.status in ("pass", "inconclusive")
            print(result.message())
            for finding in result.findings:
                if finding.severity in ("warning", "note"):
                    print(f"  {finding.severity}: {finding}")
    return _GOOD if good else _BAD


def _measure(arguments: argparse.Namespace) -> int:
    from tabulate import tabulate

    from pytest_rlserve import units
    from pytest_rlserve.metrics import measuring

    policy = _policy(arguments.policy)
    keys = [measuring.canonical(key) for key in arguments.metric or measuring.all_keys()]
    captures = _captures(arguments.captures)
    measured = [[measuring.measure(capture, key, policy.scope) for capture in captures] for key in keys]
    rows = [[row[0].name, *(units.show(one.value, one.unit) for one in row)] for row in measured]
    print(tabulate(rows, ["metric", *(capture.name for capture in captures)], disable_numparse=True))
    absent = [one for row in measured for one in row if one.value is None]
    for one in absent:
        print(f"{one.name} of {one.capture} is not observable: {one.why}")
    return _BAD if arguments.metric and absent else _GOOD


def _compare(arguments: argparse.Namespace) -> int:
    from pytest_rlserve.gate.items import items
    from pytest_rlserve.gate.report import build
    from pytest_rlserve.gate.verdicts import Gate
    from pytest_rlserve.reports import render

    gate = Gate(
        captures=_captures(arguments.captures),
        policy=_policy(arguments.policy),
        folder=Path(arguments.baseline),
        series=arguments.series,
    )
    report = build(gate, [_judged(gate, kind, name) for kind, name in items(gate.policy)])
    print(render(report, arguments.format))
    return _GOOD if report["verdict"] in ("pass", "inconclusive") else _BAD


def _judged(gate: Gate, kind: Any, name: str) -> dict[str, Any]:
    try:
        found = gate.judge(kind, name)
    except EvidenceError as error:
        print(f"rlserve: {kind}::{name}: {error}", file=sys.stderr)
        return {
            "kind": kind,
            "name": name,
            "verdict": "invalid",
            "records": gate.evidence_records(kind, name),
        }
    return {"kind": kind, "name": name, "verdict": found.verdict, "records": found.records, "causes": found.causes}


def _init(arguments: argparse.Namespace) -> int:
    from pytest_rlserve.gate.starter import starter
    from pytest_rlserve.readers import open_capture

    text = starter(open_capture(arguments.capture))
    if arguments.output == "-":
        print(text, end="")
        return _GOOD
    path = Path(arguments.output)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already: name another with --output, or '-' to print") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    print(f"{path} written; now record a baseline: pytest --rl-trace={arguments.capture} --rl-baseline-update")
    return _GOOD


def _report(arguments: argparse.Namespace) -> int:
    from pytest_rlserve import schema
    from pytest_rlserve.reports import render

    try:
        document = json.loads(Path(arguments.report).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{arguments.report} cannot be read: {error}") from None
    if reasons := schema.problems("rlserve.report.v1", document):
        raise UsageError(f"{arguments.report} is no report of rlserve.report.v1: {'; '.join(reasons[:3])}")
    print(render(document, arguments.format))
    return _GOOD
