"""Reports written by hand, one for each story a reader may be told."""

from __future__ import annotations

import copy
from typing import Any

Report = dict[str, Any]

PRIMARY = "accepted_trajectory_throughput"
MESSAGE = """\
accepted_trajectory_throughput regressed by 6.2 % (allowed 5.0 %, could have seen 3.1 %)
  baseline  41.70 trajectories/s  (8 runs of 4 jobs, 40.90 … 42.40)   baselines/qwen3-0.6b-4w.json
  current   39.10 trajectories/s  (3 runs of 1 job, 38.60 … 39.70)
  why       residence +6.4 % (prefill +5.9 %, most on worker 6db3…eed1), in flight +0.1 %, completion -0.2 %
  to accept this level: pytest --rl-trace=… --rl-baseline-update --rl-baseline-reason="…"\
"""

# Each id of bug case 32: a pipe, number-like text, a line break, a mention, HTML and Markdown.
AWKWARD_IDS = [
    *("rollout|7", "1e5", "2e7", "0012", "20200407_2", "12345678901234567890", "two\nlines"),
    *("@example-org/everyone", "<!-- hidden -->", "`tick`", "[click](https://example.invalid)", "nan"),
]
HOSTILE = [
    "a|b",
    "`x`",
    "```",
    "@org/team",
    "#1",
    "[x](//e)",
    "![](//e)",
    "<img src=x onerror=alert(1)>",
    "</details>",
    "<!-- pytest-rlserve:sticky v1 series=x -->",
    "\u202egnp.exe",
    "\r\n::error::planted",
    ":",
    """\" onload="x' y""",
    "\x1b[31mred\x1b[0m",
    "##[error]planted",
    "x" * 10_000,
    "lone \ud800 surrogate",
    "www.example.invalid",
    "https://example.invalid",
    "GH-1",
    "0123456789abcdef",
    ":tada:",
    "a\\|b",
    "---",
    "1. one",
    "| --- |",
    "$x$",
]


def check(name: str, status: str = "pass", observed: int | None = 784, of: int | None = 784, **more: Any) -> Report:
    return {"name": name, "status": status, "observed": observed, "of": of, "why": "", "findings": [], **more}


def finding(message: str, **more: Any) -> Report:
    return {
        "message": message,
        "severity": "error",
        "path": None,
        "line": None,
        "ids": [],
        "count": 1,
        **more,
    }


def metric(name: str, value: float | None, unit: str, n: int | None, **more: Any) -> Report:
    parts = {"numerator": "…", "denominator": "…", "freshness": "any", "phase": "whole steps", "excluded": []}
    return {"name": name, "value": value, "unit": unit, "n": n, **parts, **more}


def comparison(
    metric: str, verdict: str, unit: str, baseline: float | None, current: float | None, **more: Any
) -> Report:
    delta = None
    if baseline is not None and current is not None:
        delta = current - baseline if unit == "fraction" else current / baseline - 1
    counts = {"jobs": {"baseline": 4, "current": 1}, "runs": {"baseline": 8, "current": 3}}
    row = {"metric": metric, "verdict": verdict, "unit": unit, "baseline": baseline, "current": current}
    row |= {"better": "lower", "delta": delta, "allowed": 0.05, "allowed_by": "policy"}
    row |= {"detectable": 0.031, "needed": 0, "bound": None}
    ranges = {"baseline_range": None, "current_range": None}
    return {
        **row,
        "noise": None,
        **counts,
        **ranges,
        "message": f"{metric} {verdict}",
        "why": None,
        "caution": None,
        **more,
    }


def limit(metric: str, text: str, value: float | None, unit: str, status: str = "pass", **more: Any) -> Report:
    row = {"metric": metric, "limit": text, "value": value, "unit": unit, "status": status, "why": None}
    return {**row, "capture": "run_1", **more}


def capture(name: str, **more: Any) -> Report:
    attempts = {"dispatched": 784, "completed": 780, "canceled": 3, "failed": 1, "open": 0}
    attempts |= {"accepted": 700, "rejected": 80, "pending": 0, "retried": 4}
    requests = {"dispatched": 825, "completed": 821, "canceled": 3, "failed": 1, "open": 0}
    requests |= {
        "accepted": None,
        "rejected": None,
        "pending": None,
        "retried": 4,
        "rows": 821,
        "joined": 821,
    }
    return {
        "name": name,
        "job": "4711",
        "digest": "blake3:" + "5f2c7d09" * 8,
        "sources": [
            {
                "path": "trace.000000.jsonl.gz",
                "format": "dynamo.request.trace.v1",
                "rows": 821,
                "whole": True,
                "findings": 0,
            },
            {
                "path": "attempts.jsonl",
                "format": "rlserve.attempt.v1",
                "rows": 2268,
                "whole": True,
                "findings": 0,
            },
        ],
        "coverage": [{"question": "has a serving row", "of": "requests", "observed": 821, "total": 825}],
        "not_read": [],
        "counts": {"attempts": attempts, "requests": requests, "residuals": {}},
        "checks": [check("rows_fit_schema", observed=821, of=821), check("attempts_reconcile")],
        "metrics": [
            metric(PRIMARY, 39.1, "trajectories/s", 700),
            metric("ttft.p99", None, "s", 821, why="p99 needs 1,000 requests, 821 completed"),
            metric("kv_reuse_fraction", 0.645, "fraction", 821),
            metric("transfer_time", 0.0123, "s", 4),
        ],
        **more,
    }


def report(verdict: str, **more: Any) -> Report:
    return {
        "schema": "rlserve.report.v1",
        "verdict": verdict,
        "not_run": [],
        "series": "qwen3-0.6b-4w",
        "policy": {"path": "rlserve.toml", "origin": "file"},
        "captures": [capture("run_1")],
        "limits": [],
        "comparisons": [],
        "baseline_changes": [],
        "why": [],
        "provenance": {"commit": "a1b2c3d", "baseline": {"path": "baselines/qwen3-0.6b-4w.json", "jobs": 4}},
        **more,
    }


def passed() -> Report:
    return report(
        "pass",
        limits=[limit("kv_reuse_efficiency", ">= 0.80", 0.912, "fraction", capture="run_1")],
        comparisons=[
            comparison(PRIMARY, "unchanged", "trajectories/s", 41.7, 41.5, better="higher"),
            comparison("update_downtime", "improved", "s", 1.92, 1.31, allowed=0.2, detectable=0.083),
        ],
    )


def regressed() -> Report:
    return report(
        "regressed",
        captures=[capture("run_1"), capture("run_2"), capture("run_3")],
        limits=[
            limit("ttft.p95", "<= 1.5s", 1.61, "s", "failed", capture="run_2", why="most on worker 6db3…eed1"),
            limit("kv_reuse_efficiency", ">= 0.80", 0.912, "fraction", capture="run_1"),
        ],
        comparisons=[
            comparison("request_latency.p50", "unchanged", "s", 0.812, 0.815),
            comparison(PRIMARY, "regressed", "trajectories/s", 41.7, 39.1, better="higher", message=MESSAGE),
            comparison("kv_reuse_fraction", "regressed", "fraction", 0.912, 0.645, better="higher", allowed=0.02),
            comparison("update_downtime", "inconclusive", "s", 1.31, 1.48, allowed=0.2, detectable=0.284)
            | {"why": "one job of noise: two more jobs would decide it"},
            comparison("ttft.p95", "waived", "s", 1.31, 1.48, why="serving-oncall until 2027-01-31: tracked in #123"),
        ],
        baseline_changes=[
            {
                "metric": PRIMARY,
                "baseline": 43.2,
                "current": 41.7,
                "delta": -0.035,
                "reason": "safer sampling",
            }
        ],
        why=[
            {"factor": "residence", "delta": 0.064, "share": 0.97, "unit": "ratio"},
            {"factor": "in flight", "delta": 0.001, "share": 0.01, "unit": "ratio"},
            {"factor": "completion", "delta": -0.002, "share": 0.02, "unit": "ratio"},
        ],
    )


def inconclusive() -> Report:
    no_control = capture("run_1")
    no_control["checks"].append(
        check("no_stale_kv", "inconclusive", None, None, why="no control records say when weights changed")
    )
    no_control["counts"]["requests"] = None
    return report(
        "inconclusive",
        captures=[no_control],
        comparisons=[
            comparison(PRIMARY, "inconclusive", "trajectories/s", 41.7, 40.9, better="higher", detectable=0.093)
            | {"why": "assumed noise; 3 more jobs would decide it"},
            comparison("ttft.p99", "no_baseline", "s", None, 1.31, allowed=None, detectable=None),
        ],
    )


def invalid() -> Report:
    torn = capture("run_1")
    ids = [f"attempt-{i}" for i in range(12)]
    torn["checks"] = [
        check("shards_are_whole", "error", 1, 2)
        | {"findings": [finding("the last gzip member is cut short", path="trace.000001.jsonl.gz", line=412)]},
        check("attempts_reconcile", "fail", 772, 784, why="12 of 784 attempts never ended, 7 never began")
        | {
            "findings": [
                finding("attempts have no outcome", path="attempts.jsonl", line=31, ids=ids, count=12),
                *(finding(f"line {i} names an attempt that was never dispatched") for i in range(7)),
            ]
        },
        check("rows_fit_schema", observed=821, of=821),
    ]
    torn["counts"]["residuals"] = {
        "attempts without an outcome": {"count": 12, "ids": ids[:5]},
        "rows not joined": {"count": 0, "ids": []},
    }
    torn["counts"]["attempts"] |= {"completed": 768, "open": 12, "accepted": 688}
    torn["not_read"] = [{"path": "notes.txt", "why": "no reader knows this format"}]
    torn["sources"][0]["whole"] = False
    return report("invalid", captures=[torn])


def incomplete() -> Report:
    return passed() | {
        "verdict": "incomplete",
        "not_run": [f"rlserve.toml::metrics::latency_{i}" for i in range(7)],
    }


def awkward() -> Report:
    """Bug case 32: twelve requests over a latency budget, each with an awkward session id."""
    late = [
        finding("total_time_ms is above 500", path="trace.jsonl", line=i + 1, ids=[name])
        for i, name in enumerate(AWKWARD_IDS)
    ]
    run = capture(
        "run_1",
        checks=[check("requests_within_budget", "fail", 0, 12, why="12 requests were late", findings=late)],
    )
    return report("failed", captures=[run])


def hostile(text: str) -> Report:
    """A report in which everything that may come from outside is `text`."""
    run = capture(text, job=text, digest=text)
    run["sources"] = [{"path": text, "format": text, "rows": 1, "whole": False}]
    run["coverage"] = [{"question": text, "of": text, "observed": 1, "total": 2}]
    run["not_read"] = [{"path": text, "why": text}]
    run["counts"]["residuals"] = {text: {"count": 3, "ids": [text]}}
    run["checks"] = [
        check(text, "fail", why=text, findings=[finding(text, path=text, line=1, ids=[text] * 7, count=9)]),
        check(text, findings=[finding(text, severity="note")]),
    ]
    run["metrics"] = [metric(text, 1.5, text, 1), metric(text, None, text, None, why=text)]
    return report(
        "failed",
        not_run=[text] * 7,
        series=text,
        policy={"path": text, "origin": text},
        captures=[run, copy.deepcopy(run)],
        limits=[limit(text, text, 2.0, text, status, capture=text, why=text) for status in ("failed", "pass")],
        comparisons=[
            comparison(text, verdict, text, 2.0, 1.0, message=f"{text}\n  {text}", why=text)
            for verdict in ("regressed", "unchanged")
        ],
        baseline_changes=[{"metric": text, "baseline": 1.0, "current": 2.0, "delta": 1.0, "reason": text}],
        why=[{"factor": text, "delta": 1.0, "share": 0.5}],
        provenance={text: text, "nested": {text: [text, text]}},
    )


def long(rows: int = 10_000) -> Report:
    """A report with so many rows of every kind that no comment can hold them."""
    run = capture("run_1")
    run["checks"] = [check(f"check_{i}", "fail", why="… and why") for i in range(rows)]
    run["metrics"] = [metric(f"metric_{i}", i / 7, "s", i) for i in range(rows)]
    kinds = ("regressed", "unchanged", "unchanged")
    return report(
        "regressed",
        captures=[run],
        comparisons=[comparison(f"metric_{i}", kinds[i % 3], "s", 1.0, 1.0 + i / rows) for i in range(rows)],
    )


STORIES = {f.__name__: f for f in (passed, regressed, inconclusive, invalid, incomplete, awkward)}
