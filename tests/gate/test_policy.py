"""The policy file: every key, every wrong type, and what holds where it says nothing."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

from pytest_rlserve.capture import Capture
from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate.family import Family
from pytest_rlserve.gate.policy import Policy, Waiver
from pytest_rlserve.gate.policy_file import has_policy, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Load = Callable[[str], Policy]

RATE = "accepted_trajectory_throughput"
FULL = """
series = "qwen3-0.6b-4w"
kind = "rollout"
primary = "fresh_trajectory_throughput"
no_baseline = "skip"
looks = 2
[freshness]
kind = "token_mean"
max_lag = 2.5
[window]
skip_steps = 3
start = 1_800_000_000
end = 1_800_000_600.5
[kv]
after_reset = "2s"
[updates]
in_flight = "keep"
[metrics.accepted_trajectory_throughput]
regression = "4%"
[metrics.ttft]
[limits]
"ttft.p99" = "<= 1.5s"
completion_fraction = 0.9
[evidence]
open_attempts = 12
rows_joined = ">= 0.95"
traceable_served = "99%"
also = ["replay_ready"]
[readers.nemo_rl.events]
attempt_sealed = "completed"
[[waivers]]
metric = "ttft"
until = 2027-01-31
owner = "serving-oncall"
reason = "tracked in #123"
"""


@pytest.fixture
def policy(tmp_path: Path) -> Load:
    """Read a policy from text."""

    def read(text: str) -> Policy:
        path = tmp_path / "rlserve.toml"
        path.write_text(text)
        return load(path)

    return read


def wrong(read: Load, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(text)
    message = str(caught.value)
    assert "\n" not in message and message.split(": ", maxsplit=1)[0].endswith("rlserve.toml")
    return message.split(": ", 1)[1]


# -- every key ------------------------------------------------------------------------------------------------------


def test_every_key_is_read(policy: Load) -> None:
    found = policy(FULL)
    assert (found.origin, found.path.name if found.path else None) == ("file", "rlserve.toml")
    assert (found.series, found.kind, found.primary) == ("qwen3-0.6b-4w", "rollout", "fresh_trajectory_throughput")
    assert (found.no_baseline, found.looks, found.alpha) == ("skip", 2, 0.025)
    scope, evidence = found.scope, found.evidence
    assert (scope.freshness, scope.max_lag, scope.skip_steps) == ("token_mean", 2.5, 3)
    assert scope.span == (1_800_000_000.0, 1_800_000_600.5)
    assert scope.after_reset == 2.0
    assert scope.budgets == {"ttft": 1.5}
    assert found.readers == {"nemo_rl": {"events": {"attempt_sealed": "completed"}}}
    assert (evidence.open_attempts, evidence.rows_joined, evidence.traceable_served) == (12, 0.95, 0.99)
    assert evidence.in_flight == "keep"
    assert found.also == ("replay_ready",)
    assert found.gated == {"fresh_trajectory_throughput": 0.05, RATE: 0.04, "ttft.p50": 0.10}
    assert {key: str(limit) for key, limit in found.limits.items()} == {
        "ttft.p99": "<= 1.50 s",
        "completion_fraction": ">= 90.0 %",
    }
    until = datetime.date(2027, 1, 31)
    assert found.waivers == (Waiver(metric="ttft.p50", until=until, owner="serving-oncall", reason="tracked in #123"),)


def test_an_empty_policy_has_the_defaults(policy: Load) -> None:
    found = policy("")
    assert found.gated == Policy().gated == {RATE: 0.05, "update_downtime": 0.20}
    assert (found.series, found.limits, found.waivers, found.looks, found.no_baseline) == (None, {}, (), 1, None)
    assert (found.scope, found.evidence) == (Policy().scope, Policy().evidence)
    assert (found.evidence.open_attempts, found.evidence.rows_joined) == (0, 0.999)


def test_the_table_of_metrics_replaces_the_default_ones_but_the_primary_stays(policy: Load) -> None:
    assert policy("[metrics.ttft]").gated == {RATE: 0.05, "ttft.p50": 0.10}


def test_another_primary_takes_the_place_of_the_first(policy: Load) -> None:
    found = policy('primary = "output_token_throughput"')
    assert found.gated == {"output_token_throughput": 0.05, "update_downtime": 0.20}


def test_a_replay_has_a_primary_of_its_own_and_no_attempts_to_gate(policy: Load) -> None:
    found = policy('kind = "replay"')
    assert (found.primary, found.gated) == ("request_goodput", {"request_goodput": 0.05})


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        (RATE, 0.05),
        ("request_throughput", 0.05),
        ("ttft", 0.10),
        ('"ttft.p95"', 0.10),
        ('"ttft.p99"', 0.15),
        ("update_downtime", 0.20),
        ("acceptance_fraction", 0.02),
    ],
)
def test_what_is_allowed_without_a_word_depends_on_the_kind_of_metric(policy: Load, key: str, allowed: float) -> None:
    assert list(policy(f"[metrics.{key}]").gated.values())[-1] == allowed


@pytest.mark.parametrize("text", ['"5%"', '"5 %"', "0.05", '"0.05"'])
def test_an_allowed_change_is_a_share_or_a_percentage(policy: Load, text: str) -> None:
    assert policy(f"[metrics.ttft]\nregression = {text}").gated["ttft.p50"] == pytest.approx(0.05)


def test_a_table_of_pyproject_is_a_policy_too(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "x"\n[tool.rlserve]\nseries = "s"\n')
    assert has_policy(path)
    assert (load(path).series, load(path).origin) == ("s", "pyproject")
    path.write_text('[project]\nname = "x"\n')
    assert not has_policy(path)
    assert not has_policy(tmp_path / "missing.toml")


# -- wrong ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ('serie = "x"', "serie", "series"),
        ('primay = "x"', "primay", "primary"),
        ("look = 2", "look", "looks"),
        ("[freshnes]", "freshnes", "freshness"),
        ("[freshness]\nlag = 1", "freshness.lag", "max_lag"),
        ("[window]\nskip_step = 1", "window.skip_step", "skip_steps"),
        ("[evidence]\nopen_attempt = 1", "evidence.open_attempt", "open_attempts"),
        ("[evidence]\nrow_joined = 1", "evidence.row_joined", "rows_joined"),
        ("[metrics.ttft]\nregresion = 0.1", "metrics.ttft.regresion", "regression"),
        ('[[waivers]]\nmetric = "ttft"\nowners = "x"', "waivers.owners", "owner"),
        ("[limit]", "limit", "limits"),
        ("[metric.ttft]", "metric", "metrics"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(policy: Load, text: str, key: str, meant: str) -> None:
    assert wrong(policy, text) == f"unknown key {key!r}; did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('primary = "accepted_trajectory_throughputs"', RATE),
        ("[metrics.tftt]", "ttft"),
        ('[limits]\n"tftt.p99" = "<= 1s"', "ttft"),
        ('[evidence]\nalso = ["replay_redy"]', "replay_ready"),
    ],
)
def test_an_unknown_metric_or_check_is_answered_with_the_nearest(policy: Load, text: str, meant: str) -> None:
    assert wrong(policy, text).endswith(f"did you mean {meant!r}?")


def test_an_unknown_statistic_is_answered_with_those_there_are(policy: Load) -> None:
    assert "ttft.p99" in wrong(policy, '[limits]\n"ttft.p98" = "<= 1s"')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("series = 3", "series must be str, is int"),
        ("looks = 1.0", "looks must be int, is float"),
        ("looks = true", "looks must be int, is bool"),
        ('[window]\nskip_steps = "2"', "window.skip_steps must be int, is str"),
        ("freshness = 1", "freshness must be a table"),
        ("metrics = 1", "metrics must be a table"),
        ("[metrics]\nttft = 0.1", "metrics.ttft must be a table"),
        ("limits = []", "limits must be a table"),
        ('waivers = "x"', "waivers must be list, is str"),
        ("[evidence]\nopen_attempts = true", "evidence.open_attempts must be int or float or str, is bool"),
    ],
)
def test_a_wrong_type_is_named_with_the_right_one(policy: Load, text: str, said: str) -> None:
    assert wrong(policy, text).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("looks = 3", "looks must be 1 or 2, is 3"),
        ("looks = 0", "looks must be 1 or 2, is 0"),
        ('no_baseline = "fial"', "no_baseline must be 'fail' or 'skip', is 'fial'; did you mean 'fail'?"),
        ('kind = "rollouts"', "kind must be 'rollout' or 'replay', is 'rollouts'; did you mean 'rollout'?"),
        ('[freshness]\nkind = "first"', "kind must be 'start' or 'end' or 'worst' or 'token_mean', is 'first'"),
        ("[window]\nskip_steps = -1", "window.skip_steps must not be negative"),
        ("[window]\nstart = 5", "window.start and window.end go together"),
        ("[window]\nstart = 5\nend = 5", "window.start and window.end go together"),
        ('[kv]\nafter_reset = "-1s"', "kv.after_reset must not be negative"),
        ("[metrics.ttft]\nregression = 5", "metrics.ttft.regression: 5 is more than the whole: write 5% if"),
        ("[metrics.ttft]\nregression = 0", "metrics.ttft.regression must lie between 0 and 1, is 0"),
        ("[metrics.ttft]\nregression = 1", "metrics.ttft.regression must lie between 0 and 1, is 1"),
        ("[metrics.ttft]\nregression = nan", "metrics.ttft.regression: "),
        ('[metrics.ttft]\nregression = "-5%"', "metrics.ttft.regression must lie between 0 and 1, is -0.05"),
        ('[limits]\n"ttft.p99" = "<= 5"', "limit of ttft.p99: '5' has no unit that fits s"),
        ('[limits]\n"ttft.p99" = true', "limit of ttft.p99: "),
        ('[limits]\n"ttft.p99" = "=> 5s"', "limit of ttft.p99: "),
        ('[evidence]\nrows_joined = "many"', "evidence.rows_joined: 'many' is not a quantity in fraction"),
        ('[kv]\nafter_reset = "2"', "kv.after_reset: '2' has no unit that fits s"),
        ("[metrics.ttft.p50]\nregression = 0.1", 'metrics.ttft.p50 wants quotes, "ttft.p50": without them TOML'),
        ('[limits]\nttft.p99 = "<= 1s"', 'limits.ttft.p99 wants quotes, "ttft.p99": without them TOML'),
    ],
)
def test_a_value_out_of_range_is_refused(policy: Load, text: str, said: str) -> None:
    assert wrong(policy, text).startswith(said)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (key, value)
            for key in ("rows_joined", "traceable_served", "open_attempts")
            for value in ("nan", "inf", "-1")
        ),
        ("rows_joined", "2"),
        ("traceable_served", '"150%"'),
    ],
)
def test_an_amount_that_switches_a_check_off_is_refused(policy: Load, key: str, value: str) -> None:
    wrong(policy, f"[evidence]\n{key} = {value}")


@pytest.mark.parametrize(
    "text",
    [
        'waivers = ["ttft"]',
        "[evidence]\nalso = [1]",
        '[evidence]\nalso = ["attempts_reconcile", "attempts_reconcile"]',
        "[freshness]\nmax_lag = nan",
        '[limits]\nttft = "<= 1s"\n"ttft.p50" = "<= 2s"',
        '[metrics.ttft]\n[metrics."ttft.p50"]\nregression = 0.2',
        '[[waivers]]\nmetric = "ttft"\nuntil = 2027-01-31T10:00:00\nowner = "o"\nreason = "r"',
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(policy: Load, text: str) -> None:
    wrong(policy, text)


@pytest.mark.parametrize("text", ["series = ", "[a", "\x00"])
def test_what_is_no_toml_is_refused(policy: Load, text: str) -> None:
    assert wrong(policy, text).startswith("the policy cannot be read: ")


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the policy cannot be read"):
        load(tmp_path / "none.toml")


# -- waivers ----------------------------------------------------------------------------------------------------------

WAIVER = {"metric": '"ttft"', "until": "2027-01-31", "owner": '"oncall"', "reason": '"#123"'}


def waiver(**changes: str | None) -> str:
    return "[[waivers]]\n" + "".join(f"{key} = {value}\n" for key, value in {**WAIVER, **changes}.items() if value)


@pytest.mark.parametrize("key", WAIVER)
def test_a_waiver_without_one_of_its_parts_is_refused(policy: Load, key: str) -> None:
    assert wrong(policy, waiver(**{key: None})).startswith(f"a waiver needs {key}")


@pytest.mark.parametrize("key", ["owner", "reason"])
def test_a_waiver_with_an_empty_part_is_refused(policy: Load, key: str) -> None:
    assert wrong(policy, waiver(**{key: '""'})).startswith(f"a waiver needs {key}")


def test_a_waiver_with_a_date_in_quotes_is_refused(policy: Load) -> None:
    assert wrong(policy, waiver(until='"2027-01-31"')) == "waivers.until must be date, is str"


def test_a_waiver_holds_through_its_last_day_and_for_its_metric_alone(policy: Load) -> None:
    found = policy(waiver())
    last = datetime.date(2027, 1, 31)
    assert str(found.waiver("ttft.p50", last)) == "waived by oncall until 2027-01-31: #123"
    assert found.waiver("ttft.p50", last + datetime.timedelta(days=1)) is None
    assert found.waiver("ttft.p95", last) is None


def test_of_two_waivers_the_one_that_still_holds_counts(policy: Load) -> None:
    found = policy(waiver(until="2020-01-01", owner='"gone"') + waiver())
    assert found.waiver("ttft.p50", datetime.date(2027, 1, 1)) == found.waivers[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[readers.nemorl.events]", "no reader is named 'nemorl'; did you mean 'nemo_rl'?"),
        ("[readers.nemo_rl.event]", "unknown key 'readers.nemo_rl.event'; did you mean 'events'?"),
        ("[readers]\nnemo_rl = 3", "readers.nemo_rl must be a table"),
        ("[readers.nemo_rl]\nevents = 3", "readers.nemo_rl.events must be a table"),
        ("[readers.nemo_rl.events]\na = 'complete'", "a cannot mean 'complete'; did you mean 'completed'?"),
        ("[readers.nemo_rl.events]\nstep_trained = 'accepted'", "step_trained is known already, as 'step_trained'"),
        ("[readers.slime.events]", "reader slime takes no settings; nemo_rl does"),
    ],
)
def test_what_a_reader_cannot_be_told_is_refused_with_the_nearest_right_name(
    policy: Load, text: str, said: str
) -> None:
    assert said in wrong(policy, text)


def test_the_budget_of_a_request_is_the_widest_of_its_limits(policy: Load) -> None:
    found = policy('[limits]\n"ttft.p95" = "<= 1.5s"\n"ttft.p50" = "<= 300ms"\n"itl.p50" = "<= 20ms"')
    assert found.scope.budgets == {"ttft": 1.5, "itl": 0.02}


def test_who_allows_a_change_is_shown(policy: Load) -> None:
    found = policy('[metrics.accepted_trajectory_throughput]\nregression = "5%"\n[metrics.update_downtime]\n')
    assert found.stated == {"accepted_trajectory_throughput"}
    shown = {
        (key, by.allowed_by)
        for key, allowed in (("accepted_trajectory_throughput", 0.05), ("update_downtime", 0.20), ("ttft.p50", 0.1))
        for by in [Family([Capture(name="none")], found, None).compare(key, allowed)]
    }
    assert shown == {
        ("accepted_trajectory_throughput", "policy"),
        ("update_downtime", "default"),
        ("ttft.p50", "test"),
    }
