"""`python -m slime.arguments` prints the help of all flags; with `--markdown` as tables for documents."""

from __future__ import annotations

import sys

from slime.arguments import GROUPS
from slime.arguments.declare import Flag, flags_of
from slime.arguments.parser import add_yielding_flags, build_parser
from slime.arguments.upstream.refused import table


def markdown() -> str:
    """One table a group: flag, type, default, environment, meaning; then what is not taken, and why."""
    lines = [
        "# Flags of slime",
        "",
        "Written by `python -m slime.arguments --markdown > slime/ARGUMENTS.md`.",
        "",
    ]
    for group in GROUPS:
        lines += [f"### {(group.__doc__ or '').splitlines()[0].rstrip('.')}", ""]
        lines += ["| flag | type | default | environment | meaning |", "|---|---|---|---|---|"]
        lines += [_row(item) for item in flags_of(group)] + [""]
    lines += [
        "### Flags of the original that slime does not have",
        "",
        "| flag | taken with | why |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {same} | {reason} |" for name, same, reason in table()]
    return "\n".join(lines).rstrip()


def _row(item: Flag) -> str:
    kind = " \\| ".join(item.choices) if item.choices else item.type.__name__
    kind += ", repeatable" if item.repeatable else ""
    kind += f", {item.bounds}" if str(item.bounds) else ""
    names = ", ".join(f"`{name}`" for name in item.options)
    default = "" if item.default in (None, "", []) else str(item.default)
    meaning = item.help.replace("|", "\\|")
    return f"| {names} | {kind} | {default} | {' '.join(f'`{name}`' for name in item.env)} | {meaning} |"


def main() -> None:
    if "--markdown" in sys.argv[1:]:
        print(markdown())
    else:
        parser = build_parser(GROUPS, prog="train_async.py")
        add_yielding_flags(parser, GROUPS)
        print(parser.format_help())


if __name__ == "__main__":
    main()
