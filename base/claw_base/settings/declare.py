"""How one flag is declared: a dataclass field with its help, choices and environment names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from claw_base.errors import ConfigError
from claw_base.settings.rules import (
    Bounds,
    Rule,
    check_fields,
    default_of,
    excludes,
    flag_fields,
    needs,
    option,
)

__all__ = [
    "FALSE_WORDS",
    "TRUE_WORDS",
    "Flag",
    "convert",
    "excludes",
    "flag",
    "flags_of",
    "needs",
    "option",
    "read",
]

TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off"}
Group = TypeVar("Group")


def flag(
    default: object,
    help: str,
    *,
    env: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    yields: bool = False,
    env_unless: str | None = None,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    also: float | None = None,
    unit: str = "",
    rules: Sequence[Rule] = (),
    instead: str = "",
) -> Any:
    """A dataclass field that is a flag too.

    Args:
        default: value without flag and environment; a list makes the flag repeatable.
        help: one sentence, with the unit.
        env: environment variables with the same meaning; the first one that is set counts.
        aliases: other spellings of the flag.
        yields: a plug-in may declare the same flag; its own then takes this one's place.
        env_unless: name of a switch; where it is given, the environment is not read for this flag.
        least, most, above, below: bounds of a number, the last two exclusive; `also` is one more number, such as -1.
        unit: what the number counts, for the message that refuses another.
        rules: the company in which the flag is refused, made by `needs` and `excludes`.
        instead: what to do where none of the choices is meant; part of the refusal of another value.
    """
    bounds = Bounds(least, most, above, below, also, unit)
    metadata = {"help": help, "env": env, "aliases": aliases, "yields": yields, "env_unless": env_unless}
    metadata |= {"instead": instead, "bounds": bounds, "rules": tuple(rules)}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Flag:
    """A declared flag, as the parser and the documentation see it."""

    name: str
    type: type
    default: Any
    help: str
    env: tuple[str, ...]
    aliases: tuple[str, ...]
    choices: tuple[str, ...] | None
    repeatable: bool
    yields: bool
    env_unless: str | None
    bounds: Bounds
    instead: str

    @property
    def options(self) -> tuple[str, ...]:
        """All spellings, the main one first."""
        return (option(self.name), *self.aliases)


def flags_of(group: type) -> list[Flag]:
    """The flags that a dataclass declares itself, not those of its bases."""
    hints = get_type_hints(group)
    own = [field for field in dataclasses.fields(group) if field.name in group.__annotations__]
    return [_flag(field, hints[field.name]) for field in own]


def _flag(field: dataclasses.Field[Any], hint: Any) -> Flag:
    repeatable = get_origin(hint) is list
    if repeatable:
        (hint,) = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        (hint,) = [part for part in get_args(hint) if part is not NoneType]
    choices = tuple(get_args(hint)) if get_origin(hint) is Literal else None
    return Flag(
        name=field.name,
        type=str if choices else hint,
        default=default_of(field),
        help=field.metadata["help"],
        env=field.metadata["env"],
        aliases=field.metadata["aliases"],
        choices=choices,
        repeatable=repeatable,
        yields=field.metadata["yields"],
        env_unless=field.metadata["env_unless"],
        bounds=field.metadata["bounds"],
        instead=field.metadata["instead"],
    )


def read(group: type[Group], args: object) -> Group:
    """The values of one group of flags, typed; a flag that `args` lacks has its default.

    Raises:
        ConfigError: a bound or a rule of one of its flags is broken.
    """
    fields = flag_fields(group)
    found = group(**{field.name: getattr(args, field.name) for field in fields if hasattr(args, field.name)})
    known = [*fields, *(flag_fields(args) if dataclasses.is_dataclass(args) else ())]
    check_fields(SimpleNamespace(**(vars(args) | vars(found))), fields, known)
    return found


def check_choice(item: Flag, name: str, text: str) -> None:
    """Raises ConfigError for a text that is none of the flag's choices; the message calls it `name`."""
    if item.choices and text not in item.choices:
        more = f"; {item.instead}" if item.instead else ""
        raise ConfigError(f"{name}={text} is not one of {', '.join(item.choices)}{more}")


def convert(item: Flag, name: str, text: str) -> Any:
    """A text, of the environment or of a file, as a value of the flag.

    Raises:
        ConfigError: it does not fit; the message calls it `name`.
    """
    check_choice(item, name, text)
    if item.type is bool:
        if text.lower() not in TRUE_WORDS | FALSE_WORDS:
            raise ConfigError(f"{name}={text} is neither 1 nor 0")
        return text.lower() in TRUE_WORDS
    try:
        value = item.type(text)
    except ValueError:
        raise ConfigError(f"{name}={text} is not a valid {item.type.__name__}") from None
    return [value] if item.repeatable else value
