"""`python -m slime.plan.words -- WORDS`: rejects a driver's command line that a start would reject, before anything
is installed or created.

WORDS are marked as in `slime.plan.dry_run`. Missing packages have stand-ins (`slime.plan.stand_ins`): flags, types,
bounds and rules are checked anyway, and the rest later by the driver. Exit status 2 for a rejection, with one line on
standard error; 10 if an argument such as --help-all was answered; 0 if there is no error, or if this cannot be
decided yet.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.settings.command_line import from_environment, parse
from claw_base.settings.declare import flag
from slime.errors import ConfigError
from slime.plan import stand_ins
from slime.plan.gpu_split import split_of
from slime.plan.hardware import gpus_here
from slime.plan.misspelt import misspelt_variables
from slime.plan.seats import Machines

if TYPE_CHECKING:
    from slime.flags import Arguments

_MARK = re.compile(r"::(script|command line|variable \w+)")
_FLAG = re.compile(r"--[a-z0-9][a-z0-9-]*")
ANSWERED = 10
SLOW = ("torch",)
"""Packages whose import takes seconds. No flag needs them, so they are replaced by stand-ins if only flags are
parsed."""


@dataclass(frozen=True, kw_only=True)
class Checked(Machines):
    """The command line to check, and the machines of a run with GPUs."""

    shell: list[str] = flag(
        [], "launch script whose variables are known, or a folder of them; repeatable", unit="path"
    )
    dry_run: bool = flag(False, "the arguments are for a plan, which may be for another machine")
    words: list[str] = flag([], "arguments of the driver, after --", positional=True)


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    own = parse(Checked, argv, "python -m slime.plan.words", __doc__)
    env = os.environ if env is None else env
    marked = unmarked(own.words)
    try:
        refused = refusal(marked, env, own, elsewhere=own.dry_run and not gpus_here())
    except SystemExit:
        return ANSWERED
    if refused is not None or not own.dry_run:  # otherwise the plan itself warns
        for line in misspelt_variables(own.shell, [word for word, _ in marked], env):
            print(f"warning: {line}", file=sys.stderr)
    if refused is None:
        return 0
    print(f"error: {refused}", file=sys.stderr)
    return 2


def refusal(
    marked: Sequence[tuple[str, str]],
    env: Mapping[str, str],
    machines: Machines | None = None,
    elsewhere: bool = False,
) -> str | None:
    """Returns why a start on these machines would reject these arguments and variables; None if it would not, or if
    the installed packages do not suffice to decide. `elsewhere`: the run with GPUs starts on another machine."""
    machines = machines or Machines()
    try:
        return _refusal(marked, env, machines, elsewhere, complete=True)
    except ModuleNotFoundError:
        pass
    except Exception:  # other exceptions of plug-ins are reported by the driver
        return None
    stand_ins.install()
    try:
        return _refusal(marked, env, machines, elsewhere, complete=False)
    except Exception:  # a stand-in cannot replace the package in this check: the driver decides
        return None


def _refusal(
    marked: Sequence[tuple[str, str]],
    env: Mapping[str, str],
    machines: Machines,
    elsewhere: bool,
    complete: bool,
) -> str | None:
    """`complete`: no package has a stand-in that a check would work with. Raises ModuleNotFoundError for one that is
    not installed."""
    words = [word for word, _ in marked]
    named = stand_in = ""
    try:
        named = model_of(words, env)
        with folder_for(named) as stand_in:
            args = arguments_of(words, env, named, stand_in)
            here = not (elsewhere and split_of(args).gpus)
            refusals = importlib.import_module("slime.plan.refusals")
            check = refusals.refusals if complete else refusals.settings_refusals
            message = next(iter(check(args, env, here)), None)
            if message is None:
                machines.seats(split_of(args))
    except ConfigError as error:
        missing, message = error.__cause__, str(error)
        if isinstance(missing, ModuleNotFoundError) and missing.name not in _modules_of(words):
            raise missing from None
        if any(stand_ins.is_stand_in(sys.modules.get(name)) for name in _modules_of(words)):
            return None  # a plug-in with unknown flags
    return message and with_source(message.replace(stand_in or named, named), marked)


def _modules_of(words: Sequence[str]) -> set[str]:
    """Returns the names of modules, and of their packages, that may be plug-ins in the arguments."""
    paths = [word.partition(":") for word in words if "." in word]
    modules = [path if colon else path.rpartition(".")[0] for path, colon, _ in paths]
    parts = [module.split(".") for module in modules]
    return {".".join(part[: count + 1]) for part in parts for count in range(len(part))}


def with_source(message: str, marked: Sequence[tuple[str, str]]) -> str:
    """Returns the message with the variable from which a launch script took the flag's value, if any."""
    named = set(_FLAG.findall(message))
    for word, source in reversed(marked):
        if word.split("=", 1)[0] in named:
            kind, _, variable = source.partition(" ")
            return f"{message} (from the variable {variable})" if kind == "variable" else message
    return message


def unmarked(words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (argument, source) of every argument except marks."""
    marked, source = [], "command line"
    for word in words:
        if mark := _MARK.fullmatch(word):
            source = mark[1]
        else:
            marked.append((word, source))
    return marked


def model_of(words: Sequence[str], env: Mapping[str, str]) -> str:
    """Returns the model folder given by arguments and variables."""
    from slime.arguments.parser import complete_parser
    from slime.flags import GROUPS

    parser, flags, filed, _ = complete_parser(words, GROUPS, env)
    values = (
        from_environment([item for item in flags if item.name == "hf_checkpoint"], env)
        | vars(parser.parse_known_args(list(words))[0])
        | filed
    )
    return str(values.get("hf_checkpoint", ""))


def folder_for(model: str) -> AbstractContextManager[str]:
    """Returns a temporary folder for a well-known model that is missing; "" if none is needed or known."""
    from slime.plan.shape import KNOWN, known_name

    name = known_name(model)
    if (Path(model).expanduser() / "config.json").is_file() or name is None:
        return nullcontext("")
    folder = tempfile.TemporaryDirectory(prefix="plan-")
    (Path(folder.name) / "config.json").write_text(json.dumps(KNOWN[name]), encoding="utf-8")
    return folder


def arguments_of(words: Sequence[str], env: Mapping[str, str], named: str, stand_in: str) -> Arguments:
    """Returns the parsed arguments, with the folder `stand_in` instead of the model `named`, also for judge and
    teacher; unchanged if it is "". Raises ConfigError for arguments that the driver rejects."""
    from slime.arguments import parse_args
    from slime.plan.model_servers import FOLDERS

    args = parse_args([*words, *(["--hf-checkpoint", stand_in] if stand_in else [])], env, packages=False)
    for name in [name for names in FOLDERS.values() for name in names]:
        if stand_in and vars(args)[name] == named:
            setattr(args, name, stand_in)
    return args


if __name__ == "__main__":
    stand_ins.replace(*SLOW)
    sys.exit(main())
