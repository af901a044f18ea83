"""Parsing of a call stops exactly when no further characters can make it valid."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw.formats.call_prefix import CallPrefix

NAMES = frozenset({"read", "write"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def possible(text: str, size: int = 1) -> bool:
    prefix = CallPrefix(NAMES)
    return all(prefix.add(text[at : at + size]) for at in range(0, len(text), size))


def is_sound(text: str) -> bool:
    try:
        call = json.loads(text)
    except ValueError:
        return False
    return isinstance(call, dict) and call.get("name") in NAMES and isinstance(call.get("arguments"), dict)


@given(
    arguments=st.dictionaries(st.text(), VALUES), ascii_only=st.booleans(), indent=st.sampled_from([None, 1])
)
@settings(max_examples=150, deadline=None)
def test_every_prefix_of_a_valid_call_is_accepted(
    arguments: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    call = {"x": [1], "name": "read", "arguments": arguments}
    text = json.dumps(call, ensure_ascii=ascii_only, indent=indent)
    prefix = CallPrefix(NAMES)
    assert all(prefix.add(character) for character in text + "\n")
    assert prefix.arguments is not None and json.loads(text[slice(*prefix.arguments)]) == arguments
    assert possible(text, 7) and possible(text, 10_000)


def test_no_valid_mutation_of_a_call_is_rejected() -> None:
    chance = random.Random(1)
    sound = '{"name": "read", "arguments": {"a": [-1.5e+3, true, "\\u00e9\\n"], "b": {"c": null}}}'
    given_up = 0
    for _ in range(5000):
        text = list(sound)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 2)] = chance.choice(
                ['"', "}", "{", "\\", ",", "7", " ", "e", ""]
            )
        mutated = "".join(text)
        given_up += not possible(mutated)
        assert possible(mutated) or not is_sound(mutated), mutated
    assert given_up > 3000


@pytest.mark.parametrize(
    ("text", "given_up_at"),
    [
        ("oops", 1),
        ("[", 1),
        ('{"name": 5', 10),
        ('{"name": "search"', 17),
        ('{"name": ""', 11),
        ('{"name": "read", "arguments": [', 31),
        ('{"name": "read", "arguments": {"a": 01', 38),
        ('{"name": "read", "arguments": {"a": NaN', 37),
        ('{"name": "read", "arguments": {"a": trux', 40),
        ('{"name": "read", "arguments": {"a"}', 35),
        ('{"name": "read", "arguments": {"a": "\n', 38),
        ('{"name": "read", "arguments": {"a": "\\x', 39),
        ('{"name": "read", "arguments": {"a": "\\u12g', 42),
        ('{"name": "read", "arguments": {"a": 1,}', 39),
        ('{"name": "read", "arguments": {"a": 1.}', 39),
        ('{"name": "read", "arguments": {}}}', 34),
        ('{"name": "read", "arguments": {]', 32),
    ],
)
def test_parsing_of_a_call_stops_at_the_first_impossible_character(text: str, given_up_at: int) -> None:
    assert possible(text[: given_up_at - 1]) and not possible(text[:given_up_at])
