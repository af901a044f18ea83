"""`python -m slime.plan.dry_run --num-gpus 8 -- WORDS`: prints what a launch script would start, without starting it.

WORDS is the driver's command line. A launch script marks the source of arguments: those between `::SOURCE` and the
next mark come from there. A well-known model whose folder does not exist yet is planned by its published shape. Exit
status 0 if the arguments are valid and the plan fits, 1 if it does not fit or a start would be rejected, 2 for
invalid arguments.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from claw_base.settings.command_line import parse
from claw_base.settings.declare import flag, option
from slime.arguments.parser import complete_parser
from slime.errors import ClusterError, ConfigError
from slime.flags import GROUPS, Arguments
from slime.plan import stand_ins
from slime.plan.environments import environments_of
from slime.plan.gate_engine import in_words, unexamined
from slime.plan.gpu_split import split_of
from slime.plan.hardware import DEFAULT, gpus_here, named_gpu
from slime.plan.judging import line as judging_line
from slime.plan.misspelt import misspelt_variables
from slime.plan.of_arguments import plan_of
from slime.plan.placement_plan import host_problems, problems
from slime.plan.refusals import refusals
from slime.plan.report import as_text
from slime.plan.seats import Machines
from slime.plan.shape import known_name
from slime.plan.words import SLOW, arguments_of, folder_for, model_of, unmarked, with_source

BY_DEFAULT, DERIVED = "default", "derived"
_VARIABLES = re.compile(r"\[env:? ([A-Z0-9_, ]+)\]")
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, kw_only=True)
class Plan(Machines):
    """The run to plan, and its GPUs."""

    gpu: str = flag("", f"GPU to plan for, such as H100 or 24GB (default: this machine's, else {DEFAULT})")
    usual_gpu: str = flag(DEFAULT, "GPU to plan for if this machine has none")
    script_variables: str = flag("", "names of variables set by the script itself")
    shell: list[str] = flag(
        [], "launch script whose variables are known, or a folder of them; repeatable", unit="path"
    )
    all: bool = flag(False, "also list arguments with their defaults")
    words: list[str] = flag([], "arguments of the driver, after --", positional=True)


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    own = parse(Plan, argv, "python -m slime.plan.dry_run", __doc__)
    env = os.environ if env is None else env
    marked = unmarked(own.words)
    words = [word for word, _ in marked]
    for line in misspelt_variables(own.shell, words, env):
        print(f"warning: {line}", file=sys.stderr)
    try:
        named = model_of(words, env)
    except ConfigError as error:
        print(f"error: {with_source(str(error), marked)}", file=sys.stderr)
        return 2
    with folder_for(named) as stand_in:
        try:
            args = arguments_of(words, env, named, stand_in)
            origins_of_arguments = origins(args, marked, env, own.script_variables.split())
            text, fits = planned(args, own.num_gpus, own.gpu, own.usual_gpu, own.machines)
            seats, room = machine_lines(args, own)
            here = bool(gpus_here()) or split_of(args).gpus == 0
            refused = [one for one in refusals(args, env, here) if one not in text]
        except ConfigError as error:
            message = str(error).replace(stand_in or named, named)
            print(f"error: {with_source(message, marked)}", file=sys.stderr)
            return 2
    seats += [f"problem  the run would not start: {with_source(one, marked)}" for one in refused]
    text, fits = "\n".join([text, *seats]), fits and room and not refused
    if stand_in:
        text = text.replace(stand_in, named)
        origins_of_arguments = [
            Origin(one.flag, one.value.replace(stand_in, named), one.source) for one in origins_of_arguments
        ]
        text += f"\nnote     {named} does not exist yet; the plan uses the published configuration of {known_name(named)}"
    print(text)
    print("\n".join(table(origins_of_arguments, own.all)))
    return 0 if fits else 1


def planned(
    args: Arguments, count: int, name: str, usual: str = DEFAULT, machines: int = 1
) -> tuple[str, bool]:
    """Returns the plan as text, and whether it fits.

    Args:
        name: name of the GPU; "": this machine's, or `usual` if it has none.
        machines: number of machines, each like this one if it has GPUs.
    """
    here = gpus_here()
    gpu = named_gpu(name) if name else (here[0] if here else named_gpu(usual))
    plan = plan_of(args, count or len(here), gpu)
    environments = environments_of(args)
    lines = [] if environments is None else [environments.line()]
    if plan is not None and (judging := judging_line(args, plan)):
        lines.append(judging)
    if args.gate and args.gate_samples_path is not None:
        lines.append(
            f"gate     {unexamined(args) or f'updates are tested on explicit requests by {in_words(args)}'}"
        )
    if plan is None:
        return "\n".join(["plan     trains on the CPU", *lines]), True
    text, wrong = "\n".join([as_text(plan), *lines]), problems(plan)
    if here:  # the plan is for this machine
        folder = next(one for one in (Path(args.save), *Path(args.save).absolute().parents) if one.is_dir())
        memory = psutil.virtual_memory().total * machines
        small = host_problems(plan, memory, shutil.disk_usage(folder).free)
        text = "\n".join([text, *(f"problem  {one}" for one in small)])
        wrong = [*wrong, *small]
    return text, not wrong


def machine_lines(args: Arguments, plan: Plan) -> tuple[list[str], bool]:
    """Returns the parts of each machine as lines, and whether all parts have GPUs on a machine."""
    split = split_of(args)
    try:
        seats = plan.seats(split)
    except ClusterError as error:
        return [f"problem  {error}"], False
    if seats is None or plan.machines == 1:
        return [], True
    return [f"machine {number:<4} {line}" for number, line in enumerate(seats.lines(split))], True


def table(arguments: Sequence[Origin], all: bool) -> list[str]:
    """Returns one line for each given argument; arguments with default values are listed too, or counted."""
    chosen = [one for one in arguments if one.source != BY_DEFAULT]
    defaults = [one for one in arguments if one.source == BY_DEFAULT]
    lines = ["\narguments", *rows(chosen)]
    if all:
        return [*lines, "\ndefaults", *rows(defaults)]
    return [*lines, f"\n{len(defaults)} more arguments have their defaults; DRY_RUN=full lists them"]


def rows(arguments: Sequence[Origin]) -> list[str]:
    width = max((len(one.flag) for one in arguments), default=0)
    return [
        f"  {one.flag:{width}}  {one.value}  [{one.source}]"
        for one in sorted(arguments, key=lambda one: one.flag)
    ]


@dataclass(frozen=True)
class Origin:
    """One argument as it is shown: flag, value, and where the value comes from."""

    flag: str
    value: str
    source: str


def origins(
    args: Arguments,
    marked: Sequence[tuple[str, str]],
    env: Mapping[str, str],
    script_variables: Collection[str] = (),
) -> list[Origin]:
    """Returns every argument of the driver, including plug-ins'.

    Args:
        args: parsed from `marked` and `env`.
        script_variables: names of variables that the launch script set by itself.
    """
    parser, flags, filed, _ = complete_parser([word for word, _ in marked], GROUPS, env)
    defaults = {item.name: item.default for item in flags}
    actions = {action.dest: action for action in parser._actions}
    by_option = {name: action.dest for action in parser._actions for name in action.option_strings}
    sources = {
        by_option[name]: source for word, source in marked if (name := word.split("=", 1)[0]) in by_option
    }
    sources |= dict.fromkeys(filed, "--custom-config-path")
    arguments = [
        _origin(action, args, sources, env, defaults.get(name, action.default))
        for name, action in actions.items()
    ]
    own = {f"variable {name}" for name in script_variables}
    return [replace(one, source="script") if one.source in own else one for one in arguments]


def _origin(
    action: argparse.Action,
    args: Arguments,
    sources: Mapping[str, str],
    env: Mapping[str, str],
    default: object,
) -> Origin:
    """Returns the origin of one argument. `default`: its value without flag and variable."""
    name = action.dest
    value, source = vars(args).get(name), sources.get(name)
    if source is None:
        listed = _VARIABLES.search(action.help or "")
        names = [one.strip() for one in listed[1].split(",")] if listed else []
        set_names = [one for one in names if env.get(one)]
        variable = next((one for one in set_names if env[one] == value), set_names[0] if set_names else None)
        if variable is not None:
            source, value = f"variable {variable}", env[variable] if value is None else value
        else:
            source = BY_DEFAULT if value == default else DERIVED
    return Origin(option(name), shown(value), source)


def shown(value: object) -> str:
    """Returns a value for display; user and password of a URL are removed."""
    if value is None or value == []:
        return "-"
    return _SECRET.sub("...@", str(value))


if __name__ == "__main__":
    stand_ins.replace(*SLOW)
    try:
        sys.exit(main())
    except Exception:  # a plug-in uses torch when it is imported
        again = "import sys; from slime.plan.dry_run import main; sys.exit(main())"
        os.execv(sys.executable, [sys.executable, "-c", again, *sys.argv[1:]])
