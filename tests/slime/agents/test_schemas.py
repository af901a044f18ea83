"""Tests schemas of tools: tools with arguments and without."""

from __future__ import annotations

from typing import Any

import pytest

from slime.agents.schemas import complaints, problem_of

OPEN: dict[str, Any] = {"type": "object"}


@pytest.mark.parametrize(
    ("properties", "arguments"),
    [
        ({"x": {"type": ["string", "null"]}}, {"x": None}),
        ({"x": True}, {"x": [1]}),
        ({"x": {"anyOf": [{"type": "string"}]}}, {"x": "a"}),
        ({"x": {"type": "integer"}}, {"x": 3.0}),
        ({"x": {"enum": ["a", "b"]}}, {"x": "b"}),
    ],
)
def test_common_schema_keywords_are_supported(properties: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert list(complaints(arguments, {"type": "object", "properties": properties})) == []


@pytest.mark.parametrize("schema", [OPEN, {**OPEN, "properties": {}}, {**OPEN, "required": ["x"]}])
def test_an_empty_schema_accepts_anything(schema: dict[str, Any]) -> None:
    assert list(complaints({"x": 1}, schema)) == [] and problem_of(schema) is None


@pytest.mark.parametrize(
    ("schema", "arguments", "complaint"),
    [
        ({"properties": {"x": {"type": ["string", "null"]}}}, {"x": 1}, "x must be of type string or null"),
        ({"properties": {"x": {"enum": ["a", "b"]}}}, {"x": "c"}, "x must be one of 'a', 'b'"),
        ({"properties": {"x": {}}}, {"y": 1}, "there is no argument y"),
        ({"additionalProperties": False}, {"y": 1}, "there is no argument y"),
        ({"required": ["x"]}, {"y": 1}, "the argument x is missing"),
    ],
)
def test_the_first_schema_error_is_reported_to_the_model(
    schema: dict[str, Any], arguments: dict[str, Any], complaint: str
) -> None:
    assert complaint in next(complaints(arguments, schema))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "a JSON schema of an object"),
        ({"type": "string"}, "a JSON schema of an object"),
        ({"properties": []}, "must be an object"),
        ({"properties": {"x": {"type": "text"}}}, "x has the unknown type 'text'"),
        ({"properties": {"x": "string"}}, "x must have a JSON schema"),
        ({"properties": {"x": {"enum": "ab"}}}, "x has an enum that is not a list"),
        ({"properties": {"x": False}, "required": ["x"]}, "requires the argument x, which it does not allow"),
        ({"required": ["x"], "additionalProperties": False}, "requires the argument x"),
        ({"properties": {"x": {"enum": []}}, "required": ["x"]}, "whose enum allows no value"),
    ],
)
def test_an_unsatisfiable_schema_is_detected(schema: object, problem: str) -> None:
    found = problem_of(schema)
    assert found is not None and problem in found
