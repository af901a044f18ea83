"""Flags: parallelism of the Megatron backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs, option
from claw_base.settings.rules import Rule

OF_MEGATRON = excludes(
    train_backend=("fsdp", "rented"),
    text="{flag} is for the Megatron backend, but this run uses --train-backend {train_backend}; drop "
    "it, or use --train-backend megatron",
)
CUT_ON_GPUS = "{flag} needs GPUs and --tensor-model-parallel-size above 1; drop it"


def full_needs(name: str) -> Rule:
    """Rejects whole-layer recomputation without a method."""
    text = f"{{flag}} full also needs {option(name)}; to recompute every layer use --gradient-checkpointing"
    return excludes(recompute_granularity="full", without=[name], text=text)


@dataclass
class ParallelArguments:
    """Parallelism of the model (--train-backend megatron)."""

    tensor_model_parallel_size: int = flag(
        1, "tensor-parallel ranks", aliases=("--tp",), least=1, rules=[OF_MEGATRON], main=True
    )
    pipeline_model_parallel_size: int = flag(
        1, "pipeline-parallel ranks", aliases=("--pp",), least=1, rules=[OF_MEGATRON]
    )
    decoder_last_pipeline_num_layers: int | None = flag(
        None,
        "layers of the last pipeline stage, with the output head (default: equal shares)",
        least=1,
        rules=[
            OF_MEGATRON,
            excludes(
                pipeline_model_parallel_size=1,
                text="{flag} needs --pipeline-model-parallel-size above 1; drop it",
            ),
        ],
    )
    context_parallel_size: int = flag(
        1,
        "context-parallel ranks, which divide the tokens of a micro-batch",
        aliases=("--cp",),
        least=1,
        rules=[OF_MEGATRON],
    )
    expert_model_parallel_size: int = flag(
        1,
        "expert-parallel ranks; they may be data-parallel ranks too",
        aliases=("--ep",),
        least=1,
        rules=[OF_MEGATRON],
    )
    sequence_parallel: bool = flag(
        False,
        "divide tokens between matrices among tensor-parallel ranks (sequence parallelism); needs GPUs",
        rules=[
            OF_MEGATRON,
            excludes(tensor_model_parallel_size=1, text=CUT_ON_GPUS),
            excludes(actor_num_gpus_per_node=0, text=CUT_ON_GPUS),
        ],
    )
    use_distributed_optimizer: bool = flag(
        False,
        "shard the optimizer's states over data-parallel ranks",
        rules=[OF_MEGATRON],
    )
    recompute_granularity: Literal["full", "selective"] | None = flag(
        None,
        "parts recomputed in the backward pass: whole layers, or their --recompute-modules",
        rules=[full_needs("recompute_method"), full_needs("recompute_num_layers")],
    )
    recompute_method: Literal["uniform", "block"] | None = flag(
        None,
        "with full: uniform recomputes groups of --recompute-num-layers layers, block the first "
        "layers of a stage",
        rules=[needs(recompute_granularity="full")],
    )
    recompute_num_layers: int | None = flag(
        None, "with full: number of layers", least=1, rules=[needs(recompute_granularity="full")]
    )
    recompute_modules: str | None = flag(
        None,
        "with selective: core_attn, mlp, comma-separated (default: core_attn)",
        rules=[needs(recompute_granularity="selective")],
    )
