"""The arguments that a start refuses, on any machine: checked by the driver before anything starts, and by a dry run.

The module of `--service-path` may have `check_arguments(args, endpoints, env)`. It raises what its own `start` would
refuse, starts nothing and leaves `args` as they are. A module without that function is asked at the start alone. It may
have `check_settings` too, with the same arguments: the part of these checks that needs no package.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from slime.errors import CheckpointError, ConfigError
from slime.plan.gate_engine import check_gate_engine
from slime.plugins import load_module
from slime.weights import checkpoints

if TYPE_CHECKING:
    from slime.flags import Arguments

TRACKERS = {"use_wandb": "wandb", "use_trackio": "trackio"}
PRETENDED = ["http://127.0.0.1:1"]
"""Addresses of engines, in a plan."""


def check_before_start(args: Arguments) -> None:
    """Refuses what a start would fail at later: trackers that are not installed, a gate's engine that does not run the
    model, and a checkpoint of other adapters.

    Raises:
        ConfigError: a package is missing, or the model is not for that engine.
        CheckpointError: the checkpoint that the run would go on from does not fit it, or is not there.
    """
    for flag, package in TRACKERS.items():
        if vars(args)[flag] and find_spec(package) is None:
            words = f"--{flag.replace('_', '-')}"
            raise ConfigError(f"{words} needs the package {package}: pip install {package}")
    check_gate_engine(args)
    if args.debug_rollout_only:
        return
    folder = checkpoints.find(args.save) or checkpoints.find(args.load)
    if folder is not None:
        checkpoints.check_adapters(folder, checkpoints.read_meta(folder), checkpoints.lora_settings(args))


def refusals(args: Arguments, env: Mapping[str, str]) -> list[str]:
    """Returns all errors that a start with these arguments and variables would raise; empty: none."""
    found = []
    try:
        check_before_start(args)
    except (ConfigError, CheckpointError) as error:
        found.append(str(error))
    for path in [] if args.debug_train_only else args.service_path:
        check = getattr(load_module(path), "check_arguments", None)
        if check is None:
            continue
        try:
            check(argparse.Namespace(**vars(args)), pretended_engines(args), env)
        except Exception as error:  # as at a start, whatever a hook raises is a refusal
            found.append(
                str(error) if getattr(error, "refusal", False) else f"--service-path {path}: {error}"
            )
    return found


def settings_refusals(args: Arguments, env: Mapping[str, str]) -> list[str]:
    """Returns the errors that `refusals` finds without installed packages; empty: none."""
    found = []
    for path in [] if args.debug_train_only else args.service_path:
        if (check := getattr(load_module(path), "check_settings", None)) is None:
            continue
        try:
            check(argparse.Namespace(**vars(args)), pretended_engines(args), env)
        except ConfigError as error:
            found.append(str(error))
    return found


def pretended_engines(args: Arguments) -> dict[str, list[str]]:
    """Addresses of the engines that a start would have, by what they serve."""
    judge, teacher = args.prm_num_gpus or args.rented_judge, args.prm_teacher_num_gpus
    return {
        "policy": [*PRETENDED],
        "judge": [*PRETENDED] if judge else [],
        "teacher": [*PRETENDED] if teacher else [],
    }
