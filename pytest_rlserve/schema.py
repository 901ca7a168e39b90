"""The JSON Schemas of schemas/, and the one sentence that says why a row does not fit.

A message names the field, the rule and the kind of value found, never the value: rows may hold private text.
"""

from __future__ import annotations

import functools
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import nearest

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from jsonschema import Draft202012Validator, ValidationError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,39}")
# In a wheel the schemas are inside the package; in a checkout (and so in an editable install) beside it.
_PACKAGED = files("pytest_rlserve") / "schemas"
ROOT: Traversable = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parents[1] / "schemas"


@functools.cache
def load(name: str) -> dict[str, Any]:
    """Return the schema of that format, e.g. ``rlserve.attempt.v1``."""
    text = (ROOT / f"{name}.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of that format."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(load(name))


@functools.cache
def fields() -> frozenset[str]:
    """Return the names of all fields of all formats."""
    names: set[str] = set()
    left: list[Any] = [load(file.name.removesuffix(".json")) for file in ROOT.iterdir() if file.name.endswith(".json")]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            names.update(one.get("properties", ()))
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return frozenset(names)


def problems(name: str, document: object) -> list[str]:
    """Return every reason why `document` is not of format `name`, best first; none if it fits."""
    from jsonschema.exceptions import relevance

    errors = sorted(validator(name).iter_errors(document), key=relevance, reverse=True)
    return list(dict.fromkeys(sentence for error in errors for sentence in _sentences(error)))


def _sentences(error: ValidationError) -> list[str]:
    """Say what is wrong, going down to the branch that fits best where a schema offers several."""
    from jsonschema.exceptions import relevance

    if error.context:
        deepest = max(error.context, key=lambda e: (len(e.path), relevance(e)))
        return _sentences(deepest)
    where = ".".join(str(part) for part in error.absolute_path) or "the row"
    rule = str(error.validator)
    wanted: Any = error.validator_value
    own: Any = error.schema
    instance: Any = error.instance
    found = _kind(instance)
    match rule:
        case "required":
            missing = [key for key in wanted if key not in instance]
            prefix = "" if where == "the row" else f"{where}."
            return [f"{prefix}{key} is missing" for key in missing]
        case "additionalProperties":
            known = set((own or {}).get("properties", {}))
            return [f"{where} has the unknown key {key!r}{nearest(key, known)}" for key in instance if key not in known]
        case "type":
            return [f"{where} must be {_either(wanted)}, is {found}"]
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            relation = {"minimum": "at least", "maximum": "at most"}.get(rule, rule)
            return [f"{where} must be {relation} {wanted}, is {error.instance}"]
        case "const":
            return [f"{where} must be {wanted!r}, is {_word(error.instance)}"]
        case "enum":
            return [f"{where} must be one of {', '.join(map(str, wanted))}, is {_word(error.instance)}"]
        case _:
            return [f"{where} does not satisfy {rule}"]


def _either(kinds: str | list[str]) -> str:
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)


def _word(value: object) -> str:
    """Show a value that looks like a format's or event's name; anything else only by its kind."""
    return repr(value) if isinstance(value, str) and _NAME.fullmatch(value) else _kind(value)


def _kind(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
