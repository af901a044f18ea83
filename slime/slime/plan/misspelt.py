"""Detects environment variables that no program reads, but whose names look like typing mistakes of known ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

_READ_BY_SHELL = re.compile(
    r"\$\{([A-Z][A-Z0-9_]*):?[-+?=]|\bdefault ([A-Z][A-Z0-9_]*) |\bflag --\S+ ([A-Z][A-Z0-9_]*) "
)
_LISTED = re.compile(r"\[env:? ([A-Z0-9_, ]+)\]")
SHORT, LONG = 6, 12
"""Name lengths below which one swap counts as a mistake, and from which two mistakes are considered."""


def misspelt_variables(
    shell: Iterable[str], words: Sequence[str], env: Mapping[str, str], more: Collection[str] = ()
) -> list[str]:
    """Returns a sentence for each variable that is set, is read by no program, and is spelt almost like one that is
    read.

    Args:
        shell: launch scripts, and folders of scripts; the variables that they read are known.
        words: arguments of the driver; the plug-ins in them add known variables.
        more: further known variables.
    """
    known = shell_variables(shell) | flag_variables(words, env) | set(more)
    misspelt = []
    for name in sorted(set(env) - known):
        if (suggestion := closest(name, known)) is not None:
            misspelt.append(f"{name} is set, but no program reads it; did you mean {suggestion}?")
    return misspelt


def shell_variables(places: Iterable[str]) -> set[str]:
    """Returns the variables that launch scripts take from their environment."""
    files: list[Path] = []
    for place in map(Path, places):
        files += sorted(place.glob("*.sh")) if place.is_dir() else [place] if place.is_file() else []
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return {name for names in _READ_BY_SHELL.findall(text) for name in names if name}


def flag_variables(words: Sequence[str], env: Mapping[str, str]) -> set[str]:
    """Returns the variables of all flags, including those of plug-ins as far as they can be loaded."""
    from slime.arguments.parser import all_flags, complete_parser
    from slime.flags import GROUPS

    try:
        parser, flags, *_ = complete_parser(words, GROUPS, env)
    except Exception:  # a plug-in that cannot be loaded has none
        return {name for item in all_flags(GROUPS) for name in item.env}
    listed = [variable for action in parser._actions for variable in _LISTED.findall(action.help or "")]
    return {name for item in flags for name in item.env} | {
        name.strip() for names in listed for name in names.split(",")
    }


def closest(name: str, known: Collection[str]) -> str | None:
    """Returns the known name of which `name` is probably a misspelling; None if there is none."""
    if len(name) < 4 or not name.isupper():
        return None
    near = [(edit_distance(name, other, 2), other) for other in known if abs(len(other) - len(name)) <= 2]
    count, best = min(near, default=(3, ""))
    if count > (2 if len(best) >= LONG else 1) or (len(name) < SHORT and sorted(name) != sorted(best)):
        return None
    return best


@cache
def edit_distance(one: str, other: str, most: int) -> int:
    """Returns the number of missing, surplus, wrong or swapped letters; `most + 1` for more."""
    if one[:1] == other[:1] and one:
        return edit_distance(one[1:], other[1:], most)
    if not one or not other:
        return min(len(one) + len(other), most + 1)
    if most == 0:
        return 1
    distances = [
        edit_distance(one[1:], other, most - 1),
        edit_distance(one, other[1:], most - 1),
        edit_distance(one[1:], other[1:], most - 1),
    ]
    if one[:2] == other[1::-1] and len(one) > 1:
        distances.append(edit_distance(one[2:], other[2:], most - 1))
    return 1 + min(distances)
