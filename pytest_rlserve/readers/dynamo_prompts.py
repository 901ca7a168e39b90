"""The hashes of prompts, decoded from their digits: of a prompt that repeats an earlier one, only what is new.

A turn repeats the hashes of the turn before it, and the samples of a group repeat those of their prompt. Equal
digits are equal hashes, so what was decoded once need not be decoded, nor judged, again. Whatever earlier prompt is
looked at, only one that this prompt begins with counts.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers.typed import Doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_rlserve.readers.dynamo_quick import Span

Names = tuple[str | None, str | None]
_LEAST, _MOST, _SHARE = 1 << 21, 1 << 25, 32
"""Bytes of digits after which the prompts before the last so many bytes are forgotten: at least and at most, and
between them a share of the text so far. So a small trace takes little memory, and a large one finds long prompts of
many sessions."""
_TAIL = 42
"""Bytes at the end of a prompt by which an equal prompt is found: two hashes, or the better part of them."""
_NUMBERS = msgspec.json.Decoder(list[int])
_BROKEN = (ValueError, TypeError, OverflowError, RuntimeError, msgspec.MsgspecError)
"""What decoders raise; simdjson has no better name than RuntimeError for a number of more than 64 bits."""


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
        self._seen = 0
        self._forget()

    def _forget(self) -> None:
        # A prompt by its session, or by its end: its digits up to the last comma, how many hashes they are, its row.
        self._recent: dict[str | bytes | None, tuple[bytes, int, int]] = {}
        self._earlier: dict[str | bytes | None, tuple[bytes, int, int]] = {}
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
            pieces = self._linked(found, text, zip(spans, names, strict=True), first) or [b""]
            pieces[0] = b"[" + pieces[0]
            pieces[-1] += b"]"
            digits = b",".join(pieces)
            found.values = memoryview(self._numbers(digits))
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
        recent, earlier, size = self._recent, self._earlier, self._size
        for row, (span, (session, parent)) in enumerate(rows, first):
            if span is None:
                backs.append(0)
                shares.append(0)
                sizes.append(None)
                continue
            begin, end = span
            at = begin
            back = shared = new = 0
            cut = text.rfind(b",", begin, end) + 1
            known, tail = recent.get(session) or earlier.get(session), b""
            if known is None and cut:
                tail = text[max(begin, cut - _TAIL) : cut]
                known = recent.get(tail) or earlier.get(tail) or recent.get(parent) or earlier.get(parent)
            if known and text.startswith(known[0], begin, cut):
                at, shared, back = begin + len(known[0]), known[1], row - known[2]
            if piece := text[at:end]:
                pieces.append(piece)
                new = piece.count(b",") + 1
            elif shared:
                raise Doubt  # nothing after a comma
            if cut:
                prompt = text[begin:cut], shared + new - 1, row
                size += cut - at
                if session is not None:
                    recent[session] = prompt
                if tail:
                    recent[tail] = prompt
                    recent.setdefault(parent or tail, prompt)
            backs.append(back)
            shares.append(shared)
            sizes.append(new)
        self._seen += len(text)
        self._size = size
        if size > min(max(_LEAST, self._seen // _SHARE), _MOST):
            self._recent, self._earlier, self._size = {}, recent, 0
        return pieces
