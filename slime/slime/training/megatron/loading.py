"""A model of this backend, built and filled from a Hugging Face folder."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from slime.training.attention.kernels import attention_name
from slime.training.megatron.core_config import read_config, transformer_config
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Parallel
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.weights import WeightMap

Core = TypeVar("Core", bound=PackedGPT)


def computing_dtype(args: Any, device: torch.device) -> torch.dtype:
    """bf16 on CUDA and with --bf16, else fp32."""
    return torch.bfloat16 if args.bf16 or (device.type == "cuda" and not args.fp32) else torch.float32


def load_model(
    folder: str, args: Any, parallel: Parallel, device: torch.device
) -> tuple[ShardedModel, WeightMap]:
    """This rank's part of the model in `folder`, and where its weights come from. Raises ConfigError as `load_core`."""
    core, weights = load_core(PackedGPT, folder, args, parallel, device)
    return ShardedModel(core), weights


def load_core(
    kind: type[Core], folder: str, args: Any, parallel: Parallel, device: torch.device
) -> tuple[Core, WeightMap]:
    """The same, not yet spread over pipeline stages, as a `kind` of stage.

    Raises:
        ConfigError: a model that this backend cannot build or that does not divide by the ranks; a missing weight;
            an attention kernel that is not installed.
    """
    attention_name(args)
    hf = read_config(folder)
    core = kind(hf, transformer_config(hf, args, computing_dtype(args, device)), parallel, args)
    weights = WeightMap(core, hf)
    weights.load(folder)
    return core.to(device), weights
