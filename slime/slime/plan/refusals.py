"""The arguments that a start rejects: checked by the driver before anything starts, by a dry run, and by a launch
script before it installs packages.

The module of `--service-path` may have `check_arguments(args, endpoints, env)`. It raises the errors of its `start`,
without starting anything or changing `args`. Without that function, errors are found only at the start. It may also
have `check_settings` with the same arguments: the part of these checks that needs no packages.
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

PLACEHOLDER_URLS = ["http://127.0.0.1:1"]
"""Placeholder addresses of engines in a plan."""
WANDB_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_ANONYMOUS")
"""Variables that make W&B work without asking for a key."""


def check_before_start(args: Arguments, env: Mapping[str, str]) -> None:
    """Rejects anything that would make a start on this machine fail later: a missing model of judge or teacher,
    engines that no machine could start, a gate's engine that does not support the model, W&B without a key, and a
    checkpoint of other adapters.

    Raises:
        ConfigError: one of these.
        CheckpointError: the checkpoint to resume from does not fit the run, or is missing.
    """
    for check in _checks(args, env, here=True):
        check()


def _checks(args: Arguments, env: Mapping[str, str], here: bool) -> list[Callable[[], object]]:
    """Returns checks that can be called. `here`: the run starts on this machine."""
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
    """Raises ConfigError if W&B would ask for a key, which is impossible in a run."""
    mode = args.wandb_mode or env.get("WANDB_MODE") or "online"
    if not args.use_wandb or mode != "online" or any(env.get(name) for name in WANDB_KEYS):
        return
    places = [env["NETRC"]] if env.get("NETRC") else ["~/.netrc", "~/_netrc"]
    if not any(Path(place).expanduser().is_file() for place in places):
        raise ConfigError(
            "--use-wandb needs a key: export WANDB_API_KEY (or WANDB_KEY), or WANDB_MODE=offline to keep the logs "
            "in the run folder"
        )


def check_checkpoint(args: Arguments) -> None:
    """Raises CheckpointError if the checkpoint to resume from has other adapters, or is missing."""
    if args.debug_rollout_only:
        return
    folder = checkpoints.find(args.save) or checkpoints.find(args.load)
    if folder is not None:
        checkpoints.check_adapters(folder, checkpoints.read_meta(folder), checkpoints.lora_settings(args))


def refusals(args: Arguments, env: Mapping[str, str], here: bool = True) -> list[str]:
    """Returns all errors that a start with these arguments and variables would raise; [] if there are none.

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
        except Exception as error:  # as at a start, any exception of a hook is an error
            lines.append(
                str(error) if getattr(error, "refusal", False) else f"--service-path {path}: {error}"
            )
    return lines


def settings_refusals(args: Arguments, env: Mapping[str, str], here: bool = True) -> Iterator[str]:
    """Yields the errors of `refusals` that can be found while packages have stand-ins."""
    asks = [ask for _, ask in _hooks(args, env, "check_settings", "check_arguments")]
    for check in [*_checks(args, env, here), *asks]:
        try:
            check()
        except (ConfigError, CheckpointError) as error:
            yield str(error)
        except Exception:  # a stand-in cannot replace the package in this check: the driver decides
            continue


def _hooks(
    args: Arguments, env: Mapping[str, str], *names: str
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields the path of each `--service-path`, with the first of these functions that its module has, ready to be
    called."""
    for path in [] if args.debug_train_only else args.service_path:
        module = load_module(path)
        check: Any = next(filter(None, (getattr(module, name, None) for name in names)), None)
        if check is not None:
            copied = argparse.Namespace(**vars(args))
            yield path, partial(check, copied, placeholder_engines(args), env)


def placeholder_engines(args: Arguments) -> dict[str, list[str]]:
    """Returns addresses of the engines that a start would have, by role."""
    judge, teacher = args.prm_num_gpus or args.rented_judge, args.prm_teacher_num_gpus
    return {
        "policy": [*PLACEHOLDER_URLS],
        "judge": [*PLACEHOLDER_URLS] if judge else [],
        "teacher": [*PLACEHOLDER_URLS] if teacher else [],
    }
