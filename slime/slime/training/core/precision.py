"""In which numbers a model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from slime.arguments.groups.model import ModelArguments


def computing_dtype(args: ModelArguments, device_type: str) -> torch.dtype:
    """bf16 on CUDA and with --bf16, else fp32."""
    in_bf16 = args.bf16 or (device_type == "cuda" and not args.fp32)
    return torch.bfloat16 if in_bf16 else torch.float32
