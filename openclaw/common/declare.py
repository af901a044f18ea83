"""Flags and environment variables of one part, declared once as the fields of a frozen dataclass.

Flags win over variables, variables over defaults. A field carries its type, unit, default, bounds and a sentence; the
command line, the check of the values and the table for the documentation follow from it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from openclaw.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def option(
    kind: type, default: object, help: str, env: Sequence[str] = (), unit: str = "", also: Sequence[str] = (),
    choices: Sequence[str] = (), least: float | None = None, most: float | None = None, flag: bool = True,
) -> Any:  # fmt: skip
    """A field. `kind` bool makes a switch, tuple a repeatable flag and a comma-separated variable; `also` are more
    flags for it; `least` and `most` bound a number; `flag` False: variables only."""
    return field(
        default=default,
        metadata={
            "kind": kind, "help": help, "env": tuple(env), "unit": unit, "also": tuple(also),
            "choices": tuple(choices), "least": least, "most": most, "flag": flag,
        },
    )  # fmt: skip


def check(settings: DataclassInstance) -> None:
    """Raises ConfigError for a value out of its bounds or choices; for a dataclass's `__post_init__`."""
    for item in fields(settings):
        about, value = item.metadata, getattr(settings, item.name)
        if value is None:
            continue
        if about["choices"] and value not in about["choices"]:
            raise ConfigError(
                f"{flag_of(item)} is {value!r}; it must be one of {', '.join(about['choices'])}"
            )
        least, most = about["least"], about["most"]
        if least is not None and not (value >= least and (most is None or value <= most)):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise ConfigError(f"{flag_of(item)} is {value}; it must be {bounds}")


def load(cls: type[S], given: Mapping[str, object], environ: Mapping[str, str] | None = None) -> S:
    """The settings that a parsed command line (None: not named) and the environment give. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    return cls(**{item.name: _value(item, given.get(item.name), environ) for item in fields(cls)})


def add_flags(
    parser: argparse._ActionsContainer, cls: type[DataclassInstance], names: Collection[str] | None = None,
    prefixes: tuple[str, ...] = ("--",), variables: bool = True,
) -> None:  # fmt: skip
    """Adds the flags of these fields (default: all) to any parser; what the command line does not name stays None.
    Of a field's further flags come those that start with one of `prefixes`; a program that reads no environment
    leaves the variables out of its help."""
    for item in fields(cls):
        about = item.metadata
        if not about["flag"] or (names is not None and item.name not in names):
            continue
        words = [flag_of(item), *(name for name in about["also"] if name.startswith(prefixes))]
        unit = f"({about['unit']})" if about["unit"] else ""
        named = f"[env {', '.join(about['env'])}]" if variables and about["env"] else ""
        help = " ".join(filter(None, [about["help"], unit, named]))
        if about["kind"] is bool:
            parser.add_argument(*words, dest=item.name, action="store_const", const=True, help=help)
        elif about["kind"] is tuple:
            parser.add_argument(*words, dest=item.name, action="append", help=help, metavar="URL")
        else:
            metavar = "{" + ",".join(about["choices"]) + "}" if about["choices"] else None
            parser.add_argument(*words, dest=item.name, type=about["kind"], help=help, metavar=metavar)


def as_flags(cls: type[DataclassInstance], values: Mapping[str, object]) -> list[str]:
    """The command-line words that give these values; None and False are left out, and what has no flag."""
    words: list[str] = []
    for item in fields(cls):
        value = values.get(item.name) if item.metadata["flag"] else None
        if value is True:
            words.append(flag_of(item))
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is not None and one is not False:
                words += [flag_of(item), str(one)]
    return words


def markdown(cls: type[DataclassInstance]) -> str:
    """The settings as a table."""
    lines = ["| variable | flag | type | default | meaning |", "|---|---|---|---|---|"]
    for item in fields(cls):
        about = item.metadata
        names = ", ".join(f"`{name}`" for name in about["env"]) or "—"
        flags = ", ".join(f"`{name}`" for name in (flag_of(item), *about["also"])) if about["flag"] else "—"
        kind = "list" if about["kind"] is tuple else about["kind"].__name__
        unit = f", {about['unit']}" if about["unit"] else ""
        default = "—" if item.default in (None, ()) else f"`{item.default}`"
        lines.append(f"| {names} | {flags} | {kind}{unit} | {default} | {about['help']} |")
    return "\n".join(lines)


def flag_of(item: Field[Any]) -> str:
    return "--" + item.name.replace("_", "-")


def text_of_variable(cls: type[DataclassInstance], name: str) -> str | None:
    """What the environment says of one setting, for a parser that reads it itself; None: nothing."""
    (item,) = (item for item in fields(cls) if item.name == name)
    found = _variable(item, os.environ)
    return None if found is None else os.environ[found]


def _variable(item: Field[Any], environ: Mapping[str, str]) -> str | None:
    return next((name for name in item.metadata["env"] if environ.get(name, "") != ""), None)


def _value(item: Field[Any], given: Any, environ: Mapping[str, str]) -> Any:
    if given is not None:
        return tuple(given) if item.metadata["kind"] is tuple else given
    name = _variable(item, environ)
    return item.default if name is None else _from_variable(item.metadata["kind"], name, environ[name])


def _from_variable(kind: type, name: str, text: str) -> Any:
    if kind is bool:
        if text.lower() not in _YES + _NO:
            raise ConfigError(f"{name} is {text!r}; it must be 1 or 0")
        return text.lower() in _YES
    if kind is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return kind(text)
    except ValueError as error:
        raise ConfigError(f"{name} is {text!r}; it must be of type {kind.__name__}") from error
