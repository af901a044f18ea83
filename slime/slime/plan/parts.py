"""What the memory of a trainer and of an engine depends on."""

from __future__ import annotations

from dataclasses import dataclass

from slime.plan.division import Division
from slime.plan.shape import Shape

Parts = dict[str, float]
"""What each part takes, in bytes of one GPU."""


@dataclass(frozen=True)
class TrainerMemory:
    """How a model is trained. `tokens`: of one micro-batch; `rows`: of logits at a time, 0 for all of them;
    `frozen`: whole models beside it (reference, teacher), in their sizes; `division`: of --train-backend megatron, None
    for fsdp; `entropy`: the loss has a term of it."""

    shape: Shape
    gpus: int
    tokens: int
    rows: int = 0
    checkpointing: bool = False
    cpu_offload: bool = False
    lora_rank: int = 0
    four_bit: bool = False
    frozen: tuple[Shape, ...] = ()
    division: Division | None = None
    entropy: bool = False


@dataclass(frozen=True)
class EngineMemory:
    """How a model is served: GPUs of one engine, its share of their memory, and the longest request."""

    shape: Shape
    gpus: int
    fraction: float
    context: int
