"""The JSON report is the same bytes for the same report."""

from __future__ import annotations

import json
import math

import pytest
from reports_data import HOSTILE, STORIES, Report, hostile, regressed, report

from pytest_rlserve import schema
from pytest_rlserve.errors import UsageError
from pytest_rlserve.reports import REPORTS, encode, render
from pytest_rlserve.reports import report as report_format


def reordered(value: object) -> object:
    """Return the same value with the keys of all its objects in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def test_the_order_of_keys_does_not_show() -> None:
    story = regressed()
    turned = reordered(story)
    assert list(turned) != list(story)  # type: ignore[call-overload]
    assert render(turned, "json") == render(story, "json")  # type: ignore[arg-type]


def test_a_small_report_reads_so() -> None:
    small = {"verdict": "pass", "series": "café", "not_run": []}
    assert render(small, "json") == '{\n "not_run": [],\n "series": "caf\\u00e9",\n "verdict": "pass"\n}\n'


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_text_survives_unchanged_and_in_ascii(text: str) -> None:
    story: Report = hostile(text)
    assert json.loads(encode(story, "json").decode("ascii")) == story


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_json_cannot_hold_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render(report("pass", provenance={"seconds": number}), "json")


@pytest.mark.parametrize("story", STORIES)
def test_the_stories_of_these_tests_are_reports(story: str) -> None:
    assert schema.problems("rlserve.report.v1", STORIES[story]()) == []


@pytest.mark.parametrize("fmt", ["json", "markdown", "summary", "terminal"])
def test_the_examples_of_the_schema_render(fmt: str) -> None:
    for example in schema.load("rlserve.report.v1")["examples"]:
        verdict = example["verdict"].replace("_", " ")
        assert verdict in render(example, fmt).lower().replace("_", " ")


def test_an_unknown_format_names_the_nearest_right_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'markdown'"):
        render(regressed(), "markdwon")


def test_a_report_joins_by_one_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REPORTS, "_things", dict(REPORTS._things))
    monkeypatch.setattr(REPORTS, "_homes", dict(REPORTS._homes))

    @report_format("verdict-bytes", binary=True)
    def verdict_bytes(report: Report) -> bytes:
        return report["verdict"].encode()

    assert encode(regressed(), "verdict-bytes") == b"regressed"
    assert REPORTS["verdict-bytes"].binary
    with pytest.raises(UsageError, match="is not text"):
        render(regressed(), "verdict-bytes")


def test_the_text_reports_are_found_by_name() -> None:
    assert {"json", "markdown", "summary", "terminal"} <= set(REPORTS)
