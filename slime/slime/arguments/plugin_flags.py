"""Flags of plug-ins: the module of a hook may declare groups, variables, or `add_arguments`.

FLAGS = (MyFlags,)                                  dataclasses of `claw_base.settings.declare.flag`
VARIABLES = {"distill_topk": ("MY_TOPK",)}          more names of the environment for slime's own flags
def add_arguments(parser): ...                      flags for argparse itself
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from claw_base.settings.declare import read
from slime.errors import ConfigError
from slime.hooks import HOOKS
from slime.plugins import plugin_modules


def plugin_paths(values: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the hooks, in order of the table of hooks."""
    paths: list[str] = []
    for name in HOOKS:
        value = values.get(name) or []
        paths += value if isinstance(value, list) else [value]
    return paths


def plugin_groups(modules: Sequence[ModuleType]) -> list[type]:
    """Returns the groups of flags in plug-ins' `FLAGS`, without duplicates."""
    return list(dict.fromkeys(group for module in modules for group in getattr(module, "FLAGS", ())))


def check_plugin_flags(args: object) -> None:
    """Raises ConfigError if a flag of a plug-in's groups violates its bounds or rules."""
    for group in plugin_groups(plugin_modules(plugin_paths(vars(args)))):
        read(group, args)


def plugin_variables(modules: Sequence[ModuleType]) -> dict[str, tuple[str, ...]]:
    """Returns further environment variables for slime's own flags from plug-ins' `VARIABLES`, by flag."""
    names_by_flag: dict[str, tuple[str, ...]] = {}
    for module in modules:
        for name, variables in getattr(module, "VARIABLES", {}).items():
            names_by_flag[name] = tuple(dict.fromkeys((*names_by_flag.get(name, ()), *variables)))
    return names_by_flag


def add_plugin_flags(parser: argparse.ArgumentParser, modules: Sequence[ModuleType]) -> None:
    """Calls `add_arguments` of all hooks' modules, each once.

    Raises:
        ConfigError: a flag already exists.
    """
    parser.argument_default = None
    done: list[Callable[[argparse.ArgumentParser], None]] = []
    for module in modules:
        add_arguments = getattr(module, "add_arguments", None)
        if add_arguments is None or add_arguments in done:
            continue
        done.append(add_arguments)
        try:
            add_arguments(parser)
        except argparse.ArgumentError as error:
            raise ConfigError(
                f"plug-in {module.__name__} declares a flag that already exists: {error}"
            ) from error
