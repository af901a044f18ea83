"""Flags: how the Megatron backend divides a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.declare import flag


@dataclass
class ParallelArguments:
    """Division of the model (--train-backend megatron)."""

    tensor_model_parallel_size: int = flag(1, "ranks among which every matrix is cut", aliases=("--tp",))
    pipeline_model_parallel_size: int = flag(1, "ranks among which the layers are dealt", aliases=("--pp",))
    context_parallel_size: int = flag(
        1, "ranks among which the tokens of a micro-batch are dealt", aliases=("--cp",)
    )
    expert_model_parallel_size: int = flag(
        1, "ranks among which the experts of a mixture are dealt; they may be copies too", aliases=("--ep",)
    )
    sequence_parallel: bool = flag(
        False, "deal the tokens between matrices too, among the ranks that cut them; needs GPUs"
    )
    use_distributed_optimizer: bool = flag(
        False, "every copy of the model keeps and moves a share of the optimizer's states, not all of them"
    )
    recompute_granularity: Literal["full", "selective"] | None = flag(
        None, "what the backward pass computes again: whole layers, or --recompute-modules of them"
    )
    recompute_method: Literal["uniform", "block"] | None = flag(
        None,
        "with full: uniform keeps the input of every --recompute-num-layers layers, block computes that many first "
        "layers of a stage again",
    )
    recompute_num_layers: int | None = flag(None, "with full: number of layers")
    recompute_modules: str | None = flag(
        None, "with selective: core_attn, mlp, their names separated by commas (default: core_attn)"
    )
