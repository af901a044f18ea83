"""Prints the help of all flags: `python -m slime.arguments`; with `--markdown` as tables for documentation.

With a hook, as in `python -m slime.arguments --markdown --loss-spec-path my_loss.py:spec`, it prints tables
of the flags that the hook's module declares; the help then includes them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from claw_base.settings.declare import flags_of
from claw_base.settings.documents import table as flag_table
from slime.arguments.parser import complete_parser
from slime.arguments.plugin_flags import plugin_groups, plugin_paths, plugin_variables
from slime.arguments.upstream.refused import table
from slime.flags import GROUPS
from slime.plugins import plugin_modules


def markdown() -> str:
    """Returns one table per group (flag, type, default, environment, meaning), and the rejected flags with
    reasons."""
    lines = [
        "# Flags of slime",
        "",
        "Written by `python -m slime.arguments --markdown > slime/ARGUMENTS.md`.",
        "",
    ]
    for group in GROUPS:
        lines += [f"### {(group.__doc__ or '').splitlines()[0].rstrip('.')}", ""]
        lines += [*flag_table(flags_of(group)), ""]
    lines += [
        "### Flags of the original slime that are not supported",
        "",
        "| flag | accepted values | reason |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {same} | {reason} |" for name, same, reason in table()]
    return "\n".join(lines).rstrip()


def markdown_of(paths: list[str]) -> str:
    """Returns tables of the flags declared by hooks' modules, and of slime's flags that they add variables
    to."""
    modules = plugin_modules(paths)
    own = [item for group in plugin_groups(modules) for item in flags_of(group)]
    more = plugin_variables(modules)
    slimes = [item for group in GROUPS for item in flags_of(group) if item.name in more]
    return "\n".join(flag_table([*own, *(replace(item, env=more[item.name]) for item in slimes)]))


def main() -> None:
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--markdown", action="store_true")
    chosen, words = own.parse_known_args()
    parser = complete_parser(words, GROUPS, {}, prog="train_async.py").parser
    paths = plugin_paths(vars(parser.parse_known_args(words)[0]))
    if chosen.markdown:
        print(markdown_of(paths) if paths else markdown())
    else:
        print(parser.format_help())


if __name__ == "__main__":
    main()
