"""`python -m slime.hooks` prints the table of hooks for the documentation."""

from __future__ import annotations

from slime.hooks import HOOKS, Hook


def markdown() -> str:
    """Returns one row a hook: flag, signatures, when it is called or why not, its name in a file."""
    lines = ["| flag | signature | called | name |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_row(hook) for hook in HOOKS.values())])


def _row(hook: Hook) -> str:
    flag = f"`{hook.flag}`" + (" (repeatable)" if hook.repeatable else "")
    called = hook.called if hook.refused is None else f"refused: {hook.refused}"
    return f"| {flag} | {hook.texts.replace('|', chr(92) + '|')} | {called} | `{hook.attr}` |"


if __name__ == "__main__":
    print(markdown())
