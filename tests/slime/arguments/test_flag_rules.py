"""Tests the rules declared with a flag: bounds, required flags and excluded flags."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from claw_base.settings.declare import flags_of
from claw_base.settings.rules import Bounds, check_flags, excludes, needs
from slime.arguments import GROUPS, Arguments
from slime.errors import ConfigError

NAMES = {item.name for group in GROUPS for item in flags_of(group)}
RULES = [(field.name, rule) for field in dataclasses.fields(Arguments) for rule in field.metadata["rules"]]


def test_a_default_is_never_rejected() -> None:
    check_flags(Arguments())


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_a_rule_names_flags_that_exist_and_its_text_names_the_flag_to_drop(name: str, rule: Any) -> None:
    assert set(rule.names) <= NAMES
    text = rule.text.format_map(vars(Arguments()) | {"flag": f"--{name.replace('_', '-')}", "value": "given"})
    assert "--" in text and "\n" not in text and "{" not in text


@pytest.mark.parametrize(
    ("bounds", "text", "inside", "outside"),
    [
        (Bounds(least=1), "1 or more", [1, 7], [0, float("nan")]),
        (Bounds(least=0, most=1), "from 0 to 1", [0, 0.5, 1], [-0.1, 1.1]),
        (Bounds(least=0, below=1), "0 or more and below 1", [0, 0.99], [1, -1]),
        (Bounds(above=0, most=1), "above 0 and at most 1", [0.1, 1], [0, 2]),
        (Bounds(least=1, also=-1), "1 or more, or -1", [-1, 1], [0, -2]),
        (Bounds(above=0, unit="seconds"), "a number of seconds above 0", [0.1], [0]),
        (Bounds(), "", [-7, 0], [float("nan")]),
    ],
)
def test_bounds_are_checked_as_documented(
    bounds: Bounds, text: str, inside: list[float], outside: list[float]
) -> None:
    assert str(bounds) == text
    assert [bounds.hold(value) for value in (*inside, *outside)] == [True] * len(inside) + [False] * len(
        outside
    )


def test_a_rule_reports_the_missing_or_conflicting_flag() -> None:
    assert needs("use_tis", "use_opsm", loss_type="sft_loss", why="so it is").text == (
        "{flag} would change nothing: it needs --use-tis or --use-opsm or --loss-type sft_loss, so it is"
    )
    rule = excludes("colocate", loss_type=("sft_loss", "custom_loss"))
    defaults = {"colocate": False}
    assert rule.text == "{flag} has no effect with --colocate and --loss-type {loss_type}; drop it"
    assert rule.broken(Arguments(colocate=True, loss_type="sft_loss"), defaults)
    assert not rule.broken(Arguments(colocate=True), defaults)
    assert not rule.broken(Arguments(loss_type="sft_loss"), defaults)


def test_the_refusal_names_the_flag_the_bound_and_the_value() -> None:
    with pytest.raises(ConfigError, match=r"^--adam-beta1 must be 0 or more and below 1, got 1$"):
        check_flags(Arguments(adam_beta1=1))
