"""Where the value of each argument comes from: a word of the command line, a variable, or a default.

A launch script marks its words: all behind `::SOURCE` are from there, up to the next mark.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from claw_base.settings.declare import option
from slime.arguments import GROUPS, Arguments
from slime.arguments.parser import complete_parser

_MARK = re.compile(r"::(script|command line|variable \w+)")
DEFAULT, DERIVED = "default", "derived"
_VARIABLES = re.compile(r"\[env:? ([A-Z0-9_, ]+)\]")
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True)
class Origin:
    """One argument as it is shown: flag, value, and where the value comes from."""

    flag: str
    value: str
    source: str


def unmarked(words: Sequence[str]) -> list[tuple[str, str]]:
    """(word, source) of every word that is no mark."""
    found, source = [], "command line"
    for word in words:
        if mark := _MARK.fullmatch(word):
            source = mark[1]
        else:
            found.append((word, source))
    return found


def origins(
    args: Arguments,
    marked: Sequence[tuple[str, str]],
    env: Mapping[str, str],
    script_variables: Collection[str] = (),
) -> list[Origin]:
    """Every argument that the driver has, those of plug-ins included.

    Args:
        args: what came out of `marked` and `env`.
        script_variables: names of variables that the launch script set by itself.
    """
    parser, flags, filed = complete_parser([word for word, _ in marked], GROUPS, env)
    defaults = {item.name: item.default for item in flags}
    actions = {action.dest: action for action in parser._actions}
    by_option = {name: action.dest for action in parser._actions for name in action.option_strings}
    given = {
        by_option[name]: source for word, source in marked if (name := word.split("=", 1)[0]) in by_option
    }
    given |= dict.fromkeys(filed, "--custom-config-path")
    found = [
        _origin(action, args, given, env, defaults.get(name, action.default))
        for name, action in actions.items()
    ]
    own = {f"variable {name}" for name in script_variables}
    return [replace(one, source="script") if one.source in own else one for one in found]


def _origin(
    action: argparse.Action,
    args: Arguments,
    given: Mapping[str, str],
    env: Mapping[str, str],
    default: object,
) -> Origin:
    """`default`: the value without flag and variable."""
    name = action.dest
    value, source = getattr(args, name, None), given.get(name)
    if source is None:
        listed = _VARIABLES.search(action.help or "")
        names = [one.strip() for one in listed[1].split(",")] if listed else []
        there = [one for one in names if env.get(one)]
        variable = next((one for one in there if env[one] == value), there[0] if there else None)
        if variable is not None:
            source, value = f"variable {variable}", env[variable] if value is None else value
        else:
            source = DEFAULT if value == default else DERIVED
    return Origin(option(name), shown(value), source)


def shown(value: object) -> str:
    """A value for people; user and password of a URL are left out."""
    if value is None or value == []:
        return "-"
    return _SECRET.sub("...@", str(value))
