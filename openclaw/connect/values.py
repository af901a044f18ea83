"""Values in nested settings: put in by their paths, and taken out again so that what was there before is back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Path_ = tuple[str, ...]
Values = Mapping[Path_, Any]
Config = dict[str, Any]

ABSENT = {"absent": True}
"""Stands for what was not there."""


def put_in(config: Config, values: Values) -> tuple[Config, list[list[Any]]]:
    """The new content, and notes of what was there before: (path, value or ABSENT), in the order of the changes."""
    new, before = copy.deepcopy(config), []
    for path, value in values.items():
        here = new
        for depth, name in enumerate(path[:-1], 1):
            if not isinstance(here.get(name), dict):
                before.append([list(path[:depth]), here.get(name, ABSENT)])
                here[name] = {}
            here = here[name]
        before.append([list(path), copy.deepcopy(here.get(path[-1], ABSENT))])
        here[path[-1]] = value
    return new, before


def take_out(config: Config, values: Values, before: list[list[Any]]) -> tuple[Config, list[str]]:
    """The content as it was before, and the names of values that others have changed meanwhile: those stay."""
    new, stayed = copy.deepcopy(config), []
    for path, old in reversed(before):
        here = _parent(new, path)
        name = path[-1]
        if here is None or name not in here:
            continue
        ours = values.get(tuple(path), {})  # an object that was made for our values must be empty by now
        if here[name] != ours:
            stayed += [".".join(path)] if tuple(path) in values else []
        elif old == ABSENT:
            here.pop(name)
        else:
            here[name] = old
    return new, stayed


def _parent(config: Config, path: list[str]) -> Config | None:
    here: Any = config
    for name in path[:-1]:
        here = here.get(name) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else None
