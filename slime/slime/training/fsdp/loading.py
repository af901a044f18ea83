"""A Hugging Face model, loaded, adapted and sharded by FSDP2 as the flags want it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from slime.errors import ConfigError
from slime.training.attention.kernels import attention_name
from slime.training.attention.linear import keep_exact, keep_sequences_apart
from slime.training.core.precision import computing_dtype, serves_fp32
from slime.training.fsdp.loading_shards import FolderShards, open_shards
from slime.training.fsdp.lora import add_adapters
from slime.training.fsdp.model import PackedModel, equip
from slime.training.fsdp.quantized import four_bit_config, four_bit_parameters, keep_packing
from slime.utils.decoders import language_part
from slime.vision.models import attention_of, model_class, seeing_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from slime.flags import Arguments
    from slime.flags.sides import TrainingSide

Model = TypeVar("Model", bound=nn.Module)


def load_model(folder: str, mesh: DeviceMesh, args: Arguments, trained: bool = True) -> PackedModel:
    """The causal language model in `folder`, with adapters if it is trained and the flags want them.

    Args, Raises: of `load_as`.
    """

    def adapt(model: PreTrainedModel) -> PackedModel:
        adapted = add_adapters(model, args) if trained and args.use_lora else model
        return equip(adapted, args.log_probs_chunk_size)

    return load_as(adapt, folder, mesh, args, trained)


def load_as(
    adapt: Callable[[Any], Model], folder: str, mesh: DeviceMesh, args: Arguments, trained: bool = True
) -> Model:
    """What `adapt` makes of the causal language model in `folder`, its weights in fp32, sharded over `mesh`.
    Each rank reads the rows that it keeps.

    It computes in bf16 on CUDA and with --bf16, in fp32 otherwise. Gradients are added up in fp32 over micro-batches and
    ranks; within one backward pass they have the dtype that it computes in, also where the chunks of a deferred head add
    theirs.

    Args:
        adapt: wraps the model before it is sharded.
        trained: gradients will be taken; without, frozen weights and activation checkpoints do not matter.

    Raises:
        ConfigError: the folder holds no model that transformers can load, or flags do not fit it.
    """
    transformers_logging.disable_progress_bar()
    shards, model = _load(folder, args)
    keep_sequences_apart(model, folder)
    switch_off_dropout(model)
    model.train()
    if trained:
        choose_trained(model, args.only_train_params_name_list, args.freeze_params_name_list)
        if args.gradient_checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    adapted = adapt(model)
    names = {} if shards is None else shards.names_in(adapted)
    exact = set[str]()
    in_bf16 = computing_dtype(args, mesh.device_type) == torch.bfloat16
    if shards is not None and in_bf16 and serves_fp32(args):
        exact = shards.stored_in_fp32(names)
    shard(adapted, mesh, args, keep_exact(adapted, exact, mesh))
    if shards is not None:
        shards.fill(adapted, names)
    return adapted


def _load(folder: str, args: TrainingSide) -> tuple[FolderShards | None, PreTrainedModel]:
    """The model in fp32: without its weights and what will fill its shards, or whole where only transformers reads it."""
    how: dict[str, Any] = {"dtype": torch.float32}
    if args.load_in_4bit:
        how |= four_bit_config()
    try:
        config = seeing_config(language_part(AutoConfig.from_pretrained(folder, local_files_only=True)))
        how["attn_implementation"] = attention_of(config, attention_name(args))
        shards = None if args.load_in_4bit else open_shards(config, folder, **how)
        if shards is not None:
            return shards, shards.model
        whole = model_class(config).from_pretrained(folder, config=config, local_files_only=True, **how)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{folder} cannot be loaded as a causal language model: {reason}") from error
    keep_packing(whole)
    return None, whole


def choose_trained(model: nn.Module, only: list[str], frozen: list[str]) -> None:
    """Freezes the weights whose names match none of `only`, or one of `frozen`: regular expressions, matched anywhere.

    Raises:
        ConfigError: an expression that matches no weight, or nothing left to train.
    """
    names = [name for name, _ in model.named_parameters()]
    for flag, patterns in (("--only-train-params-name-list", only), ("--freeze-params-name-list", frozen)):
        for pattern in patterns:
            if not any(re.search(pattern, name) for name in names):
                raise ConfigError(f"{flag} {pattern} matches no weight; they are named like {names[0]}")
    for name, parameter in model.named_parameters():
        stays = any(re.search(pattern, name) for pattern in frozen)
        chosen = not only or any(re.search(pattern, name) for pattern in only)
        if parameter.is_floating_point():
            parameter.requires_grad_(chosen and not stays and parameter.requires_grad)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("--freeze-params-name-list leaves no weight to train")


def shard(
    model: PreTrainedModel, mesh: DeviceMesh, args: TrainingSide, sharded: set[nn.Parameter] | None = None
) -> None:
    """Applies FSDP2 to every transformer block, to what wants to compute in fp32 (`in_fp32`), then to what is left.
    Weights in 4 bits stay whole on every rank, and what is `sharded` already stays as it is."""
    wanted = computing_dtype(args, mesh.device_type)
    precision = MixedPrecisionPolicy(
        param_dtype=wanted if wanted == torch.bfloat16 else None, reduce_dtype=torch.float32
    )
    offload = CPUOffloadPolicy() if args.fsdp_cpu_offload else OffloadPolicy()
    how: dict[str, Any] = {"mesh": mesh, "mp_policy": precision, "offload_policy": offload}
    if left_alone := four_bit_parameters(model) | (sharded or set()):
        how["ignored_params"] = left_alone
    blocks = set(model._no_split_modules or ())
    for module in model.modules():
        if type(module).__name__ in blocks:
            fully_shard(module, **how)
    for name in getattr(model, "in_fp32", ()):
        exact = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        fully_shard(model.get_submodule(name), **how | {"mp_policy": exact})
    fully_shard(model, **how)
    model.offloads = args.fsdp_cpu_offload


def switch_off_dropout(model: nn.Module) -> None:
    """Training must see the distribution that the engine sampled from."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (mypy takes it for a tensor)
