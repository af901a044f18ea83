"""Rejects parallelism that does not match the number of training processes, and missing packages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from claw_base.settings.declare import option
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.flags import Arguments

PACKAGE = "megatron-core==0.16.1"
TRACKERS = {"use_wandb": "wandb", "use_trackio": "trackio"}


def check_parallel(args: Arguments) -> None:
    """Checks backend and parallelism.

    Raises:
        ConfigError: the message names the contradiction and the remedy.
    """
    if args.train_backend != "megatron":
        return
    _check_megatron(args)
    ranks = args.tensor_model_parallel_size * args.pipeline_model_parallel_size * args.context_parallel_size
    if args.train_world_size % ranks:
        raise ConfigError(
            f"{args.train_world_size} training processes are not divisible by {ranks} ranks per "
            "model (tensor x pipeline x context parallel); change --actor-num-gpus-per-node, "
            "--num-train-processes or these sizes"
        )
    stage = args.train_world_size // args.pipeline_model_parallel_size
    if stage % args.expert_model_parallel_size:
        raise ConfigError(
            f"the {stage} training processes of a pipeline stage are not divisible by "
            f"--expert-model-parallel-size {args.expert_model_parallel_size}; change it, or their "
            "number"
        )


def check_packages(args: Arguments) -> None:
    """Raises ConfigError for a backend or a tracker that is not installed. Launch scripts install both."""
    if args.train_backend == "megatron" and find_spec("megatron") is None:
        raise ConfigError(f"--train-backend megatron needs a package: pip install --no-deps {PACKAGE}")
    for name, package in TRACKERS.items():
        if vars(args)[name] and find_spec(package) is None:
            raise ConfigError(f"{option(name)} needs the package {package}: pip install {package}")


def _check_megatron(args: Arguments) -> None:
    if args.lora_dropout and args.tensor_model_parallel_size > 1:
        raise ConfigError(
            "--lora-dropout: ranks that share a matrix (--tensor-model-parallel-size) would drop "
            "different inputs; remove one of the two"
        )
