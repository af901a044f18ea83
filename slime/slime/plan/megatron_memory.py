"""Bytes on a GPU that trains with --train-backend megatron, from the shape and the division of the model.

A rank keeps, of its part of the weights, 2 bytes a number in bf16 to compute with, 4 for gradients in fp32, and 12 for
the weights that the optimizer moves and their two moments; these 12 are shared out over the copies of its part with
--use-distributed-optimizer, and lie in CPU memory with --fsdp-cpu-offload. Frozen models take 2.

Activations: a layer keeps `layer` bytes of a token (`slime.plan.memory.layer_bytes`), of which a rank has 1/cp; of it,
what lies between the matrices (16 H) is whole on every rank of tp without --sequence-parallel. A first stage keeps as
many micro-batches as there are stages (1F1B), of 1/pp of the layers each; only the last stage has logits, of one batch,
and a rank of cp those of its tokens. What a layer recomputes, the logits, and the gradients of embedding and head in
bf16 are not there at the same time: the fullest phase counts. The gradient of a head that is the embedding too waits
for the one of the embedding.
"""

from __future__ import annotations

from slime.plan.division import Division
from slime.plan.parts import Parts, TrainerMemory

NORMS = 2
"""Bytes a number of queries and keys that their norms keep here and Hugging Face's layers do not; measured."""
WIDENED = 6
"""Bytes of gradients beside those that stay, for each number of embedding or output head: in bf16 what was summed up,
what is added and their sum, or the sum in bf16 and in fp32."""


def rank_parts(trainer: TrainerMemory, division: Division, layer: int, backward: int, logit: float) -> Parts:
    """Bytes of the fullest rank in its fullest phase by part; it is one of the first or of the last stage.

    Args:
        layer, backward: bytes that one layer keeps of one token, and that its backward pass holds more. logit: of one.
    """
    found = []
    for first in (True, False):
        stays = _stage_parts(trainer, division, first)
        found += [stays | phase for phase in _phases(trainer, division, (layer, backward), logit, first)]
    return max(found, key=lambda parts: sum(parts.values()))


def optimizer_bytes(trainer: TrainerMemory, division: Division, first: bool = False) -> float:
    """Of weights and moments in fp32, of one rank of the first or the last stage, wherever they lie."""
    if trainer.lora_rank:
        return 12.0 * _adapters(trainer, division, first)
    rest, experts = division.numbers(trainer.shape, first)
    if not division.distributed_optimizer:
        return 12.0 * (rest + experts)
    copies = trainer.gpus / (division.tp * division.pp), trainer.gpus / (division.ep * division.pp)
    return 12.0 * (rest / copies[0] + experts / copies[1])


def _adapters(trainer: TrainerMemory, division: Division, first: bool) -> float:
    """Numbers in the adapters of one rank."""
    share = division.layers(trainer.shape, first) / trainer.shape.layers
    return trainer.shape.adapters(trainer.lora_rank) * share / division.tp


def _stage_parts(trainer: TrainerMemory, division: Division, first: bool) -> Parts:
    shape = trainer.shape
    mine = sum(division.numbers(shape, first))
    trained = _adapters(trainer, division, first) if trainer.lora_rank else mine
    parts: Parts = {
        "weights": 2 * mine,
        "gradients": 4 * trained,
        "frozen models": sum(2 * sum(division.numbers(one, first)) for one in trainer.frozen),
    }
    if not trainer.cpu_offload:
        parts["optimizer"] = optimizer_bytes(trainer, division, first)
    return parts


def _phases(
    trainer: TrainerMemory, division: Division, layer: tuple[int, int], logit: float, first: bool
) -> list[Parts]:
    """What comes on top in the backward pass of one layer, where gradients of the vocabulary are widened, and at the
    output head where the stage has it."""
    shape, tokens = trainer.shape, trainer.tokens / division.cp
    kept, again = _activations(trainer, division, layer[0], first)
    ends = 0.0 if trainer.lora_rank else shape.embedding / division.tp
    head, alone = not first or division.pp == 1, division.pp == 1
    halves = 2 * max(shape.mlp, shape.used_experts * shape.expert_mlp + shape.shared_mlp)
    inside = tokens * (layer[1] + halves) / division.tp + 4 * shape.hidden * tokens
    outside = kept + (8 * shape.hidden * tokens if head else 0)
    found: list[Parts] = [
        {
            "activations": kept + again + inside,
            "gradients on their way": 2 * ends if shape.tied and alone else 0,
        },
        {"activations": outside, "gradients on their way": WIDENED * ends},
    ]
    if head:
        rows = min(trainer.rows or tokens, tokens)
        summed = 2 * ends if rows < tokens else 0
        logits = logit * rows * shape.vocabulary / division.tp
        found.append({"activations": outside, "gradients on their way": summed, "logits": logits})
    return found


def _activations(trainer: TrainerMemory, division: Division, layer: int, first: bool) -> tuple[float, float]:
    """What all micro-batches of a stage keep, and what one layer computes again."""
    shape, tokens = trainer.shape, trainer.tokens / division.cp
    between = 16 * shape.hidden
    split = (between if division.sequence_parallel else 0) + layer - between
    one = (split + NORMS * (shape.queries + shape.keys)) / division.tp + layer - split
    whole = 2 * shape.hidden * tokens / (division.tp if division.sequence_parallel else 1)
    layers = (division.pp if first else 1) * division.layers(shape, first)
    again = tokens * one if trainer.checkpointing else 0.0
    return layers * (whole if trainer.checkpointing else tokens * one), again
