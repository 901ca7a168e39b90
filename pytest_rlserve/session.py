"""One pytest run: what was asked for, its captures and its gate, and the verdicts that tests attach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rlserve.asked import Asked
from pytest_rlserve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.judgement import Judgement
    from pytest_rlserve.gate.policy import Policy
    from pytest_rlserve.gate.verdicts import Gate

RUN: pytest.StashKey[Run] = pytest.StashKey()
PROPERTY = "rlserve"
"""Name of the one user property by which a test tells the controller its verdict, as JSON text."""
WORKER_FOLDER = "rlserve_captures"
"""Key of xdist's `workerinput` under which workers find the captures."""


class Run:
    """State of one pytest process: captures and gate, each made when first needed."""

    def __init__(self, config: pytest.Config, asked: Asked) -> None:
        """Take what was asked for; nothing is read yet."""
        self.config, self.asked = config, asked
        self.folder = getattr(config, "workerinput", {}).get(WORKER_FOLDER)
        self._gate: Gate | None = None
        self._policy: Policy | None = None
        self._marked: dict[str, Gate] = {}

    @classmethod
    def for_markers(cls, config: pytest.Config) -> Run:
        """Return the state of a run without captures of its own, for tests that name theirs by marker."""
        return cls(config, Asked(traces=(), baseline=config.rootpath / "baselines", suite=False))

    @property
    def policy_path(self) -> Path:
        """Return the file whose items the suite's tests are: the policy, if it lies inside the root directory."""
        found = self.asked.policy or self._default_policy()
        if found and found.is_relative_to(self.config.rootpath):
            return found
        return self.config.rootpath / "rlserve.toml"

    def _default_policy(self) -> Path | None:
        own = self.config.rootpath / "rlserve.toml"
        if own.exists():  # a folder of that name is refused when it is read, and not passed over
            return own
        from pytest_rlserve.gate.policy_file import has_policy

        project = self.config.rootpath / "pyproject.toml"
        return project if has_policy(project) else None

    @property
    def policy(self) -> Policy:
        """Read the policy, once.

        Raises:
            pytest.UsageError: it says something that this version does not know.
        """
        if self._policy is None:
            from pytest_rlserve.gate.policy import Policy
            from pytest_rlserve.gate.policy_file import load

            path = self.asked.policy or self._default_policy()
            try:
                self._policy = load(path) if path else Policy()
            except UsageError as error:
                raise pytest.UsageError(f"rlserve: {error}") from None
        return self._policy

    @property
    def has_read(self) -> bool:
        """Tell whether the captures were read."""
        return self._gate is not None

    @property
    def gate(self) -> Gate:
        """Return the gate over the captures, which are read now if no controller has read them."""
        if self._gate is None:
            from pytest_rlserve.gate.judgement import Update
            from pytest_rlserve.gate.verdicts import Gate

            asked = self.asked
            self._gate = Gate(
                captures=self._captures(),
                policy=self.policy,
                folder=asked.baseline,
                series=asked.series,
                update=Update(wanted=asked.update, new_only=asked.update_new, reason=asked.reason),
            )
        return self._gate

    def _captures(self) -> list[Capture]:
        if self.folder:
            from pytest_rlserve.engine.share import load

            return [load(one) for one in sorted(Path(self.folder).iterdir())]
        return _distinct([self._opened(path) for path in self.asked.traces])

    def _opened(self, path: str) -> Capture:
        from pytest_rlserve.readers import open_capture

        return open_capture(path, settings=self.policy.readers, engine=self.asked.engine)

    def marked(self, path: str) -> Gate:
        """Return the gate over the one capture that a test names by its marker, which is read once."""
        if path not in self._marked:
            from pytest_rlserve.gate.verdicts import Gate

            self._marked[path] = Gate(captures=[self._opened(path)], policy=self.policy, folder=self.asked.baseline)
        return self._marked[path]

    def expected(self) -> Iterator[str]:
        """Yield the ids of the built-in suite's tests; reads no capture."""
        from pytest_rlserve.gate.items import items

        if self.asked.traces and self.asked.suite:
            path = self.policy_path.relative_to(self.config.rootpath).as_posix()
            for kind, name in items(self.policy):
                yield f"{path}::{kind}::{name}"


def _distinct(captures: list[Capture]) -> list[Capture]:
    """Number captures that share a name, so that every message names one of them."""
    seen: dict[str, int] = {}
    named = []
    for capture in captures:
        seen[capture.name] = seen.get(capture.name, 0) + 1
        again = seen[capture.name] > 1
        named.append(capture.replace(name=f"{capture.name}-{seen[capture.name]}") if again else capture)
    return named


def note(node: pytest.Item, judgement: Judgement) -> None:
    """Attach a verdict to a test for the controller, in place of an earlier one for the same thing."""
    text = {
        "kind": judgement.kind,
        "name": judgement.name,
        "verdict": judgement.verdict,
        "message": judgement.message,
        "records": judgement.records,
        "causes": judgement.causes,
    }
    earlier = [json.loads(str(v)) for k, v in node.user_properties if k == PROPERTY]
    kept = [j for one in earlier for j in one if (j["kind"], j["name"]) != (judgement.kind, judgement.name)]
    others = [(k, v) for k, v in node.user_properties if k != PROPERTY]
    node.user_properties[:] = [*others, (PROPERTY, json.dumps([*kept, text], sort_keys=True))]


def noted(report: pytest.TestReport) -> list[dict[str, Any]]:
    """Return the verdicts that a test has attached."""
    return [
        judgement for key, value in report.user_properties if key == PROPERTY for judgement in json.loads(str(value))
    ]
