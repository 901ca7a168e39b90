"""Traces read by the workers of a Ray cluster, which have to see the same files, and put together here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from pytest_rlserve.engine import cluster, progress
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers.pieces import Piece, read_apart
from pytest_rlserve.readers.reach import settings
from pytest_rlserve.readers.store import located
from pytest_rlserve.readers.whole import Whole, planned_pieces, put_together
from pytest_rlserve.scattered import Elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_rlserve.readers.jsonl import Content, File

_STEP = 1 << 18
_PIECES = 16
"""In all, or more; there are about as many processors in a small cluster."""
_LARGEST = 64 << 20
"""Bytes of a piece, more or less: a task's memory is a small multiple of it."""


def read(files: Sequence[File], engine: str) -> list[Content | None]:
    """Read trace files on Ray; hashes stay with the workers.

    Args:
        files: the files.
        engine: "ray", "ray:" and the address of a cluster, or an address of the form "ray://host:port".

    Returns:
        What each file gave, None for one that has to be read in one go.

    Raises:
        UsageError: there is no cluster, or one of its nodes cannot read a file, or has another one.
    """
    address = engine if engine.startswith("ray://") else engine.partition(":")[2] or None
    total = sum(file.path.stat().st_size for file in files)
    planned = planned_pieces(files, max(_PIECES, total // _LARGEST), None)
    answers = cluster.run(read_apart, [piece for some in planned for piece in some], address, settings())
    beside = ThreadPoolExecutor(1)
    try:
        sums = _sums(files, planned, address, beside)
        return [_content(file, some, answers, own) for file, some, own in zip(files, planned, sums, strict=True)]
    finally:
        beside.shutdown(wait=False, cancel_futures=True)


def _content(
    file: File, pieces: list[Piece], answers: Iterator[tuple[Any, cluster.Kept]], sums: Callable[[], list[str]]
) -> Content | None:
    """Put one file together from the next answers."""
    read: list[tuple[dict[str, Any], Piece, Callable[[], dict[str, Any]]]] = []
    for piece in pieces:
        (answer, tables), chains = next(answers)
        progress.advance(piece.end - piece.start, sum(answer["kinds"].values()))
        packing = tables.pop("packing")
        there = Elsewhere(chains, packing.drop_columns(["end"]), packing["end"])
        read.append((answer, piece, partial(dict, tables, chains=there)))
    whole, *each = sums()
    content = put_together(Whole(file), read, whole or None)
    if content is not None and whole and each != [answer["digest"] for answer, _, _ in read]:
        text = "changed while it was read, or a node of Ray has another file under this name"
        raise UsageError(f"{file.path} {text}: the BLAKE3 of what it read is not that of what is here")
    return content


def _sums(
    files: Sequence[File], planned: Sequence[list[Piece]], address: str | None, beside: ThreadPoolExecutor
) -> list[Callable[[], list[str]]]:
    """Begin to compute the digest of every file and of its pieces; [""] where the worker's own will do.

    What is on a disk is read here too, so that a node with another file under its name is found out. What is in a
    store is not fetched to this machine: one worker reads it again, unless one has read it in one go.
    """
    far = cluster.run(
        digests,
        [some for file, some in zip(files, planned, strict=True) if _apart(file, some)],
        address,
        settings(),
    )
    sums: list[Callable[[], list[str]]] = []
    for file, some in zip(files, planned, strict=True):
        if isinstance(file.path, Path):
            sums.append(partial(_first, beside.submit(digests, some).result))
        elif _apart(file, some):
            sums.append(partial(_first, partial(_next, far)))
        else:
            sums.append(lambda: [""])
    return sums


def _apart(file: File, pieces: Sequence[Piece]) -> bool:
    """Tell whether a file in a store was read by several."""
    return len(pieces) > 1 and not isinstance(file.path, Path)


def _next(answers: Iterator[tuple[Any, cluster.Kept]]) -> Any:
    return next(answers)


def _first(answer: Callable[[], tuple[list[str], Any]]) -> list[str]:
    return answer()[0]


def digests(pieces: Sequence[Piece]) -> tuple[list[str], None]:
    """Return the BLAKE3 of a file, and of each of its pieces."""
    whole = blake3()
    each = []
    with located(pieces[0].path).open("rb") as file:
        for piece in pieces:
            one = whole if len(pieces) == 1 else blake3()
            left = piece.end - piece.start
            while chunk := file.read(min(_STEP, left)):
                left -= len(chunk)
                one.update(chunk)
                if one is not whole:
                    whole.update(chunk)
            each.append(one.hexdigest())
    return [whole.hexdigest(), *each], None
