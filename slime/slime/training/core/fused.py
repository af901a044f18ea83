"""Fused kernels for norms and gated activations of a decoder (--fused-layers).

A plain RMS norm makes about six passes over memory, a plain SwiGLU three.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from slime.flags.sides import TrainingSide


def fuses_norms(args: TrainingSide) -> bool:
    """Returns whether norms are fused: only with torch's GPU kernel; on a CPU it would run the plain steps."""
    return args.fused_layers == "all" or (args.fused_layers == "auto" and args.actor_num_gpus_per_node > 0)


def fuses_activations(args: TrainingSide) -> bool:
    """Returns whether activations are fused. They are compiled at the first step, which needs a C compiler."""
    return args.fused_layers == "all"


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Returns the RMS norm (Zhang and Sennrich 2019) of [..., H] in its dtype.

    It rounds once, after multiplying by the weight, as engines do; transformers also rounds before. In fp32
    both give the same result.
    """
    return functional.rms_norm(hidden, (hidden.shape[-1],), weight, eps)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Returns silu(gate) * up for tensors [..., I]."""
    return functional.silu(gate) * up


@lru_cache(maxsize=1)
def compiled_swiglu() -> Any:
    return torch.compile(swiglu, dynamic=True)
