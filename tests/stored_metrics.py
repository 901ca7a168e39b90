"""A conftest.py for projects whose metrics are read from a file: it registers what `METRICS` describes.

Each capture has its values in ``values/<capture>.json``; what that file lacks was not measured.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = """\
import json
from pathlib import Path

from pytest_rlserve import NotMeasurable, metric
from pytest_rlserve.metrics import Value

HERE = Path(__file__).parent


def register(name, unit, better):
    def measured(capture, scope):
        values = json.loads((HERE / "values" / f"{capture.name}.json").read_text())
        if name not in values:
            raise NotMeasurable(f"{name} is not among the values of this run")
        return Value(float(values[name]), 100)

    measured.__name__ = name
    metric(
        unit=unit,
        better=better,
        needs=set(),
        numerator=name,
        denominator="1",
        freshness="any policy version",
        phase="the whole run",
    )(measured)


for _name, (_unit, _better) in json.loads((HERE / "metrics.json").read_text()).items():
    register(_name, _unit, _better)
"""


def register_in(project: Path, metrics: dict[str, tuple[str, str]]) -> None:
    """Give a project a conftest.py with these metrics: name → unit and better direction."""
    (project / "values").mkdir()
    (project / "metrics.json").write_text(json.dumps(metrics))
    (project / "conftest.py").write_text(_TEXT)


def store(project: Path, capture: str, values: dict[str, Any]) -> None:
    """Say what was measured of a capture."""
    (project / "values" / f"{capture}.json").write_text(json.dumps(values))
