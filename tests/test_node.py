"""What a worker does around its task; no cluster is needed to see it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pytest_rlserve.engine import node
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import reach
from pytest_rlserve.version import __version__


def seen(names: list[str]) -> list[str | None]:
    return [os.environ.get(name) for name in names]


def test_settings_hold_for_the_task_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the node's")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "the node's")
    monkeypatch.delenv("AWS_REGION", raising=False)
    names = ["AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_REGION"]
    settings: node.Settings = {"AWS_ACCESS_KEY_ID": "ours", "AWS_ENDPOINT_URL": None, "AWS_REGION": "eu-west-1"}
    assert node.work(seen, __version__, settings, names) == ["ours", None, "eu-west-1"]
    assert seen(names) == ["the node's", "the node's", None]


def test_a_task_that_cannot_be_done_is_told_with_the_node_and_leaves_no_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(UsageError, match=f"node {socket.gethostname()} of Ray: .*No such file") as error:
        node.work(Path.read_bytes, __version__, {"AWS_REGION": "eu-west-1"}, tmp_path / "none")
    assert "\n" not in str(error.value)
    assert seen(["AWS_REGION"]) == [None]


def test_another_version_does_nothing() -> None:
    with pytest.raises(UsageError, match=f"it has pytest-rlserve {__version__} and was asked by 0.0.0: install that"):
        node.work(lambda task: pytest.fail("done"), "0.0.0", {}, None)


def test_a_store_is_the_same_elsewhere_and_credentials_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*reach._WHERE, *reach._WHO, *reach._HOW):
        monkeypatch.delenv(name, raising=False)
    nowhere: dict[str, str | None] = dict.fromkeys(reach._WHERE)
    assert reach.settings() == nowhere  # without credentials here the node uses its own
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store")
    assert reach.settings() == nowhere | {
        "AWS_ENDPOINT_URL": "http://store",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "key",
        "AWS_SESSION_TOKEN": None,  # the node's own would not fit
    }
