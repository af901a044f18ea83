"""Tables of settings in the documentation, generated from the declarations."""

from __future__ import annotations

from collections.abc import Sequence

from claw_base.settings.declare import Flag

COLUMNS = ("flag", "variable", "type", "default", "meaning")


def table(flags: Sequence[Flag]) -> list[str]:
    """Returns the lines of a Markdown table, one row a flag."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    return lines + [f"| {' | '.join(_cells(item))} |" for item in flags]


def _cells(item: Flag) -> tuple[str, ...]:
    """Returns the cells of a row; an empty cell is a dash."""
    kind = [" \\| ".join(item.choices) if item.choices else item.type.__name__]
    kind += ["repeatable"] if item.repeatable else []
    kind += [text for text in (item.unit, item.bounds.range) if text]
    return (
        "—" if item.variable_only else _code(item.options),
        _code(item.env),
        ", ".join(kind),
        "—" if item.default in (None, "", [], ()) else f"`{item.default}`",
        item.help.replace("|", "\\|"),
    )


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "—"
