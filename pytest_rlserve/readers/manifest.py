"""`rlserve.json`, the optional manifest of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve import schema
from pytest_rlserve.capture import Manifest
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers.rows import Refusal, decode

if TYPE_CHECKING:
    from pytest_rlserve.readers.store import Place

NAME = "rlserve.json"
_FIELDS = tuple(Manifest.__dataclass_fields__)


def read(path: Place) -> tuple[Manifest, dict[str, Any]]:
    """Return the manifest and the rest of the document (`files`, `shards`).

    Raises:
        UsageError: the file is not a valid manifest; the message lists every reason.
    """
    try:
        document = decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: the capture's manifest cannot be read: {error.strerror}") from None
    if isinstance(document, Refusal):
        raise UsageError(f"{path}: the capture's manifest cannot be read: it {document}")
    reasons = schema.problems("rlserve.capture.v1", document)
    if reasons:
        listed = "\n  ".join(reasons)
        raise UsageError(f"{path}: the capture's manifest is wrong\n  {listed}")
    known = {name: document[name] for name in _FIELDS if name in document}
    return Manifest(**known), document
