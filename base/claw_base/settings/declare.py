"""Declares one flag: a dataclass field with its help, choices and environment names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from claw_base.errors import ConfigError
from claw_base.settings.rules import (
    Bounds,
    Rule,
    check_fields,
    check_flags,
    default_of,
    excludes,
    flag_fields,
    needs,
    option,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "FALSE_WORDS",
    "REQUIRED",
    "TRUE_WORDS",
    "Flag",
    "check",
    "check_choice",
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
REQUIRED = dataclasses.MISSING
"""Default of a setting that the command line must give."""
Group = TypeVar("Group")
_URL = re.compile(r"[A-Za-z][\w.+-]*(://\S+)?")


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
    choices: tuple[str, ...] = (),
    variable_only: bool = False,
    main: bool = False,
    positional: bool = False,
    one_of: str = "",
) -> Any:
    """Returns a dataclass field that is also a flag.

    Args:
        default: value without flag and environment; a list or a tuple makes the flag repeatable; REQUIRED: there is
            none.
        help: one sentence, with the unit.
        env: environment variables with the same meaning; the first one that is set counts.
        aliases: alternative spellings of the flag.
        yields: a plug-in may declare the same flag, which then replaces this one.
        env_unless: name of a switch; if it is set, the environment is not read for this flag.
        least, most, above, below: bounds of a number, the last two exclusive; `also` is one more number, such as -1.
        unit: what the number counts, or what a text is ("path", "URL").
        rules: combinations in which the flag is rejected, made by `needs` and `excludes`.
        instead: suggestion in the error for a value that is not among the choices.
        choices: allowed texts, if the annotation cannot list them as a Literal.
        variable_only: not accepted on the command line, such as a key.
        main: typically set by a user; the short help lists it.
        positional: positional argument.
        one_of: name of a set of flags; a command line must give exactly one flag of the set.
    """
    numbers = {"least": least, "most": most, "above": above, "below": below, "also": also}
    bounded = any(value is not None for value in numbers.values())
    metadata = {"help": help, "env": env, "aliases": aliases, "yields": yields, "env_unless": env_unless}
    metadata |= {"instead": instead, "bounds": Bounds(**numbers, unit=unit if bounded else ""), "unit": unit}
    metadata |= {"rules": tuple(rules), "choices": choices, "variable_only": variable_only, "main": main}
    metadata |= {"positional": positional, "one_of": one_of}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Flag:
    """A declared flag, for the parser and the documentation.

    Attributes:
        type: type of one value.
        repeatable: the flag may be repeated; the value is a `several` of all.
        several: list (the flag takes several arguments) or tuple (one argument; a variable has several values,
            separated by commas).
    """

    name: str
    type: type
    default: Any
    help: str
    env: tuple[str, ...]
    aliases: tuple[str, ...]
    choices: tuple[str, ...] | None
    several: Callable[[Any], Any] | None
    yields: bool
    env_unless: str | None
    bounds: Bounds
    unit: str
    instead: str
    variable_only: bool
    main: bool
    positional: bool
    one_of: str

    @property
    def options(self) -> tuple[str, ...]:
        """Returns all spellings, the main one first."""
        return (option(self.name), *self.aliases)

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def repeatable(self) -> bool:
        return self.several is not None


def flags_of(group: type, inherited: bool = False) -> list[Flag]:
    """Returns the flags that a dataclass declares itself; `inherited`: preceded by those of its bases."""
    # a caller may modify the default list
    return [
        replace(item, default=[*item.default]) if isinstance(item.default, list) else item
        for item in _declared(group, inherited)
    ]


@cache
def _declared(group: type, inherited: bool) -> tuple[Flag, ...]:
    hints = get_type_hints(group)
    declared = flag_fields(group)
    own = declared if inherited else [field for field in declared if field.name in group.__annotations__]
    return tuple(_flag(field, hints[field.name]) for field in own)


def _flag(field: dataclasses.Field[Any], hint: Any) -> Flag:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = [part for part in get_args(hint) if part is not NoneType]
    several = get_origin(hint) if get_origin(hint) in (list, tuple) else None
    if several:
        hint = get_args(hint)[0]
    about = field.metadata
    choices = tuple(get_args(hint)) if get_origin(hint) is Literal else about["choices"] or None
    names = [
        "help",
        "env",
        "aliases",
        "yields",
        "env_unless",
        "bounds",
        "unit",
        "instead",
        "variable_only",
        "main",
        "positional",
        "one_of",
    ]
    return Flag(
        name=field.name,
        type=str if choices else hint,
        default=default_of(field),
        choices=choices,
        several=several,
        **{name: about[name] for name in names},
    )


def read(group: type[Group], args: object) -> Group:
    """Returns one group of flags, typed; a flag missing in `args` gets its default.

    Raises:
        ConfigError: a flag violates a bound or a rule.
    """
    fields = flag_fields(group)
    values = vars(args)
    settings = group(**{field.name: values[field.name] for field in fields if field.name in values})
    known = [*fields, *(flag_fields(args) if dataclasses.is_dataclass(args) else ())]
    check_fields(SimpleNamespace(**(values | vars(settings))), fields, known)
    return settings


def check(settings: DataclassInstance) -> None:
    """Checks choices, URLs, bounds and rules of every flag; called in the `__post_init__` of settings. Raises
    ConfigError."""
    for item in flags_of(type(settings), inherited=True):
        value = getattr(settings, item.name)
        if item.choices and value is not None:
            check_choice(item, item.options[0], value)
        if item.unit == "URL" and not item.variable_only:
            _check_urls(item.options[0], value)
    check_flags(settings)


def _check_urls(name: str, value: object) -> None:
    """Raises ConfigError for an invalid URL; the message does not contain it, because it may include a password."""
    for text in value if isinstance(value, list | tuple) else [value]:
        if text and not _URL.fullmatch(str(text)):
            raise ConfigError(f"{name} is not a URL: write it with its scheme, such as http://127.0.0.1:8000")


def check_choice(item: Flag, name: str, text: str) -> None:
    """Raises ConfigError if a text is not one of the flag's choices. The message contains `name`."""
    if item.choices and text not in item.choices:
        more = f"; {item.instead}" if item.instead else ""
        raise ConfigError(f"{name}={text} is not one of {', '.join(item.choices)}{more}")


def convert(item: Flag, name: str, text: str) -> Any:
    """Converts text from the environment or a file to the flag's type.

    Raises:
        ConfigError: it is invalid; the message contains `name`.
    """
    if item.several is tuple:
        one = replace(item, several=None)
        return tuple(convert(one, name, part.strip()) for part in text.split(",") if part.strip())
    check_choice(item, name, text)
    if item.type is bool:
        if text.lower() not in TRUE_WORDS | FALSE_WORDS:
            raise ConfigError(f"{name}={text} is neither 1 nor 0")
        return text.lower() in TRUE_WORDS
    try:
        value = item.type(text)
    except ValueError:
        raise ConfigError(f"{name}={text} is not a valid {item.type.__name__}") from None
    return [value] if item.several is list else value
