"""The fields of a JSON Schema, one after another, as the reference page lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Field = tuple[str, str, str]


def fields(document: dict[str, Any]) -> Iterator[Field]:
    """Yield name, type and description of every field, and after each those inside it; a required one is bold."""
    return _fields(document, document, "")


def _fields(node: dict[str, Any], document: dict[str, Any], where: str) -> Iterator[Field]:
    for name, given in node.get("properties", {}).items():
        found = _resolved(given, document)
        label = f"`{where}{name}`"
        required = name in node.get("required", ())
        yield f"**{label}**" if required else label, _type(found), found.get("description", "")
        yield from _inside(found, document, f"{where}{name}")


def _inside(node: dict[str, Any], document: dict[str, Any], where: str) -> Iterator[Field]:
    yield from _fields(node, document, f"{where}.")
    for key, sign in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(node.get(key), dict):
            yield from _inside(_resolved(node[key], document), document, where + sign)


def _resolved(node: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Put what a reference points to beneath what stands beside it."""
    if "$ref" not in node:
        return node
    target = document
    for part in node["$ref"].removeprefix("#/").split("/"):
        target = target[part]
    return {**_resolved(target, document), **{key: value for key, value in node.items() if key != "$ref"}}


def _type(node: dict[str, Any]) -> str:
    if "const" in node or "enum" in node:
        return " ".join(f"`{one}`" for one in node.get("enum", [node.get("const")]))
    kind = node.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
