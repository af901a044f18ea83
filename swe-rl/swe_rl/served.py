"""Repositories behind HTTP on other hosts: `python -m slime.pool --environment swe_rl.served:environment`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from claw_base.settings.command_line import environment as variables
from claw_base.settings.command_line import from_environment
from claw_base.settings.declare import flags_of
from slime.agents import Environment
from swe_rl.generate import SweFlags, maker


@functools.cache
def _make() -> Callable[[], Environment]:
    return maker(SweFlags(**from_environment(flags_of(SweFlags), variables())))


def environment() -> Environment:
    """One environment, by the variables of this track as they are on this host. Raises ConfigError."""
    return _make()()
