"""Records of other systems: the samples in data/samples, and variations on them that a test writes itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pytest_rlserve.capture import Capture

FOLDER = Path(__file__).parent / "data" / "samples"


def sample(name: str, **settings: Any) -> Capture:
    """Open one sample."""
    return open_capture(FOLDER / name, settings=settings)


def records(name: str) -> list[dict[str, Any]]:
    """Return the records of one sample, to be changed."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def document(name: str) -> dict[str, Any]:
    """Return a sample that is one document, to be changed."""
    found: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return found


def written(path: Path, *content: Any) -> Capture:
    """Write records, one a line, or a document, and open the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in content), encoding="utf-8")
    return open_capture(path)


def told(table: pa.Table, *columns: str, where: Callable[[dict[str, Any]], bool] = bool) -> list[tuple[Any, ...]]:
    """Return some columns of a table's rows."""
    return [tuple(row[name] for name in columns) for row in table.to_pylist() if where(row)]


def numbers(capture: Capture, name: str) -> list[float | None]:
    """Return the values of one number in `step_metrics`, in the order of the file."""
    rows = capture.step_metrics.to_pylist()
    return [row["value"] for row in rows if row["name"] == name]
