"""The hashes of prompts, decoded from their digits: of a prompt that repeats an earlier one, only what is new.

A turn repeats the hashes of the turn before it, and the samples of a group repeat those of their prompt. Equal
digits are equal hashes, so what was decoded once need not be decoded, nor judged, again.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers.dynamo_quick import Doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_rlserve.readers.dynamo_quick import Span

Names = tuple[str, str]
_REMEMBERED = 1 << 24
"""Bytes of digits that are kept for prompts to come."""
_NUMBERS = msgspec.json.Decoder(list[int])
_BROKEN = (ValueError, TypeError, OverflowError, msgspec.MsgspecError)


def with_msgspec(digits: bytes) -> Any:
    """Decode ``[1,2]`` into 64-bit integers; raises one of `_BROKEN` where a number is none."""
    return array("Q", _NUMBERS.decode(digits))


def _decoder() -> Callable[[bytes], Any]:
    """Return the fastest way there is to do the same."""
    try:
        from simdjson import Parser
    except ImportError:
        return with_msgspec
    parser: Any = Parser()
    return lambda digits: parser.parse(digits).as_buffer(of_type="u")


@dataclass(slots=True)
class Decoded:
    """The hashes of a block's rows, as `Chains.extend` takes them."""

    back: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)
    values: Any = b""


class Prompts:
    """Decodes hashes and remembers the last prompt of each session."""

    def __init__(self) -> None:
        """Start without memory."""
        self._numbers = _decoder()
        self._forget()

    def _forget(self) -> None:
        # A prompt by session: its digits up to the last comma, how many hashes they are, and its row.
        self._recent: dict[str, tuple[bytes, int, int]] = {}
        self._earlier: dict[str, tuple[bytes, int, int]] = {}
        self._size = 0

    def decode(self, text: bytes, spans: Sequence[Span | None], names: Iterable[Names], first: int) -> Decoded:
        """Decode the hashes of a block's rows.

        Args:
            text: the block.
            spans: where in it the digits of each row stand; None for a row without hashes.
            names: session and parent session of each row.
            first: the number of the first row among all.

        Raises:
            Doubt: a number is no unsigned 64-bit integer, or the digits do not stand on one line.
        """
        found = Decoded()
        try:
            digits = b",".join(self._linked(found, text, zip(spans, names, strict=True), first))
            found.values = memoryview(self._numbers(b"[%b]" % digits))
            # No piece holds a closing bracket, so none can open one either; no number goes on over two lines.
            if found.values.nbytes != 8 * sum(filter(None, found.sizes)) or b"\n" in digits:
                raise Doubt
        except (*_BROKEN, Doubt):
            self._forget()  # what was not judged must not be repeated
            raise Doubt from None
        return found

    def _linked(
        self, found: Decoded, text: bytes, rows: Iterable[tuple[Span | None, Names]], first: int
    ) -> list[bytes]:
        """Note in `found` how the rows are linked, and return the digits that no earlier prompt has."""
        pieces: list[bytes] = []
        backs, shares, sizes = found.back, found.shared, found.sizes
        recent, earlier = self._recent, self._earlier
        for row, (span, (session, parent)) in enumerate(rows, first):
            if span is None:
                backs.append(0)
                shares.append(0)
                sizes.append(None)
                continue
            begin, end = span
            back = shared = new = 0
            digits = text[begin : text.rfind(b",", begin, end) + 1]
            known = recent.get(session) or earlier.get(session) or recent.get(parent) or earlier.get(parent)
            if known and digits.startswith(known[0]):
                begin, shared, back = begin + len(known[0]), known[1], row - known[2]
            if piece := text[begin:end]:
                pieces.append(piece)
                new = piece.count(b",") + 1
            elif shared:
                raise Doubt  # nothing after a comma
            if digits and session is not None:
                recent[session] = digits, shared + new - 1, row
                self._size += len(digits)
            if digits and known is None and parent is not None:
                recent[parent] = digits, shared + new - 1, row
            backs.append(back)
            shares.append(shared)
            sizes.append(new)
        if self._size > _REMEMBERED:
            self._recent, self._earlier, self._size = {}, recent, 0
        return pieces
