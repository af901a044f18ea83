"""Parses the flags of the trainer with `parse_args`, and validates them with `validate`.

Importing this does not load torch: the driver parses its flags in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claw_base.settings.command_line import environment
from slime.arguments.parser import read_values
from slime.arguments.plugin_flags import check_plugin_flags
from slime.arguments.rules.parallel import check_packages
from slime.arguments.rules.validation import validate
from slime.flags import GROUPS, Arguments


def parse_args(
    argv: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    prog: str | None = None,
    packages: bool = True,
) -> Arguments:
    """Parses, validates and completes the arguments: flags override the environment, which overrides defaults.

    Args:
        argv: command-line arguments; None: those of the process.
        env: environment; None: that of the process.
        packages: reject a backend whose package is not installed; not for a plan.

    Raises:
        ConfigError: with the fault and the remedy in one line.
        SystemExit: after --help.
    """
    if argv is None:
        import sys

        argv = sys.argv[1:]
    values = read_values(argv, GROUPS, environment() if env is None else env, prog)
    args = Arguments()
    for name, value in values.items():
        setattr(args, name, value)
    validate(args)
    check_plugin_flags(args)
    if packages:
        check_packages(args)
    return args


__all__ = ["GROUPS", "Arguments", "parse_args", "validate"]
