"""Flags: how the Megatron backend divides a model."""

from __future__ import annotations

from dataclasses import dataclass

from slime.arguments.field import flag


@dataclass
class ParallelArguments:
    """Division of the model (--train-backend megatron)."""

    tensor_model_parallel_size: int = flag(1, "ranks among which every matrix is cut", aliases=("--tp",))
    pipeline_model_parallel_size: int = flag(1, "ranks among which the layers are dealt", aliases=("--pp",))
    context_parallel_size: int = flag(
        1, "ranks among which the tokens of a micro-batch are dealt", aliases=("--cp",)
    )
    sequence_parallel: bool = flag(
        False, "deal the tokens between matrices too, among the ranks that cut them; needs GPUs"
    )
