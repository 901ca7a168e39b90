"""Make foreign text harmless, with one function for each place it may be printed in.

Ids, paths, series, reasons and schema messages come from captures and pull requests: whoever writes them must
not be able to add rows, notify people, hide text, move the cursor or speak to the CI runner.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from html import escape as escape_html
from urllib.parse import quote

# Shows no glyph, keeps two characters apart: GitHub no longer sees a mention, a reference or a link.
BREAK = "\u200b"
_LIVE = re.compile(
    r"""(?ix)
    @ (?=\S)                                      # @org/team, a@b.example
    | [#!] (?=\d)                                 # issue 1, merge request 1
    | \b GH- (?=\d)                               # GH-1
    | : (?=//)                                    # https://
    | : (?=[a-z+-][\w+-]*:)                       # :emoji:
    | \b www (?=\.)
    | \b (?=\d*[a-f]) [0-9a-f] (?=[0-9a-f]{6,39}\b)  # a commit
    """
)
_INLINE = str.maketrans(
    {char: "\\" + char for char in "\\`*_[]~#"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "$": "<span>$</span>"}
)
_BLOCK_START = re.compile(r"^ ?(?:(?=[-+=](?![\w.(]))|\d+(?=[.)](?: |$)))")
_SPACES = re.compile(" +")
_ANSI = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and hyperlinks
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[ -/]*[0-~]"
)
_SPELT = str.maketrans({"\n": r"\n", "\r": r"\r", "\t": r"\t"})
_RUNNER = re.compile(r"(?:^|(?<=\s))(?=::)|(?<=#)(?=#\w*\[)")
_JOINERS = "\u200c\u200d"  # part of the spelling in Persian and of many emoji


def clamp(text: str, limit: int) -> str:
    """Return at most `limit` characters, the last of them "…" where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(text: object, *, keep: str = "") -> str:
    """Show what would not print: ␊ for a line feed and so on, � for bidi controls and lone surrogates.

    Characters in `keep` stay as they are.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(char if char in keep else _glyph(char) for char in shown)


def _glyph(char: str) -> str:
    if char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return char
    if char < " ":
        return chr(0x2400 + ord(char))
    return "\u2421" if char == "\x7f" else "\ufffd"


def cell(text: object, limit: int = 120) -> str:
    """Return foreign text for one table cell, list item or paragraph of GitHub's Markdown."""
    shown = clamp(_SPACES.sub(" ", visible(text)), limit)
    shown = _LIVE.sub(lambda found: found[0] + BREAK, shown).translate(_INLINE)
    return _BLOCK_START.sub(lambda found: found[0] + "\\", shown)


def code(text: object, limit: int = 120) -> str:
    """Return foreign text as a code span, which can be copied character by character.

    Empty text is "(empty)". A pipe would end a table cell even inside a code span, so such text becomes a
    `code` element instead.
    """
    shown = clamp(visible(text), limit)
    if not shown.strip():
        return "(empty)"
    if "|" in shown:
        return f"<code>{cell(shown, limit)}</code>"
    fence = "`" * (_longest_run_of_backticks(shown) + 1)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def block(text: object) -> str:
    """Return foreign text of several lines as a fenced code block."""
    shown = visible(text, keep="\n").strip("\n")
    fence = "`" * max(3, _longest_run_of_backticks(shown) + 1)
    return f"{fence}text\n{shown}\n{fence}"


def _longest_run_of_backticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def html(text: object) -> str:
    """Return foreign text for HTML content or a quoted attribute value."""
    return escape_html(visible(text, keep="\n\t"), quote=True)


def marker(text: object) -> str:
    """Return foreign text for the inside of an HTML comment; different texts stay different."""
    raw = str(text)
    shown = quote(raw, safe="", errors="surrogatepass").replace("--", "-%2D")
    if len(shown) <= 120:
        return shown
    return f"{shown[:100]}.{hashlib.sha256(raw.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def terminal_safe(text: object) -> str:
    r"""Return foreign text for one line of a terminal or CI log; a text made safe stays the same.

    Line breaks print as ``\n``; colours, cursor moves, bidi and other control characters are dropped. A
    backslash keeps ``::error::`` and ``##[error]`` from being commands to a CI runner.
    """
    shown = _ANSI.sub("", str(text)).translate(_SPELT)
    return _RUNNER.sub(r"\\", "".join(char for char in shown if _glyph(char) == char))


def workflow(text: object) -> str:
    """Return foreign text for the message of a workflow command: ``::error::`` + this."""
    shown = visible(_ANSI.sub("", str(text)), keep="\r\n")
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def workflow_property(text: object) -> str:
    """Return foreign text for a property of a workflow command: ``::error file=`` + this."""
    return workflow(text).replace(":", "%3A").replace(",", "%2C")
