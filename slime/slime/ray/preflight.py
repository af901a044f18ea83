"""What a start would fail at later is refused while nothing runs yet."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from slime.errors import ConfigError
from slime.weights import checkpoints

if TYPE_CHECKING:
    from slime.flags import Arguments

TRACKERS = {"use_wandb": "wandb", "use_trackio": "trackio"}


def check(args: Arguments) -> None:
    """Trackers that are not installed, and a checkpoint of other adapters.

    Raises:
        ConfigError: a package is missing.
        CheckpointError: the checkpoint that the run would go on from does not fit it, or is not there.
    """
    for flag, package in TRACKERS.items():
        if vars(args)[flag] and find_spec(package) is None:
            words = f"--{flag.replace('_', '-')}"
            raise ConfigError(f"{words} needs the package {package}: pip install {package}")
    if args.debug_rollout_only:
        return
    folder = checkpoints.find(args.save) or checkpoints.find(args.load)
    if folder is not None:
        checkpoints.check_adapters(folder, checkpoints.read_meta(folder), checkpoints.lora_settings(args))
