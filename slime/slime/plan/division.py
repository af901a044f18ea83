"""Bytes on a GPU that trains with --train-backend megatron, from the shape and the division of the model.

A rank keeps, of its part of the weights, 2 bytes a number in bf16 to compute with, 4 for gradients in fp32, and 12 for
the weights that the optimizer moves and their two moments; these 12 are shared out over the copies of its part with
--use-distributed-optimizer, and lie in CPU memory with --fsdp-cpu-offload. Frozen models take 2.

Its part: 1/(tp x pp) of the layers without their experts, 1/(ep x pp) of the experts, and of the ends 1/tp on the
first and on the last stage. Experts have world / (ep x pp) copies, all else has world / (tp x pp).

Activations: a layer keeps what `slime.plan.memory.layer_bytes` says, of which a rank has 1/cp; of it, what lies
between the matrices (16 H) is whole on every rank of tp without --sequence-parallel. A first stage keeps as many
micro-batches as there are stages (1F1B), of 1/pp of the layers each; only the last stage has logits, and one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slime.errors import ConfigError
from slime.plan.shape import Shape

if TYPE_CHECKING:
    from slime.plan.memory import Trainer

Parts = dict[str, float]
"""What each part takes, in bytes of one GPU."""


@dataclass(frozen=True)
class Division:
    """Ranks that cut matrices (tp), layers (pp), tokens (cp) and experts (ep) among themselves."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    distributed_optimizer: bool = False

    def check(self, shape: Shape, gpus: int) -> None:
        """Raises ConfigError for GPUs or a model that do not divide so."""
        model = self.tp * self.pp * self.cp
        if gpus % model or gpus // self.pp % self.ep:
            raise ConfigError(
                f"{gpus} GPUs do not divide into models of {model} (tensor x pipeline x context parallel) and "
                f"stages of {self.ep} expert parallel ranks"
            )
        if odd := next((heads for heads in shape.all_heads if heads % (self.tp * self.cp)), None):
            raise ConfigError(
                f"{shape.name} has {odd} heads of a kind, which do not divide by {self.tp * self.cp} tensor x context "
                "parallel ranks; make --tensor-model-parallel-size (TRAIN_TP) smaller"
            )
        if self.ep > 1 and shape.experts % self.ep:
            raise ConfigError(
                f"{shape.name} has {shape.experts} experts, which do not divide by {self.ep} expert parallel ranks"
            )
        if shape.layers % self.pp:
            raise ConfigError(
                f"{shape.name} has {shape.layers} layers, which do not divide into {self.pp} stages"
            )

    def numbers(self, shape: Shape, first: bool) -> tuple[float, float]:
        """Of the first or the last stage's rank: without experts, and in experts."""
        layers = shape.parameters - shape.ends - shape.experts_linear
        ends = shape.ends if self.pp == 1 else shape.embedding
        if not first and self.pp > 1:
            ends += shape.hidden
        return layers / (self.tp * self.pp) + ends / self.tp, shape.experts_linear / (self.ep * self.pp)


def rank_parts(plan: Trainer, division: Division, layer: int) -> Parts:
    """Bytes of the fullest rank by part; it is one of the first or of the last stage.

    Args:
        layer: bytes that one layer keeps of one token.
    """
    stages = [_stage_parts(plan, division, layer, first) for first in (True, False)]
    return max(stages, key=lambda parts: sum(parts.values()))


def optimizer_bytes(plan: Trainer, division: Division, first: bool = False) -> float:
    """Of weights and moments in fp32, of one rank of the first or the last stage, wherever they lie."""
    if plan.lora_rank:
        return 12.0 * plan.shape.adapters(plan.lora_rank) / (division.tp * division.pp)
    rest, experts = division.numbers(plan.shape, first)
    if not division.distributed_optimizer:
        return 12.0 * (rest + experts)
    copies = plan.gpus / (division.tp * division.pp), plan.gpus / (division.ep * division.pp)
    return 12.0 * (rest / copies[0] + experts / copies[1])


def _stage_parts(plan: Trainer, division: Division, layer: int, first: bool) -> Parts:
    shape = plan.shape
    mine = sum(division.numbers(shape, first))
    trained = shape.adapters(plan.lora_rank) / (division.tp * division.pp) if plan.lora_rank else mine
    parts: Parts = {
        "weights": 2 * mine,
        "gradients": 4 * trained,
        "frozen models": sum(2 * sum(division.numbers(one, first)) for one in plan.frozen),
    }
    if not plan.cpu_offload:
        parts["optimizer"] = optimizer_bytes(plan, division, first)
    tokens = plan.tokens / division.cp
    between = 16 * shape.hidden
    split = (between if division.sequence_parallel else 0) + layer - between
    kept = split / division.tp + layer - split
    batches, layers = (division.pp if first else 1), shape.layers / division.pp
    if plan.checkpointing:
        inputs = 2 * shape.hidden / (division.tp if division.sequence_parallel else 1)
        parts["activations"] = tokens * (batches * layers * inputs + kept)
    else:
        parts["activations"] = tokens * batches * layers * kept
    if not first or division.pp == 1:
        parts["logits"] = 12.0 * plan.tokens * shape.vocabulary / division.tp
    return parts
