"""A model of this backend, built and filled from a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from slime.training.attention.kernels import attention_name
from slime.training.attention.linear import DECAY
from slime.training.core.model import computing_dtype, serves_fp32
from slime.training.megatron.core_config import read_config, transformer_config
from slime.training.megatron.lora import add_adapters
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Parallel
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.weights import WeightMap
from slime.weights.folders import fp32_vectors

if TYPE_CHECKING:
    from slime.flags import Arguments

Core = TypeVar("Core", bound=PackedGPT)


def load_model(
    folder: str,
    args: Arguments,
    parallel: Parallel,
    device: torch.device,
    trained: bool = False,
    on_logits: bool = False,
) -> ShardedModel:
    """This rank's part of the model in `folder`, with adapters if it is trained and the flags want them.

    Args:
        on_logits: what its losses see.

    Raises:
        ConfigError: as `load_core`, or adapters that it cannot have.
    """
    core, weights = load_core(PackedGPT, folder, args, parallel, device)
    if trained and args.use_lora:
        add_adapters(core, weights, args)
    return ShardedModel(core, weights, on_logits)


def load_core(
    kind: type[Core], folder: str, args: Arguments, parallel: Parallel, device: torch.device
) -> tuple[Core, WeightMap]:
    """This rank's part of the model in `folder` as a `kind` of stage, and where its weights come from.

    Raises:
        ConfigError: a model that this backend cannot build or that does not divide by the ranks; a missing weight;
            an attention kernel that is not installed.
    """
    attention_name(args)
    hf = read_config(folder)
    core = kind(hf, transformer_config(hf, args, computing_dtype(args, device.type)), parallel, args)
    core.to(device)  # before it has weights, so that these never lie in CPU memory together
    weights = WeightMap(core, hf)
    if core.config.params_dtype == torch.bfloat16 and serves_fp32(args):
        _keep_exact(weights, fp32_vectors(folder))
    weights.load(folder)
    return core, weights


def _keep_exact(weights: WeightMap, stored: Container[str]) -> None:
    """Decays that the folder has in fp32 compute in fp32: they are taken to the power of a sequence's length."""
    for name, entry in weights.entries.items():
        path, _, last = name.rpartition(".")
        if last in DECAY and entry.sources[0] in stored:
            module = weights.model.get_submodule(path)
            setattr(module, last, nn.Parameter(getattr(module, last).detach().float()))
