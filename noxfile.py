"""The parts of ``.ci/run`` one by one, for whoever has nox: ``nox`` or ``nox -s wheel``."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["tests", "lint"]
nox.options.reuse_existing_virtualenvs = True

PYTHONS = ["3.11", "3.12", "3.13"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests; arguments after ``--`` go to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def heavy(session: nox.Session) -> None:
    """Run the tests that start an object store and two Ray nodes, all on loopback."""
    session.install("-e", ".[test,objectstore-test,ray]")
    session.run("pytest", "tests/objectstore", "tests/engine", *session.posargs, env={"RLSERVE_HEAVY": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and layers."""
    session.install("-e", ".[test,lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a dead link fails."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", "build", "--strict", "--site-dir", str(Path(session.create_tmp()) / "site"))


@nox.session(reuse_venv=False)
def wheel(session: nox.Session) -> None:
    """Build the wheel and prove it away from the checkout."""
    checkout, dist = Path.cwd(), Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    session.run("pip", "wheel", "--no-deps", "--wheel-dir", str(dist), ".", silent=True)
    (built,) = dist.glob("*.whl")
    session.install(str(built))
    with session.chdir(dist):
        session.run("python", "-I", str(checkout / "tests" / "wheel" / "check_wheel.py"))
