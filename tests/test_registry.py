"""Names lead to things: found by folder, entry point or import, never two under one name."""

from __future__ import annotations

import sys
import textwrap
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from pytest_rlserve import registry as module
from pytest_rlserve.checks import CHECKS
from pytest_rlserve.errors import UsageError
from pytest_rlserve.metrics import METRICS
from pytest_rlserve.readers import READERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_rlserve.registry import Registry


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[str]]:
    """A registry of things whose package has one module; each test may add files to it."""
    package = tmp_path / "thingbox"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from pytest_rlserve.registry import Registry\nTHINGS = Registry('thing', 'thingbox')\n", encoding="utf-8"
    )
    write(package / "inside.py", "inside", "from the folder")
    monkeypatch.syspath_prepend(tmp_path)
    from thingbox import THINGS  # type: ignore[import-not-found]

    yield THINGS
    for name in [name for name in sys.modules if name.split(".")[0] in ("thingbox", "thing_plugin", "thing_conftest")]:
        del sys.modules[name]


def write(path: Path, name: str, thing: str) -> None:
    path.write_text(
        textwrap.dedent(f"""
            from thingbox import THINGS
            THINGS.add({name!r}, {thing!r}, home=__name__)
        """),
        encoding="utf-8",
    )


def test_a_file_in_the_folder_is_found_without_an_edit_elsewhere(things: Registry[str]) -> None:
    assert things["inside"] == "from the folder"
    assert list(things) == ["inside"]


def test_an_entry_point_of_an_installed_distribution_is_found(
    things: Registry[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "thing_plugin.py", "installed", "from an entry point")
    asked = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint("any", "thing_plugin", group)]

    monkeypatch.setattr(module, "entry_points", entry_points)
    assert things["installed"] == "from an entry point"
    assert asked == ["pytest_rlserve.things"]


def test_an_import_is_enough_and_doing_it_twice_is_harmless(things: Registry[str], tmp_path: Path) -> None:
    import importlib

    write(tmp_path / "thing_conftest.py", "local", "first")
    importlib.import_module("thing_conftest")
    assert things["local"] == "first"
    write(tmp_path / "thing_conftest.py", "local", "second time round")
    sys.modules.pop("thing_conftest")
    importlib.invalidate_caches()
    importlib.import_module("thing_conftest")
    assert things["local"] == "second time round"
    assert list(things) == ["inside", "local"]


def test_two_modules_may_not_share_a_name_and_both_are_told(things: Registry[str]) -> None:
    things.add("x", "one", home="here")
    with pytest.raises(UsageError, match="two things are named 'x': in here and in there"):
        things.add("x", "two", home="there")
    assert things["x"] == "one"


def test_a_module_of_the_package_keeps_its_name_against_a_newcomer(things: Registry[str]) -> None:
    things.add("inside", "mine", home="conftest")
    with pytest.raises(UsageError, match=r"in conftest and in thingbox\.inside"):
        things["inside"]


def test_an_unknown_name_is_wrong_use_and_the_nearest_is_offered(things: Registry[str]) -> None:
    with pytest.raises(UsageError, match="no thing is named 'insied'; did you mean 'inside'"):
        things["insied"]
    with pytest.raises(UsageError) as error:
        things["zzz"]
    assert "did you mean" not in str(error.value)


def test_of_many_names_a_message_lists_a_few_that_are_alike(things: Registry[str]) -> None:
    for number in range(30):
        things.add(f"thing_{number:02d}", "", home="here")
    with pytest.raises(UsageError, match=r"; there are thing_20, thing_21, (\w+, ){2}thing_24 \+2[0-9] more$"):
        things["_2"]
    with pytest.raises(UsageError, match=r"; there are (\w+, ){4}\w+ \+2[0-9] more$"):
        things["?"]


def test_names_can_be_asked_for_and_things_come_in_their_order(things: Registry[str]) -> None:
    things.add("a", "last added, first in line", home="here")
    assert "inside" in things
    assert "outside" not in things
    assert things.values() == ["last added, first in line", "from the folder"]


@pytest.mark.parametrize(
    ("registry", "names"),
    [
        (READERS, {"dynamo.request.trace.v1", "rlserve.attempt.v1", "rlserve.control.v1"}),
        (CHECKS, {"rows_fit_schema", "shards_are_whole", "requests_are_unique", "attempts_reconcile"}),
        (METRICS, {"accepted_trajectory_throughput", "ttft", "kv_reuse_fraction", "update_downtime"}),
    ],
    ids=["readers", "checks", "metrics"],
)
def test_the_packages_own_things_are_found_by_folder(registry: Registry[object], names: set[str]) -> None:
    assert names <= set(registry)
