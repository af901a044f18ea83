"""Unsupported flags of slime and Megatron-LM: accepted for values equal to built-in behaviour, else rejected.

A launch script for the original framework thus gets one line about what to remove or replace. The table is
`refused.tsv`: names (`*` ends a prefix), accepted values (`(switch)` for a flag without one), reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slime.arguments.upstream.shape import SHAPE_SWITCHES, is_shape, shape_table
from slime.errors import ConfigError
from slime.hooks import HOOKS

TABLE = Path(__file__).with_name("refused.tsv")
SWITCH = "(switch)"


@dataclass(frozen=True)
class Foreign:
    """A flag that slime does not support.

    Attributes:
        reason: why, and the alternative.
        same: values equal to the built-in behaviour ("" for a switch); they are accepted silently.
    """

    reason: str
    same: tuple[str, ...] = ()


def _read() -> Iterator[tuple[str, Foreign]]:
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        names, same, reason = line.split("\t")
        values = tuple("" if value == SWITCH else value for value in same.split())
        yield from ((name, Foreign(reason, values)) for name in names.split())


_ROWS = dict(_read())
FOREIGN = {name: foreign for name, foreign in _ROWS.items() if not name.endswith("*")}
FOREIGN |= {hook.flag: Foreign(hook.refused) for hook in HOOKS.values() if hook.refused is not None}
PREFIXES = {name[:-1]: foreign for name, foreign in _ROWS.items() if name.endswith("*")}


def take_foreign(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Removes known flags of the original framework from unrecognised arguments.

    Returns:
        The remaining arguments, and the flags of the model's shape with their values.

    Raises:
        ConfigError: a flag requests unsupported behaviour; the message has the reason.
    """
    left: list[str] = []
    shape: dict[str, str] = {}
    for name, value, raw in _pairs(words):
        plain = name.replace("_", "-")
        bare = plain.removeprefix("--")
        if is_shape(bare):
            shape[bare] = value
        elif bare in SHAPE_SWITCHES and value == "":
            continue
        elif (foreign := _foreign(plain)) is None:
            left += raw
        elif value not in foreign.same:
            raise ConfigError(
                f"{name}{' ' if value else ''}{value} is not supported: {foreign.reason}; drop it"
            )
    return left, shape


def _foreign(name: str) -> Foreign | None:
    if name in FOREIGN:
        return FOREIGN[name]
    return next((foreign for prefix, foreign in PREFIXES.items() if name.startswith(prefix)), None)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yields (flag, its value or "", both arguments); an argument without a flag is yielded alone."""
    position = 0
    while position < len(words):
        name, equals, value = words[position].partition("=")
        raw = [words[position]]
        has_own = not equals and name.startswith("--") and position + 1 < len(words)
        if has_own and not words[position + 1].startswith("--"):
            value = words[position + 1]
            raw.append(value)
        position += len(raw)
        yield name, value, raw


def table() -> list[tuple[str, str, str]]:
    """Returns (flag, accepted values, reason) of all flags, for documentation."""
    rows = [
        (name, " ".join(value or "as a switch" for value in foreign.same), foreign.reason)
        for name, foreign in FOREIGN.items()
    ]
    rows += [(f"{prefix}*", "", foreign.reason) for prefix, foreign in PREFIXES.items()]
    return rows + shape_table()
