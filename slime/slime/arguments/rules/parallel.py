"""Refuses divisions of the model that do not fit the training processes, and what a backend cannot do."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from slime.arguments.declare import option
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
)
SWITCHES = ("sequence_parallel", "use_distributed_optimizer")
PACKAGE = "megatron-core==0.16.1"
NOT_BY_MEGATRON = {
    "load_in_4bit": "its matrices are not kept in 4 bits",
    "lora_modules_to_save": "adapters alone are trained with it",
    "only_train_params_name_list": "its weights are joined in other matrices than the model's names say",
    "freeze_params_name_list": "its weights are joined in other matrices than the model's names say",
    "offload_train": "weights and optimizer states stay on the GPU",
}


def check_parallel(args: Arguments) -> None:
    """Checks backend and division.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    for name in SIZES:
        if getattr(args, name) < 1:
            raise ConfigError(f"{option(name)} must be 1 or more, got {getattr(args, name)}")
    if args.train_backend == "fsdp":
        given = [name for name in SIZES if getattr(args, name) > 1]
        given += [name for name in SWITCHES if getattr(args, name)]
        for name in given:
            raise ConfigError(
                f"{option(name)} belongs to the Megatron backend, and this is --train-backend fsdp; drop it, "
                "or take --train-backend megatron"
            )
        return
    _check_megatron(args)
    ranks = args.tensor_model_parallel_size * args.pipeline_model_parallel_size * args.context_parallel_size
    if args.train_world_size % ranks:
        raise ConfigError(
            f"{args.train_world_size} training processes do not divide into models of {ranks} (tensor x pipeline x "
            "context parallel ranks); change --actor-num-gpus-per-node, --num-train-processes or these sizes"
        )
    stage = args.train_world_size // args.pipeline_model_parallel_size
    if stage % args.expert_model_parallel_size:
        raise ConfigError(
            f"the {stage} training processes of a pipeline stage do not divide into groups of "
            f"--expert-model-parallel-size {args.expert_model_parallel_size}; change it, or their number"
        )


def _check_megatron(args: Arguments) -> None:
    if find_spec("megatron") is None:
        raise ConfigError(f"--train-backend megatron needs a package: pip install --no-deps {PACKAGE}")
    for name, reason in NOT_BY_MEGATRON.items():
        if getattr(args, name):
            raise ConfigError(
                f"{option(name)} does not work with --train-backend megatron: {reason}; drop it"
            )
    if args.log_probs_chunk_size != -1:
        raise ConfigError(
            "--log-probs-chunk-size does not work with --train-backend megatron; cut the logits by "
            "--tensor-model-parallel-size, or drop it"
        )
    if args.lora_dropout and args.tensor_model_parallel_size > 1:
        raise ConfigError(
            "--lora-dropout: ranks that cut a matrix (--tensor-model-parallel-size) would leave out different inputs; "
            "drop one of the two"
        )
    if args.sequence_parallel and (args.tensor_model_parallel_size == 1 or not args.actor_num_gpus_per_node):
        raise ConfigError("--sequence-parallel needs GPUs and --tensor-model-parallel-size above 1; drop it")
