"""The documentation is true: what it shows comes out, what there is is in it, and its links lead somewhere."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pytest_rlserve
from pytest_rlserve import schema
from pytest_rlserve.checks import CHECKS
from pytest_rlserve.gate import policy_file
from pytest_rlserve.metrics import METRICS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.append(str(DOCS))

import console  # noqa: E402 - a script beside the pages, not a package

PAGES = [*console.PAGES, *sorted((DOCS / "reference").glob("*.md"))]
TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}
ALL = "\n".join(TEXT.values())
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def label(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(kind: str, without: tuple[str, ...] = ()) -> list[object]:
    return [
        pytest.param(body, id=f"{label(page)}:{text.count(chr(10), 0, found.start()) + 1}")
        for page, text in TEXT.items()
        for found in FENCE.finditer(text)
        if found[1] == kind and (body := found[2]) and not any(word in body for word in without)
    ]


def own(registry: object) -> list[str]:
    """Names that the package itself registered, whatever examples and other tests have added to this process."""
    return [one.name for one in registry.values() if one.func.__module__.startswith("pytest_rlserve.")]


def output(*command: str) -> str:
    words = [sys.executable, "-m", *command]
    return subprocess.run(words, capture_output=True, encoding="utf-8", check=True, cwd=ROOT).stdout


# -- what it shows comes out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in console.PAGES if "```console" in TEXT[page]], ids=label)
def test_what_a_page_shows_is_what_comes_out(page: Path) -> None:
    wrong = [one for one in console.run(page) if not one.holds]

    assert not wrong, "\n".join(
        [
            *(f"{label(page)}:{one.line}: $ {one.text}\n{console.difference(one)}" for one in wrong),
            "python docs/console.py --update rewrites the page",
        ]
    )


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, encoding="utf-8", check=False
    )

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("source", blocks("python"))
def test_code_imports_only_what_there_is(source: str) -> None:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "pytest_rlserve":
            assert {name.name for name in node.names} <= set(pytest_rlserve.__all__)


@pytest.mark.parametrize("source", blocks("json"))
def test_json_fits_the_schema_that_it_names(source: str) -> None:
    document = json.loads(source)

    assert not schema.problems(document["schema"], document)


@pytest.mark.parametrize("source", blocks("toml", without=("[project.entry-points", "busiest_worker_fraction")))
def test_a_policy_that_is_shown_is_taken(source: str, tmp_path: Path) -> None:
    (tmp_path / "rlserve.toml").write_text(source, encoding="utf-8")

    policy_file.load(tmp_path / "rlserve.toml")


# -- what there is is in it ---------------------------------------------------------------------------------------


def test_every_flag_and_setting_of_the_plugin_is_documented() -> None:
    shown = output("pytest", "--help", "-p", "no:cacheprovider")
    flags = set(re.findall(r"^ +(--(?:no-)?rl-[a-z-]+)", shown, re.MULTILINE))
    settings = set(re.findall(r"^ +(rl_[a-z_]+) \(", shown, re.MULTILINE))

    assert {"--rl-trace", "--no-rl-suite"} <= flags
    assert "rl_trace" in settings
    assert not {name for name in flags | settings if f"`{name}" not in ALL}


def test_every_flag_in_the_pages_exists() -> None:
    shown = output("pytest", "--help", "-p", "no:cacheprovider")

    assert not {flag for flag in re.findall(r"--(?:no-)?rl-[a-z-]*[a-z]", ALL) if flag not in shown}


def test_every_command_is_documented() -> None:
    commands = re.findall(r"^    ([a-z]+) ", output("pytest_rlserve", "--help"), re.MULTILINE)

    assert {"check", "measure", "compare", "init"} <= set(commands)
    assert not {name for name in commands if f"`rlserve {name}" not in ALL}


def test_every_policy_key_is_in_the_commented_policy() -> None:
    shown = tomllib.loads((DOCS / "policy.toml").read_text(encoding="utf-8"))

    def missing(known: dict, found: dict, where: str = "") -> list[str]:
        inside = [key for key, wanted in known.items() if isinstance(wanted, dict)]
        below = [one for key in inside for one in missing(known[key], found.get(key, {}), f"{where}{key}.")]
        return [*(f"{where}{key}" for key in known if key not in found), *below]

    assert not missing(policy_file._KEYS, shown)
    policy_file.load(DOCS / "policy.toml")


@pytest.mark.parametrize("name", [*own(CHECKS), *own(METRICS)])
def test_every_check_and_metric_has_an_entry(name: str) -> None:
    assert f"### `{name}`\n" in ALL


def described(node: object) -> set[str]:
    """Return the names of all fields that a schema describes, at any depth."""
    if isinstance(node, list):
        return set().union(*map(described, node))
    if not isinstance(node, dict):
        return set()
    own_fields = {name for name, field in node.get("properties", {}).items() if "description" in field}
    return own_fields.union(*map(described, node.values()))


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "schemas").glob("*.json")))
def test_every_schema_has_an_entry_with_all_its_fields(name: str) -> None:
    section = TEXT[DOCS / "reference" / "formats.md"].partition(f"## `{name}`\n")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| \**`(?:[^`]*\.)?(\w+)`", section, re.MULTILINE))

    fields = described({**schema.load(name), "examples": []})

    assert fields
    assert fields <= rows


@pytest.mark.parametrize("name", pytest_rlserve.__all__)
def test_every_public_name_is_mentioned(name: str) -> None:
    assert re.search(rf"\b{name}\b", ALL), f"{name} is in no page"


# -- its links lead somewhere -------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """Return what headings can be linked to by, as both GitHub and MkDocs name them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / ".github" / "CONTRIBUTING.md", ROOT / "baselines" / "README.md"], ids=label
)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text))

    for link in links:
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{label(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{label(page)} links to {link}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

    for page in PAGES:
        if page.is_relative_to(DOCS):
            assert f"- {page.relative_to(DOCS).as_posix()}\n" in f"{navigation}\n"


# -- the runner itself --------------------------------------------------------------------------------------------


def command(shown: list[str], actual: list[str]) -> console.Command:
    return console.Command("rlserve", 1, shown, actual)


def test_the_runner_sees_a_line_that_differs() -> None:
    assert command(["a", "b"], ["a", "b"]).holds
    assert not command(["a", "b"], ["a", "c"]).holds
    assert not command(["a"], ["a", "b"]).holds


def test_three_dots_stand_for_lines_left_out() -> None:
    assert command(["a", "...", "d"], ["a", "b", "c", "d"]).holds
    assert not command(["a", "...", "d"], ["a", "b", "c"]).holds
    assert not command(["...", "b"], ["b", "c"]).holds


def test_times_may_differ_but_counts_may_not() -> None:
    assert command(["=== 3 passed in 0.11s ==="], ["== 3 passed in 10.52s =="]).holds
    assert not command(["=== 3 passed in 0.11s ==="], ["== 4 passed in 0.11s =="]).holds
