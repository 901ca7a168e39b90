"""Prove an installed wheel, by the Python of the environment that it was installed into.

    ENVIRONMENT/bin/python -I CHECKOUT/tests/wheel/check_wheel.py

A checkout hides what a wheel lacks: its package is importable and its schemas lie beside it. So this runs
isolated (-I), with nothing of the checkout on sys.path, and takes from there only what a user would bring:
example captures, baselines, the policy. It asserts by itself, since pytest is a part of what it proves.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CAPTURE = "examples/baseline_kv"
USERS_FILES = ("examples", "baselines", "pyproject.toml", "rlserve.toml")


def prove(holds: object, claim: str) -> None:
    """Print the claim, or end the script with it."""
    if not holds:
        sys.exit(f"not so: {claim}")
    print(f"ok: {claim}", flush=True)


def installed_apart_from_the_checkout() -> None:
    prove(sys.flags.isolated, "Python runs isolated (-I)")
    import pytest_rlserve

    home = Path(pytest_rlserve.__file__).resolve()
    prove(home.is_relative_to(Path(sys.prefix).resolve()), "the package is imported from the environment")
    prove(not home.is_relative_to(CHECKOUT), "the package is not imported from the checkout")
    prove(pytest_rlserve.__version__ == version("pytest-rlserve"), "code and metadata name one version")
    prove((home.parent / "py.typed").is_file(), "the wheel is typed")


def schemas_are_shipped() -> None:
    from pytest_rlserve import schema

    names = sorted(path.stem for path in (CHECKOUT / "schemas").glob("*.json"))
    prove(names, "the checkout has schemas")
    for name in names:
        prove(schema.load(name)["$id"].endswith(name), f"the wheel has the schema {name}")


def a_capture_opens(project: Path) -> None:
    from pytest_rlserve import open_capture

    capture = open_capture(project / CAPTURE)
    prove(capture.requests.num_rows, f"{CAPTURE} opens, with {capture.requests.num_rows} requests")


def pytest_judges(project: Path) -> None:
    report = project / "report.json"
    code = run_pytest(project, f"--rl-report=json:{report}")
    prove(code == 0, "pytest --rl-trace passes on the example and its baseline")
    written = json.loads(report.read_text(encoding="utf-8"))
    prove(written["verdict"] == "pass", f"the report's verdict, {written['verdict']!r}, is 'pass'")
    prove(written["comparisons"], "something was compared with the baseline")


def pytest_refuses(project: Path) -> None:
    """A gate that cannot fail proves nothing: cut the end off a trace file, as a killed process does."""
    shard = min((project / CAPTURE).rglob("request-trace*"))
    shard.write_bytes(shard.read_bytes()[:-20])
    prove(run_pytest(project) == 1, f"pytest --rl-trace fails once {shard.name} is cut off")


def run_pytest(project: Path, *flags: str) -> int:
    pytest = [sys.executable, "-I", "-m", "pytest", "-p", "no:cacheprovider"]
    command = [*pytest, f"--rl-trace={CAPTURE}", *flags, "examples"]
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=project, env=settings, check=False).returncode


def main() -> None:
    installed_apart_from_the_checkout()
    schemas_are_shipped()
    with tempfile.TemporaryDirectory(prefix="rlserve-wheel-") as folder:
        project = Path(folder)
        for name in USERS_FILES:
            source = CHECKOUT / name
            if source.is_dir():
                shutil.copytree(source, project / name)
            elif source.is_file():
                shutil.copy2(source, project / name)
        a_capture_opens(project)
        pytest_judges(project)
        pytest_refuses(project)


if __name__ == "__main__":
    main()
