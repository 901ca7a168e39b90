"""Foreign text stays text in every place it may be printed in."""

from __future__ import annotations

import html as stdlib_html
import re

import pytest
from reports_data import AWKWARD_IDS, HOSTILE

from pytest_rlserve.reports import escape

VECTORS = [*HOSTILE, *AWKWARD_IDS, ""]
in_every_vector = pytest.mark.parametrize("text", VECTORS, ids=lambda text: ascii(text[:20]))


def unescaped(markdown: str) -> str:
    """Read a cell as a Markdown reader does: entities and backslashes undone."""
    return stdlib_html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown))


@in_every_vector
def test_a_cell_holds_no_live_character(text: str) -> None:
    cell = re.sub(r"&#124;|<span>\$</span>", "", escape.cell(text))
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]~#<>|$]", cell)
    assert not re.search(r"&(?!amp;|lt;|gt;|#124;)", cell)
    assert not re.search(r"@\S|#\d|GH-\d|://|www\.|[\r\n\x1b\u202e\ud800]", unescaped(cell).replace("@\u200b", ""))
    assert len(cell) <= 120 * len("<span>$</span>")


@in_every_vector
def test_a_cell_reads_as_the_text_it_was_made_from(text: str) -> None:
    read = unescaped(escape.cell(text, 20_000)).replace(escape.BREAK, "").replace("<span>$</span>", "$")
    assert read == escape.visible(text)


@in_every_vector
def test_code_can_be_copied_character_by_character(text: str) -> None:
    code = escape.code(text, 20_000)
    assert "|" not in code
    if "|" in text:
        assert unescaped(code.removeprefix("<code>").removesuffix("</code>")) == escape.visible(text)
        return
    fence = re.match("`+", code)
    if fence is None:
        assert (text, code) == ("", "(empty)")
        return
    inside = code[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside), "the text must not close its own span"
    shown = inside[1:-1] if inside[0] == inside[-1] == " " else inside
    assert shown == escape.visible(text)


def test_control_characters_are_shown_rather_than_swallowed() -> None:
    assert escape.visible("two\nlines\r\x1b\x7f") == "two␊lines␍␛␡"
    assert escape.visible("\u202egnp.exe \ud800 \u2028 \u200b") == "�gnp.exe � � �"
    assert escape.visible("café 漢字 👩\u200d🔬") == "café 漢字 👩\u200d🔬"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("@org/team", "@\u200borg/team"),
        ("a|b", "a&#124;b"),
        ("see #1 and GH-1", "see \\#\u200b1 and GH-\u200b1"),
        ("in commit a1b2c3d", "in commit a\u200b1b2c3d"),
        ("1234567 tokens", "1234567 tokens"),
        ("12:30:45", "12:30:45"),
        ("<= 1.5s", "&lt;= 1.5s"),
        ("-6.2 %", "-6.2 %"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("41.70 trajectories/s", "41.70 trajectories/s"),
        ("     indented", " indented"),
    ],
)
def test_a_cell_changes_only_what_would_be_live(text: str, cell: str) -> None:
    assert escape.cell(text) == cell


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1e5", "`1e5`"),
        ("`tick`", "`` `tick` ``"),
        ("```", "```` ``` ````"),
        ("rollout|7", "<code>rollout&#124;7</code>"),
        (" padded ", "`  padded  `"),
        ("two\nlines", "`two␊lines`"),
        ("@example-org/everyone", "`@example-org/everyone`"),
        ("", "(empty)"),
        ("  ", "(empty)"),
    ],
)
def test_code_spans_are_spelt_so(text: str, code: str) -> None:
    assert escape.code(text) == code


def test_a_block_cannot_be_closed_from_inside() -> None:
    lines = escape.block("one\n```\n</details>\n````\n").split("\n")
    assert lines[0] == "`````text"
    assert lines[-1] == "`````"
    assert "`````" not in lines[1:-1]


def test_long_text_is_cut_before_it_is_escaped() -> None:
    assert escape.cell("x" * 118 + "|||") == "x" * 118 + "&#124;…"
    assert escape.code("x" * 121) == "`" + "x" * 119 + "…`"


@in_every_vector
def test_html_has_no_tag_and_no_open_quote(text: str) -> None:
    html = escape.html(text)
    assert not re.search(r"[<>\"']", html)
    assert stdlib_html.unescape(html) == escape.visible(text, keep="\n\t")


@in_every_vector
def test_a_marker_cannot_close_its_comment(text: str) -> None:
    assert re.fullmatch(r"[\w.~%-]*", escape.marker(text), re.ASCII)
    assert "--" not in escape.marker(text)
    assert len(escape.marker(text)) <= 120


def test_markers_of_different_series_differ() -> None:
    series = [*VECTORS, "x" * 9_999, "a--b", "a-b", "a-%2Db"]
    assert len({escape.marker(text) for text in series}) == len(set(series))


@in_every_vector
def test_a_terminal_line_moves_no_cursor_and_commands_no_runner(text: str) -> None:
    line = escape.terminal_safe(text)
    assert line.isprintable()
    assert not re.search(r"(?:^|\s)::|##\w*\[", line)
    assert escape.terminal_safe(line) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;https://example.invalid\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("two\nlines", "two\\nlines"),
        ("::error::planted", "\\::error::planted"),
        ("##vso[task]", "#\\#vso[task]"),
        ("rlserve.toml::checks::rows_fit_schema", "rlserve.toml::checks::rows_fit_schema"),
        ("\u202egnp.exe", "gnp.exe"),
    ],
)
def test_terminal_lines_are_spelt_so(text: str, line: str) -> None:
    assert escape.terminal_safe(text) == line


@in_every_vector
def test_a_workflow_message_stays_one_command(text: str) -> None:
    assert not re.search(r"[\r\n\x1b]", escape.workflow(text))
    assert not re.search(r"[\r\n:,]", escape.workflow_property(text))


def test_a_workflow_message_keeps_its_lines() -> None:
    assert escape.workflow("100 %\r\nnext") == "100 %25%0D%0Anext"
    assert escape.workflow_property("a,b:c") == "a%2Cb%3Ac"
