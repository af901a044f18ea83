"""The arguments that a start refuses: checked by the driver before anything starts, by a dry run, and by a launch script
before it installs packages.

The module of `--service-path` may have `check_arguments(args, endpoints, env)`. It raises what its own `start` would
refuse, starts nothing and leaves `args` as they are. A module without that function is asked at the start alone. It may
have `check_settings` too, with the same arguments: the part of these checks that needs no package.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.errors import CheckpointError, ConfigError
from slime.plan.gate_engine import check_gate_engine
from slime.plan.model_servers import check_engines, missing_models
from slime.plan.of_arguments import share_words, smallest_gpu
from slime.plugins import load_module
from slime.weights import checkpoints

if TYPE_CHECKING:
    from slime.flags import Arguments

PRETENDED = ["http://127.0.0.1:1"]
"""Addresses of engines, in a plan."""
WANDB_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_ANONYMOUS")
"""Variables with which W&B asks for no key."""


def check_before_start(args: Arguments, env: Mapping[str, str]) -> None:
    """Refuses what a start on this machine would fail at later: a model of judge or teacher that is not there, engines
    that no machine could start, a gate's engine that does not run the model, W&B without a key, and a checkpoint of
    other adapters.

    Raises:
        ConfigError: one of these.
        CheckpointError: the checkpoint that the run would go on from does not fit it, or is not there.
    """
    for check in _checks(args, env, here=True):
        check()


def _checks(args: Arguments, env: Mapping[str, str], here: bool) -> list[Callable[[], object]]:
    """Checks that are ready to be called. `here`: the run starts on this machine."""
    on_this_machine: list[Callable[[], object]] = [
        partial(check_models, args),
        partial(check_wandb, args, env),
        lambda: share_words(args, smallest_gpu()),
    ]
    return [
        *(on_this_machine if here else []),
        partial(check_engines, args, env),
        partial(check_gate_engine, args),
        partial(check_checkpoint, args),
    ]


def check_models(args: Arguments) -> None:
    """Raises ConfigError if the folder of judge or teacher is not complete."""
    if missing := missing_models(args):
        raise ConfigError(missing[0])


def check_wandb(args: Arguments, env: Mapping[str, str]) -> None:
    """Raises ConfigError if W&B would ask for a key, which a run cannot type."""
    mode = args.wandb_mode or env.get("WANDB_MODE") or "online"
    if not args.use_wandb or mode != "online" or any(env.get(name) for name in WANDB_KEYS):
        return
    places = [env["NETRC"]] if env.get("NETRC") else ["~/.netrc", "~/_netrc"]
    if not any(Path(place).expanduser().is_file() for place in places):
        raise ConfigError(
            "--use-wandb: there is no key: export WANDB_API_KEY (or WANDB_KEY), or WANDB_MODE=offline to keep what is "
            "logged in the run folder"
        )


def check_checkpoint(args: Arguments) -> None:
    """Raises CheckpointError if the checkpoint that the run would go on from has other adapters, or is not there."""
    if args.debug_rollout_only:
        return
    folder = checkpoints.find(args.save) or checkpoints.find(args.load)
    if folder is not None:
        checkpoints.check_adapters(folder, checkpoints.read_meta(folder), checkpoints.lora_settings(args))


def refusals(args: Arguments, env: Mapping[str, str], here: bool = True) -> list[str]:
    """Returns all errors that a start with these arguments and variables would raise; empty: none.

    Args:
        here: the run starts on this machine. A plan for another one needs no models and keys.
    """
    lines = []
    for check in _checks(args, env, here):
        try:
            check()
        except (ConfigError, CheckpointError) as error:
            lines.append(str(error))
    for path, ask in _hooks(args, env, "check_arguments"):
        try:
            ask()
        except Exception as error:  # as at a start, whatever a hook raises is a refusal
            lines.append(
                str(error) if getattr(error, "refusal", False) else f"--service-path {path}: {error}"
            )
    return lines


def settings_refusals(args: Arguments, env: Mapping[str, str], here: bool = True) -> Iterator[str]:
    """Yields the errors that `refusals` finds, as far as they can be found while packages have stand-ins."""
    asks = [ask for _, ask in _hooks(args, env, "check_settings", "check_arguments")]
    for check in [*_checks(args, env, here), *asks]:
        try:
            check()
        except (ConfigError, CheckpointError) as error:
            yield str(error)
        except Exception:  # a stand-in cannot do what the check asks of the package: for the driver to decide
            continue


def _hooks(
    args: Arguments, env: Mapping[str, str], *names: str
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields the path of each `--service-path`, and the first function of these names that its module has, ready to be
    called."""
    for path in [] if args.debug_train_only else args.service_path:
        module = load_module(path)
        check: Any = next(filter(None, (getattr(module, name, None) for name in names)), None)
        if check is not None:
            copied = argparse.Namespace(**vars(args))
            yield path, partial(check, copied, pretended_engines(args), env)


def pretended_engines(args: Arguments) -> dict[str, list[str]]:
    """Addresses of the engines that a start would have, by what they serve."""
    judge, teacher = args.prm_num_gpus or args.rented_judge, args.prm_teacher_num_gpus
    return {
        "policy": [*PRETENDED],
        "judge": [*PRETENDED] if judge else [],
        "teacher": [*PRETENDED] if teacher else [],
    }
