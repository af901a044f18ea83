"""`python -m slime.contracts --custom-rm-path my_rm.py ...`: checks each given hook; other flags are passed to
hooks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from claw_base.settings.command_line import environment
from slime.arguments.parser import read_values
from slime.contracts import check
from slime.errors import ConfigError
from slime.flags import GROUPS, Arguments
from slime.hooks import HOOKS


def main(argv: Sequence[str]) -> int:
    """Prints one line a hook; returns 0 if all fulfil their contract, 1 if one does not, 2 for invalid flags."""
    try:
        values = read_values(argv, GROUPS, environment(), "python -m slime.contracts")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    args, defaults = Arguments(), vars(Arguments())
    for name, value in values.items():
        setattr(args, name, value)
    hooks = {name: values[name] for name in HOOKS if values.get(name) and values[name] != defaults.get(name)}
    if not hooks:
        print(
            f"error: name a hook to check: {', '.join(HOOKS[name].flag for name in HOOKS)}", file=sys.stderr
        )
        return 2
    broken = 0
    for name, value in hooks.items():
        for path in value if isinstance(value, list) else [value]:
            try:
                print(f"ok      {HOOKS[name].flag} {path}: {check(name, path, args)}", flush=True)
            except ConfigError as error:
                broken += 1
                print(f"BROKEN  {error}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
