"""The schemas themselves: described, exemplified, and strict wherever they say so."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[1] / "schemas"
SCHEMAS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}

ANNOTATIONS = {"$schema", "$id", "$comment", "$defs", "title", "description", "default", "examples"}
STRUCTURE = {"properties", "items", "allOf", "if", "then"}
CONSTRAINTS = {"type", "const", "enum", "minimum", "maximum", "minLength", "pattern", "minItems", "maxItems"}
CONSTRAINTS |= {"required", "additionalProperties"}

Place = tuple[str | int, ...]
every_schema = pytest.mark.parametrize("name", SCHEMAS)


class Mutation(NamedTuple):
    """A document with one fault, and the rule and keyword that must see it at that place."""

    rule: str
    keyword: str
    place: Place
    document: Any


def inlined(node: Any, defs: dict[str, Any]) -> Any:
    """Return the schema with each reference replaced by what it refers to."""
    if isinstance(node, list):
        return [inlined(part, defs) for part in node]
    if not isinstance(node, dict):
        return node
    target = inlined(defs[node["$ref"].removeprefix("#/$defs/")], defs) if "$ref" in node else {}
    kept = {key: part for key, part in node.items() if key not in {"$ref", "$defs", "examples"}}
    return target | {key: inlined(part, defs) for key, part in kept.items()}


INLINED = {name: inlined(schema, schema.get("$defs", {})) for name, schema in SCHEMAS.items()}


def subschemas(node: dict[str, Any], trail: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each subschema that judges (a condition does not), with the way to it."""
    yield trail, node
    for key, part in node.get("properties", {}).items():
        yield from subschemas(part, f"{trail}/{key}")
    for number, part in enumerate(node.get("allOf", [])):
        yield from subschemas(part, f"{trail}(all {number})")
    for keyword, step in (("items", "/[]"), ("additionalProperties", "/*"), ("then", "(then)")):
        if isinstance(node.get(keyword), dict):
            yield from subschemas(node[keyword], trail + step)


def rules(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each constraint of one subschema as keyword and label; `required` once for each name."""
    for keyword in sorted(CONSTRAINTS & set(node)):
        if keyword == "required":
            yield from ((keyword, f"required {key}") for key in node[keyword])
        elif not isinstance(node[keyword], dict):
            yield keyword, keyword


def broken(keyword: str, label: str, limit: Any, value: Any) -> list[Any]:
    """Return variants of `value` that this constraint must refuse; none if it does not touch such a value."""
    match keyword, value:
        case "type", _:
            judge = Draft202012Validator({"type": limit})
            kinds: list[Any] = [None, True, "text", 1.5, 7, [], {}]
            return [kind for kind in kinds if not judge.is_valid(kind)]
        case "const" | "enum", _:
            return ["no such word"]
        case "minimum", int() | float():
            return [limit - (math.inf if limit < -1e300 else 1)]
        case "maximum", int() | float():
            return [limit + (math.inf if limit > 1e300 else 1)]
        case "minLength", str():
            return [""]
        case "pattern", str():
            return [f"{value}?"]
        case "minItems", list():
            return [value[: limit - 1]]
        case "maxItems", list():
            return [value[:1] * (limit + 1)]
        case "required", dict():
            return [{key: part for key, part in value.items() if label != f"required {key}"}]
        case "additionalProperties", dict():
            return [value | {"no_such_key": 1}]
    return []


def mutations(node: dict[str, Any], document: Any, trail: str = "", place: Place = ()) -> Iterator[Mutation]:
    """Yield `document` with one fault for each constraint that touches it."""
    value = document
    for step in place:
        value = value[step]
    for keyword, label in rules(node):
        for variant in broken(keyword, label, node[keyword], value):
            yield Mutation(f"{trail} {label}", keyword, place, replaced(document, place, variant))
    for number, part in enumerate(node.get("allOf", [])):
        yield from mutations(part, document, f"{trail}(all {number})", place)
    if "if" in node and Draft202012Validator(node["if"]).is_valid(value):
        yield from mutations(node["then"], document, f"{trail}(then)", place)
    if isinstance(value, list) and "items" in node:
        for index in range(len(value)):
            yield from mutations(node["items"], document, f"{trail}/[]", (*place, index))
    if isinstance(value, dict):
        listed, others = node.get("properties", {}), node.get("additionalProperties")
        for key in value:
            if key in listed:
                yield from mutations(listed[key], document, f"{trail}/{key}", (*place, key))
            elif isinstance(others, dict):
                yield from mutations(others, document, f"{trail}/*", (*place, key))


def replaced(document: Any, place: Place, value: Any) -> Any:
    """Return a copy of `document` with `value` at `place`."""
    if not place:
        return value
    result = copy.deepcopy(document)
    parent = result
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = value
    return result


@every_schema
def test_a_schema_is_valid_and_named_after_its_file(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:pytest-rlserve:{name}"
    assert schema["properties"]["schema"]["const"] == name


def test_there_is_one_schema_for_each_format() -> None:
    ours = {f"rlserve.{kind}.v1" for kind in ("attempt", "control", "capture", "baseline", "report")}
    assert set(SCHEMAS) == {"dynamo.request.trace.v1"} | ours


@every_schema
def test_no_keyword_is_mistyped(name: str) -> None:
    known = ANNOTATIONS | STRUCTURE | CONSTRAINTS
    assert not {keyword for _, node in subschemas(INLINED[name]) for keyword in node} - known


@every_schema
def test_every_property_says_what_it_means_and_every_number_its_unit(name: str) -> None:
    numeric = {"integer", "number"}
    for trail, node in subschemas(INLINED[name]):
        for key, part in node.get("properties", {}).items():
            assert part.get("description", "").strip(), f"{trail}/{key} has no description"
            kinds = part.get("type", [])
            if numeric & ({kinds} if isinstance(kinds, str) else set(kinds)):
                assert "Unit: " in part["description"], f"{trail}/{key} has no unit"


@every_schema
def test_every_example_is_valid(name: str) -> None:
    assert len(SCHEMAS[name]["examples"]) > 1
    for example in SCHEMAS[name]["examples"]:
        VALIDATORS[name].validate(example)


@every_schema
def test_the_examples_touch_every_constraint(name: str) -> None:
    stated = {f"{trail} {label}" for trail, node in subschemas(INLINED[name]) for _, label in rules(node)}
    examples = SCHEMAS[name]["examples"]
    touched = {fault.rule for example in examples for fault in mutations(INLINED[name], example)}
    assert sorted(stated - touched) == []


@every_schema
def test_every_violation_of_a_constraint_is_refused(name: str) -> None:
    missed = [
        (fault.rule, fault.place)
        for example in SCHEMAS[name]["examples"]
        for fault in mutations(INLINED[name], example)
        if not any(
            (error.validator, tuple(error.absolute_path)) == (fault.keyword, fault.place)
            for error in VALIDATORS[name].iter_errors(fault.document)
        )
    ]
    assert missed == []


def test_a_metric_without_a_value_must_say_why() -> None:
    report = SCHEMAS["rlserve.report.v1"]["examples"][0]
    silent = replaced(report, ("captures", 0, "metrics", 0, "value"), None)
    assert not VALIDATORS["rlserve.report.v1"].is_valid(silent)
