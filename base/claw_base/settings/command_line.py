"""Settings from a command line and the environment: flags override variables, variables override defaults."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from claw_base.errors import ConfigError
from claw_base.settings.declare import Flag, check, check_choice, convert, flags_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


class Parser(argparse.ArgumentParser):
    """An argparse parser without abbreviations of flags; raises ConfigError instead of exiting."""

    def __init__(self, **options: Any) -> None:
        own: dict[str, Any] = {"allow_abbrev": False}
        own |= {"formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**(own | options))

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class Help(argparse.Action):
    """Prints the help of another parser, `shown`, and exits."""

    def __init__(self, *words: Any, shown: argparse.ArgumentParser, **options: Any) -> None:
        super().__init__(*words, **(options | {"nargs": 0}))
        self.shown = shown

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        self.shown.print_help()
        parser.exit()


def environment() -> Mapping[str, str]:
    """Returns the process environment; only declared names are read from it."""
    return os.environ


def add_flags(
    parser: argparse._ActionsContainer,
    cls: type[DataclassInstance],
    names: Collection[str] | None = None,
    prefixes: tuple[str, ...] = ("--",),
    variables: bool = True,
) -> None:
    """Adds the flags of a dataclass to a parser; a flag missing from the command line becomes None.

    Args:
        names: fields; default: all.
        prefixes: only aliases with one of these prefixes are added.
        variables: whether the help lists environment variables.
    """
    sets: dict[str, argparse._ActionsContainer] = {}
    for item in flags_of(cls, inherited=True):
        if not item.variable_only and (names is None or item.name in names):
            words = [item.options[0], *(alias for alias in item.aliases if alias.startswith(prefixes))]
            # `check` reports a wrong choice in one line, together with wrong variables
            options = options_of(item, variables) | ({"type": str} if item.choices else {})
            if item.positional:
                words = [options.pop("dest")]
            target = parser
            if item.one_of:
                if item.one_of not in sets:
                    sets[item.one_of] = parser.add_mutually_exclusive_group(required=True)
                target = sets[item.one_of]
            target.add_argument(*words, **options, default=None)


def options_of(item: Flag, variables: bool = True) -> dict[str, Any]:
    """Returns the argparse options of a flag, without its default."""
    options: dict[str, Any] = {"dest": item.name, "help": help_of(item, variables).replace("%", "%%")}
    if item.positional:
        several = "+" if item.required else "*"
        nargs = {"nargs": several if item.several else None if item.required else "?"}
        return options | nargs | {"type": item.type, "metavar": item.unit or item.name.upper()}
    if item.required:
        options["required"] = True
    if item.type is bool:
        return options | {"action": "store_true" if item.default is False else argparse.BooleanOptionalAction}
    if item.several is list:
        options |= {"action": "extend", "nargs": "+"}
    elif item.several is tuple:
        options |= {"action": "append"}
    if item.choices:
        return options | {"type": _choice(item), "metavar": "{" + ",".join(item.choices) + "}"}
    return options | {"type": item.type, "metavar": metavar(item)}


def metavar(item: Flag) -> str:
    """Returns the placeholder of the value in the help: its unit, else for a number its type, else the last word of
    the flag's name."""
    word = item.unit or (item.name.split("_")[-1] if item.type is str else item.type.__name__)
    return word.upper().replace(" ", "_")


def help_of(item: Flag, variables: bool = True) -> str:
    """Returns the help text of a flag with default, bounds and variables."""
    hides_default = (
        item.required
        or item.default is False
        or item.default in (None, "", [], ())
        or "default" in item.help.lower()
    )
    parts = [item.help, "" if hides_default else f"(default: {item.default})"]
    parts.append(f"[{item.bounds.range}]" if item.bounds.range else "")
    parts.append(f"[env: {', '.join(item.env)}]" if variables and item.env else "")
    return " ".join(filter(None, parts))


def _choice(item: Flag) -> Callable[[str], str]:
    """Returns a type function that rejects other values and suggests a remedy, which argparse's own choices
    cannot."""

    def read(text: str) -> str:
        try:
            check_choice(item, item.options[0], text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text

    return read


def parser_of(
    cls: type[DataclassInstance], prog: str, description: str, version: str = "", epilog: str = ""
) -> argparse.ArgumentParser:
    """Returns a parser of these settings, which exits after --help and after an invalid command line."""
    parser = _plain(prog=prog, description=description, epilog=epilog)
    if version:
        parser.add_argument("--version", action="version", version=version)
    add_flags(parser, cls, prefixes=("-",))
    return parser


def parse(
    cls: type[S], argv: Sequence[str] | None, prog: str, description: str, version: str = "", epilog: str = ""
) -> S:
    """Returns the settings of a program from its command line (None: the process's own) and the environment.

    Raises:
        SystemExit: status 0 after --help or --version, 2 after an invalid value.
    """
    parser = parser_of(cls, prog, description, version, epilog)
    return loaded(parser, cls, parser.parse_args(argv))


def parse_command(
    commands: Mapping[str, type[S]],
    argv: Sequence[str] | None,
    prog: str,
    description: str,
    version: str = "",
    common: type[DataclassInstance] | None = None,
    default: str | None = None,
) -> tuple[str, S]:
    """Returns the chosen command of a program with several, and its settings; otherwise like `parse`.

    Args:
        commands: the settings class of each command; the first paragraph of its docstring is the command's help.
        common: settings whose flags precede the command; the other classes inherit from it.
        default: the command if the command line names none.
    """
    parser = _plain(prog=prog, description=description)
    if version:
        parser.add_argument("--version", action="version", version=version)
    if common is not None:
        add_flags(parser, common)
    before = {item.name for item in flags_of(common, inherited=True)} if common is not None else set()
    parsers = parser.add_subparsers(dest="_command", metavar="COMMAND", required=default is None)
    for name, cls in commands.items():
        help = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        one = parsers.add_parser(name, help=help, description=help, allow_abbrev=False)
        add_flags(one, cls, {item.name for item in flags_of(cls, inherited=True)} - before)
    namespace = parser.parse_args(argv)
    command = str(namespace._command or default)
    return command, loaded(parser, commands[command], namespace)


def loaded(parser: argparse.ArgumentParser, cls: type[S], namespace: argparse.Namespace) -> S:
    """Like `load`, but exits with status 2 after an invalid value."""
    try:
        settings = load(cls, vars(namespace))
        check(settings)
        return settings
    except ConfigError as error:
        parser.error(str(error))


def _plain(**options: Any) -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(allow_abbrev=False, formatter_class=layout, **options)


def load(cls: type[S], parsed: Mapping[str, object], environ: Mapping[str, str] | None = None) -> S:
    """Returns the settings from a parsed command line (None: not set) and the environment.

    Raises:
        ConfigError: the value of a variable or flag is invalid.
    """
    flags = flags_of(cls, inherited=True)
    values = from_environment(flags, environment() if environ is None else environ)
    for item in flags:
        if (value := parsed.get(item.name)) is not None:
            values[item.name] = item.several(value) if item.several else value
    return cls(**values)


def from_environment(flags: Sequence[Flag], env: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of environment variables, by name of the flag. Raises ConfigError for an invalid one."""
    named = [(item, name) for item in flags if (name := _variable(item, env)) is not None]
    return {item.name: convert(item, name, env[name]) for item, name in named}


def _variable(item: Flag, env: Mapping[str, str]) -> str | None:
    return next((name for name in item.env if env.get(name)), None)


def as_flags(cls: type[DataclassInstance], values: Mapping[str, object]) -> list[str]:
    """Returns command-line arguments for these values; None, False and names without a flag are omitted."""
    words: list[str] = []
    for item in flags_of(cls, inherited=True):
        value = None if item.variable_only else values.get(item.name)
        if value is True:
            words.append(item.options[0])
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is not None and one is not False:
                words += [item.options[0], str(one)]
    return words
