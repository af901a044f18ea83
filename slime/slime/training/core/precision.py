"""In which numbers a model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.model import ModelArguments


def computing_dtype(args: ModelArguments, device_type: str) -> torch.dtype:
    """bf16 on CUDA and with --bf16, else fp32."""
    in_bf16 = args.bf16 or (device_type == "cuda" and not args.fp32)
    return torch.bfloat16 if in_bf16 else torch.float32


def serves_fp32(args: Arguments) -> bool:
    """Whether vectors that the folder stores in fp32 (decays, which are taken to the power of a sequence's length) stay
    so beside bf16 ones. The embedded engine holds all tensors in one dtype, and training computes as the engine does."""
    return args.rollout_backend != "embedded"
