"""Combines command line, environment, plug-ins and a YAML file into Arguments.

Keys of `--custom-config-path` are flags, or values for a plug-in.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from claw_base.settings.command_line import Help, Parser, from_environment, options_of
from claw_base.settings.declare import Flag, convert, flags_of
from claw_base.settings.suggestions import suggestion
from slime import __version__
from slime.arguments.plugin_flags import (
    add_plugin_flags,
    plugin_groups,
    plugin_paths,
    plugin_variables,
)
from slime.arguments.rules.engine import THIRD_PARTY, python_of, split_engine_arguments
from slime.arguments.upstream.refused import take_foreign
from slime.arguments.upstream.shape import check_shape
from slime.errors import ConfigError
from slime.plugins import plugin_modules


class Completed(NamedTuple):
    """A parser of all possible flags.

    Attributes:
        flags: flags declared in groups, including plug-ins'.
        filed: the values of --custom-config-path.
        groups: the groups that declare the flags.
    """

    parser: Parser
    flags: list[Flag]
    filed: dict[str, Any]
    groups: Sequence[type]


def build_parser(
    groups: Sequence[type], prog: str | None = None, variables: Mapping[str, tuple[str, ...]] | None = None
) -> Parser:
    """Returns a parser of all flags without defaults: flags that are not set are missing in the result.

    Args:
        variables: additional environment variables, by flag.

    Raises:
        ConfigError: a group of a plug-in declares a flag that already exists.
    """
    parser = Parser(prog=prog, add_help=False, argument_default=argparse.SUPPRESS)
    for group in groups:
        section = parser.add_argument_group(_title(group))
        for item in all_flags([group], variables):
            if not item.yields:
                try:
                    section.add_argument(*item.options, **options_of(item))
                except argparse.ArgumentError as error:
                    raise ConfigError(
                        f"plug-in {group.__module__} declares a flag that already exists: {error}"
                    ) from error
    return parser


def _title(group: type) -> str:
    return (group.__doc__ or group.__name__).splitlines()[0].rstrip(".")


def all_flags(groups: Sequence[type], variables: Mapping[str, tuple[str, ...]] | None = None) -> list[Flag]:
    """Returns the flags of all groups; `variables` as in `build_parser`."""
    more = variables or {}
    flags = [item for group in groups for item in flags_of(group)]
    return [replace(item, env=(*item.env, *more[item.name])) if item.name in more else item for item in flags]


def add_yielding_flags(parser: argparse.ArgumentParser, flags: Sequence[Flag]) -> None:
    """Adds the flags that a plug-in may redefine, unless it has redefined them."""
    for item in (item for item in flags if item.yields):
        with contextlib.suppress(argparse.ArgumentError):
            parser.add_argument(*item.options, **options_of(item), default=argparse.SUPPRESS)


def read_values(
    argv: Sequence[str], groups: Sequence[type], env: Mapping[str, str], prog: str | None
) -> dict[str, Any]:
    """Returns the values of all flags, including plug-ins'. Command line overrides environment, which
    overrides defaults.

    Raises:
        ConfigError: an unknown flag, an invalid value, a plug-in that cannot be loaded.
        SystemExit: after --help.
    """
    parser, flags, filed, groups = complete_parser(argv, groups, env, prog)
    values = {item.name: item.default for item in flags} | from_environment(flags, env)
    _add_help(parser, groups, prog)
    parser.add_argument("--version", action="version", version=f"slime {__version__}")
    parsed, unknown = parser.parse_known_args(list(argv))
    backend = (values | vars(parsed) | filed)["rollout_backend"]
    values["engine_python"] = python_of(backend, env)
    words: dict[str, list[str]] = {}
    if backend in THIRD_PARTY:
        known = [name for action in parser._actions for name in action.option_strings]
        rest, words = split_engine_arguments(argv, backend, known)
        parsed, unknown = parser.parse_known_args(rest)
    left, shape = take_foreign(unknown)
    if left:
        raise ConfigError(_unknown_flag(left[0], parser))
    values = _without_disabled_values(flags, values, vars(parsed)) | vars(parsed) | filed
    values["engine_words"] = words
    if shape and values.get("hf_checkpoint"):
        check_shape(values["hf_checkpoint"], shape)
    return values


def _add_help(parser: Parser, groups: Sequence[type], prog: str | None) -> None:
    """Adds --help, which shows the main flags, and --help-all, which shows all, including plug-ins'."""
    short = Parser(
        prog=prog,
        add_help=False,
        usage="%(prog)s [FLAG VALUE]...",
        epilog="--help-all shows every flag, including those of the plug-ins on the command line.",
    )
    for group in groups:
        if shown := [item for item in all_flags([group]) if item.main]:
            section = short.add_argument_group(_title(group))
            for item in shown:
                section.add_argument(*item.options, **options_of(item))
    parser.add_argument("-h", "--help", action=Help, shown=short, help="show the main flags and exit")
    parser.add_argument("--help-all", action="help", help="show all flags and exit")


def complete_parser(
    argv: Sequence[str], groups: Sequence[type], env: Mapping[str, str], prog: str | None = None
) -> Completed:
    """Returns a parser of all flags, including those of the plug-ins in `argv`.

    Raises:
        ConfigError: a plug-in that cannot be loaded, or a file that cannot be read.
    """
    flags = all_flags(groups)
    values = {item.name: item.default for item in flags} | from_environment(flags, env)
    early = values | vars(_quietly(build_parser(groups)).parse_known_args(list(argv))[0])
    modules = plugin_modules(plugin_paths(early | config_file(early["custom_config_path"], flags)))
    groups, variables = (*groups, *plugin_groups(modules)), plugin_variables(modules)
    flags = all_flags(groups, variables)
    parser = build_parser(groups, prog, variables)
    add_plugin_flags(parser, modules)
    add_yielding_flags(parser, flags)
    return Completed(parser, flags, config_file(early["custom_config_path"], flags), groups)


def _without_disabled_values(
    flags: Sequence[Flag], values: dict[str, Any], parsed: Mapping[str, object]
) -> dict[str, Any]:
    """Removes environment values that a command-line flag makes irrelevant, without an error."""
    for item in flags:
        if item.env_unless and parsed.get(item.env_unless):
            values[item.name] = item.default
    return values


def _quietly(parser: Parser) -> Parser:
    """Returns a parser of the same flags without errors, for finding the plug-ins first."""
    return Parser(add_help=False, argument_default=argparse.SUPPRESS, parents=[parser])


OTHER_WORDS = {
    "--batch-size": "--rollout-batch-size (prompts a rollout) or --global-batch-size (samples an optimizer step)",
    "--dry-run": "DRY_RUN=1 in front of a launch script",
    "--epochs": "--num-epoch",
    "--gpus": "--actor-num-gpus-per-node and --rollout-num-gpus",
    "--learning-rate": "--lr",
    "--lora": "--use-lora",
    "--lora-r": "--lora-rank",
    "--max-new-tokens": "--rollout-max-response-len",
    "--max-tokens": "--rollout-max-response-len",
    "--model": "--hf-checkpoint",
    "--model-name-or-path": "--hf-checkpoint",
    "--model-path": "--hf-checkpoint",
    "--output-dir": "--save",
    "--resume": "--load",
    "--steps": "--num-rollout",
    "--temperature": "--rollout-temperature",
}
"""Flag names of other trainers, and slime's equivalent flags."""


def _unknown_flag(word: str, parser: argparse.ArgumentParser) -> str:
    if word[:1] in "\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}":
        return f"{word!r} begins with a typographic dash; write --{word.lstrip(word[0] + '-')}"
    if not word.startswith("-"):
        return f"unexpected argument {word!r}; a value must follow its flag"
    name = word.split("=", 1)[0]
    return f"unknown flag {name}; {suggestion(word, parser, OTHER_WORDS) or '--help-all lists all flags'}"


def config_file(path: str | None, flags: Sequence[Flag]) -> dict[str, Any]:
    """Returns the values of the file by name; they override the command line, as in the original slime. {}
    without one.

    Dashes in keys become underscores. Keys that are not flags become attributes of the arguments.

    Raises:
        ConfigError: the file is missing, invalid YAML or not a mapping, or a value does not have its flag's
            type.
    """
    if path is None:
        return {}
    import yaml

    file = Path(path).expanduser()
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read --custom-config-path {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--custom-config-path {path} is not valid YAML: {' '.join(str(error).split())}"
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"--custom-config-path {path} must be a mapping of names to values, not a "
            f"{type(content).__name__}"
        )
    by_name = {item.name: item for item in flags}
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        values[name] = _typed(by_name[name], value, path) if name in by_name else value
    return values


def _typed(item: Flag, value: object, path: str) -> Any:
    where = f"{path}: {item.name}"
    if value is None:
        return item.default
    if item.repeatable:
        several = value if isinstance(value, list) else [value]
        return [one for each in several for one in convert(item, where, str(each))]
    if isinstance(value, dict | list):
        raise ConfigError(f"{where} must be a single {item.type.__name__}, not a {type(value).__name__}")
    return convert(item, where, str(value))
