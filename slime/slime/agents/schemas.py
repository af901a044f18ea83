"""The part of JSON Schema that tools need: whether arguments are valid, and whether any can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def complaints(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields the errors in the arguments of a call, as messages for the model. Unsupported parts of JSON Schema, such
    as `anyOf`, are left to the tool."""
    known = schema.get("properties") or {}
    required = schema.get("required") or ()
    for name in required:
        if name not in arguments:
            yield f"the argument {name} is missing"
    named = bool(known or required) or schema.get("additionalProperties") is False
    for name, value in arguments.items():
        if name in known:
            yield from _of_value(name, value, known[name])
        elif name not in required and named and not schema.get("additionalProperties"):
            yield f"there is no argument {name}"


def _of_value(name: str, value: object, schema: object) -> Iterator[str]:
    if not isinstance(schema, Mapping):  # true: anything, false: nothing
        if schema is False:
            yield f"there is no argument {name}"
        return
    kinds = _kinds(schema)
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"the argument {name} must be of type {' or '.join(kinds)}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"the argument {name} must be one of {', '.join(map(repr, schema['enum'])):.200}"


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind]) if kind in TYPES else True


def problem_of(schema: object) -> str | None:
    """Returns why no arguments can be valid for a tool's schema, or why the schema is invalid; None if some can."""
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return f"it must be a JSON schema of an object, got {schema!r:.80}"
    known, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(known, Mapping) or not isinstance(required, list):
        return "its `properties` must be an object, and its `required` a list"
    for name, one in known.items():
        if problem := _problem_of_value(one):
            return f"its argument {name} {problem}"
    for name in required:
        of = known.get(name, True)
        if of is False or (name not in known and schema.get("additionalProperties") is False):
            return f"it requires the argument {name}, which it does not allow"
        if isinstance(of, Mapping) and of.get("enum") == []:
            return f"it requires the argument {name}, whose enum allows no value"
    return None


def _problem_of_value(schema: object) -> str | None:
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, Mapping):
        return f"must have a JSON schema, got {schema!r:.80}"
    declared = schema.get("type", [])
    kinds = declared if isinstance(declared, list) else [declared]
    if wrong := [kind for kind in kinds if not isinstance(kind, str) or kind not in TYPES]:
        return f"has the unknown type {wrong[0]!r}; types: {', '.join(TYPES)}"
    return None if isinstance(schema.get("enum", []), list) else "has an enum that is not a list"
