"""One kernel in place of several: norms and gated activations of a decoder (--fused-layers).

A plain RMS norm reads and writes its tokens some six times, a plain SwiGLU three times.
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
    """torch has the kernel on GPUs; on a CPU its function is made of the same steps as the plain one."""
    return args.fused_layers == "all" or (args.fused_layers == "auto" and args.actor_num_gpus_per_node > 0)


def fuses_activations(args: TrainingSide) -> bool:
    """They are compiled at the first step, for which Triton (on a CPU torch itself) needs a C compiler."""
    return args.fused_layers == "all"


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Norm (Zhang and Sennrich 2019) of [..., H] in its dtype.

    It rounds once, after the weight, as engines do; transformers rounds before the weight too. In fp32 both are equal.
    """
    return functional.rms_norm(hidden, (hidden.shape[-1],), weight, eps)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) x up of [..., I]."""
    return functional.silu(gate) * up


@lru_cache(maxsize=1)
def compiled_swiglu() -> Any:
    return torch.compile(swiglu, dynamic=True)
