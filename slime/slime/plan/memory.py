"""Memory of a GPU that trains or serves, in bytes, computed from shapes.

Trainer with --train-backend fsdp (FSDP2 over W ranks, fp32 weights, bf16 computing, AdamW): a rank keeps 1/W of
weights, gradients and two moments in fp32 (16 bytes a number), and of frozen models 4 bytes a number. The additional
memory differs between the phases of a micro-batch, of which the fullest counts (`phases`): the output head, one
layer's backward pass, and the gradients of embedding and head on their way to the other ranks (compared with torch's
memory tracker).

Activations: what autograd keeps of one Hugging Face decoder layer for each token, 16 H + 10 (Q + K) + 8 I bytes in bf16
(hidden size, queries, keys, feed-forward; counted on Qwen3 with saved-tensor hooks, to which a test holds it), in every
layer; with --gradient-checkpointing 2 H in every layer and the rest in one. A mixture of experts keeps, instead of 8 I,
4 H + 8 I of each expert that the token goes to and 4 bytes of each expert. Attention must not keep its T x T scores,
which PyTorch's fused kernels and FlashAttention do not.

Trainer with --train-backend megatron: a rank keeps, of its part of the weights, 2 bytes a number in bf16 to compute
with, 4 for gradients in fp32, and 12 for the weights that the optimizer moves and their two moments; these 12 are
divided over the copies of its part with --use-distributed-optimizer, and lie in CPU memory with --fsdp-cpu-offload.
Frozen models take 2. A layer keeps `layer_bytes` of a token, of which a rank has 1/cp; of it, the activations between
the matrices (16 H) are whole on every rank of tp without --sequence-parallel. A first stage keeps as many micro-batches
as there are stages (1F1B), of 1/pp of the layers each; only the last stage has logits, of one batch, and a rank of cp
those of its tokens. Recomputed activations of a layer, the logits, and the gradients of embedding and head in bf16 do not
exist at the same time: the fullest phase counts. The gradient of a tied head is kept until that of the embedding is
computed.

Engine: it gets the share `mem_fraction` of its GPU's memory without the CUDA context; keys and values use the part that
bf16 weights do not. In addition it needs its context, its CUDA graphs and working memory (`ENGINE_BESIDE`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slime.plan.division import Division
from slime.plan.hardware import GIB, Gpu
from slime.plan.shape import Shape

RUNTIME = int(1.5 * GIB)
"""CUDA context, NCCL, kernels' workspace; a typical value."""
CONTEXT = int(0.5 * GIB)
"""CUDA context of a process; a typical value."""
ENGINE_BESIDE = int(1.5 * GIB)
"""Bytes of an engine in addition to weights, keys and values: context, CUDA graphs, activations of a prefill of 2,048
tokens; a typical value."""
SLACK = 0.08
"""Share of a trainer's tensor memory that is lost to fragmentation; a typical value."""
RUNTIME_PART = "runtime and fragments"
"""The part of a plan that is not tensors of the trainer."""
FOUR_BIT = 0.5 + (1 + 4 / 256) / 64
"""Bytes a number in NF4 with double quantisation: half a byte, one byte a block of 64, fp32 for 256 of these."""

LOGIT_BLOCK = 2**26
"""Logits that a loss computes in fp32 at a time on a GPU: `slime.losses.dense.BLOCK_GPU`, whose module imports torch."""

Parts = dict[str, float]
"""Bytes of each part on one GPU."""
NORMS = 2
"""Bytes a number of queries and keys that their norms keep here and Hugging Face's layers do not; measured."""
WIDENED = 6
"""Bytes of gradients in addition to those that stay, for each number of embedding or output head: in bf16 the sum so
far, the addend and the new sum, or the sum in bf16 and in fp32."""


@dataclass(frozen=True)
class TrainerMemory:
    """Settings of training that determine memory.

    Attributes:
        tokens: tokens of one micro-batch.
        rows: rows of logits computed at a time; 0: all.
        frozen: shapes of further whole models, such as reference and teacher.
        division: division by --train-backend megatron; None: fsdp.
        entropy: whether the loss has an entropy term.
        averages: whether a mean of the weights is kept in addition to the moments (--average-steps).
    """

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
    averages: bool = False


@dataclass(frozen=True)
class EngineMemory:
    """Settings of serving that need memory: GPUs of one engine, its share of their memory, and the longest request."""

    shape: Shape
    gpus: int
    fraction: float
    context: int


def trainer_parts(trainer: TrainerMemory) -> Parts:
    """Returns bytes of one training GPU by part, without parts that are offloaded to the CPU (see `host_bytes`)."""
    shape, trained = trainer.shape, _trained(trainer)
    if trainer.division is not None:
        parts = rank_parts(
            trainer, trainer.division, layer_bytes(shape), backward_bytes(shape), logit_bytes(trainer)
        )
        parts[RUNTIME_PART] = RUNTIME + SLACK * sum(parts.values())
        return {name: size for name, size in parts.items() if size}
    parts = {}
    if not trainer.cpu_offload:
        parts["weights"] = _resting(trainer) / trainer.gpus
        parts["gradients"] = 4 * trained / trainer.gpus
        parts["optimizer"] = (12 if trainer.averages else 8) * trained / trainer.gpus
        parts["frozen models"] = sum(4 * one.parameters for one in trainer.frozen) / trainer.gpus
    if trainer.four_bit:
        parts["weights in 4 bits"] = FOUR_BIT * shape.linear_parameters
    fullest: Parts = max(phases(trainer), key=lambda phase: sum(phase.values()))
    parts |= fullest
    parts[RUNTIME_PART] = RUNTIME + SLACK * sum(parts.values())
    return {name: size for name, size in parts.items() if size}


def host_bytes(trainer: TrainerMemory) -> float:
    """Returns bytes of CPU memory of one rank that --fsdp-cpu-offload needs."""
    if not trainer.cpu_offload:
        return 0.0
    if trainer.division is not None:
        return optimizer_bytes(trainer, trainer.division)
    on_gpu = trainer_parts(replace(trainer, cpu_offload=False))
    return sum(on_gpu.get(name, 0.0) for name in ("weights", "gradients", "optimizer", "frozen models"))


def phases(trainer: TrainerMemory) -> list[Parts]:
    """Returns the transient memory of a micro-batch at the output head, in the backward pass of one layer, and at its
    end."""
    shape, tokens = trainer.shape, trainer.tokens
    ends, blocks = shape.ends, _whole_blocks(trainer)
    trained_ends = 0 if trainer.lora_rank else ends
    layer = _trained(trainer) / shape.layers if trainer.lora_rank else shape.block
    kept = activations(trainer) - (tokens * layer_bytes(shape) if trainer.checkpointing else 0)
    chunked = 0 < trainer.rows < tokens
    rows = trainer.rows or tokens
    return [
        {
            "layers in bf16": 2.0 * ends,
            "gradients in transfer": 2.0 * trained_ends if chunked else 0.0,
            "activations": kept + 8.0 * shape.hidden * tokens,
            "logits": logit_bytes(trainer) * rows * shape.vocabulary,
        },
        {
            "layers in bf16": 2.0 * (ends + blocks),
            "gradients in transfer": 2.0 * trained_ends + (6.0 + 4.0 / trainer.gpus) * layer,
            "activations": activations(trainer) + backward_bytes(shape) * tokens,
        },
        {
            "layers in bf16": 2.0 * ends,
            "gradients in transfer": (6.0 + 4.0 / trainer.gpus) * trained_ends,
            "activations": 6.0 * shape.hidden * tokens,
        },
    ]


def logit_bytes(trainer: TrainerMemory) -> float:
    """Returns bytes a logit, measured: bf16, its gradient, and a block of rows in fp32 three times; all rows if entropy
    is learned or ranks cut the vocabulary."""
    division = trainer.division
    if division is not None and division.tp > 1:
        return 24.6 if trainer.entropy else 16.6
    if trainer.entropy:
        return 22.6
    tokens = trainer.tokens / (1 if division is None else division.cp)
    logits = min(trainer.rows or tokens, tokens) * trainer.shape.vocabulary
    return 4.8 + 12 * min(1.0, LOGIT_BLOCK / logits)


def backward_bytes(shape: Shape) -> int:
    """Returns bytes of gradients that the backward pass of one layer holds at once for one token, in bf16. For a
    mixture of experts, it includes the outputs of all chosen experts."""
    wide = max(shape.mlp, shape.used_experts * shape.expert_mlp + shape.shared_mlp)
    answers = 2 * shape.used_experts * shape.hidden + shape.hidden if shape.mixed_layers else 0
    return 2 * (max(wide, answers) + shape.hidden)


def activations(trainer: TrainerMemory) -> float:
    """Returns bytes that autograd keeps for `tokens` tokens."""
    shape = trainer.shape
    layer = layer_bytes(shape)
    if trainer.checkpointing:
        return float(trainer.tokens * (2 * shape.hidden * shape.layers + layer))
    return float(trainer.tokens * layer * shape.layers)


def layer_bytes(shape: Shape) -> int:
    """Returns bytes that autograd keeps of one layer for one token: bf16, the widest kind of layer."""
    mixing = shape.queries * (2 if shape.gated else 1) + shape.keys
    if (linear := shape.linear_attention) is not None:
        mixing = max(mixing, 2 * linear.keys + 2 * linear.values)
    dense = 8 * shape.mlp if shape.mixed_layers < shape.layers else 0
    return 16 * shape.hidden + 10 * mixing + max(dense, _mixture_bytes(shape))


def _mixture_bytes(shape: Shape) -> int:
    """Returns the bytes of a layer's experts for one token: inputs and outputs of each chosen expert, probabilities."""
    if not shape.mixed_layers:
        return 0
    chosen = shape.used_experts * (4 * shape.hidden + 8 * shape.expert_mlp)
    return chosen + 4 * shape.experts + 8 * shape.shared_mlp


def engine_parts(engine: EngineMemory, gpu: Gpu) -> Parts:
    """Returns bytes of one engine GPU by part. Keys and values are negative if not even the weights fit."""
    own = engine.fraction * (gpu.memory * GIB - CONTEXT)
    weights = 2 * engine.shape.parameters / engine.gpus
    return {"weights": weights, "keys and values": own - weights}


def kv_tokens(engine: EngineMemory, gpu: Gpu) -> int:
    """Returns tokens whose keys and values fit in an engine. Heads are distributed over its GPUs, or replicated if
    there are fewer heads than GPUs."""
    share = max(engine.shape.kv_heads / engine.gpus, 1.0) / engine.shape.kv_heads
    return max(0, int(engine_parts(engine, gpu)["keys and values"] / (engine.shape.kv_bytes * share)))


def _trained(trainer: TrainerMemory) -> int:
    return trainer.shape.adapters(trainer.lora_rank) if trainer.lora_rank else trainer.shape.parameters


def _resting(trainer: TrainerMemory) -> float:
    """Returns bytes of fp32 weights of all ranks together."""
    whole = trainer.shape.parameters - (trainer.shape.linear_parameters if trainer.four_bit else 0)
    return 4.0 * (whole + (_trained(trainer) if trainer.lora_rank else 0))


def _whole_blocks(trainer: TrainerMemory) -> int:
    """Returns the parameters that are complete in bf16 at a time: two layers, or one matrix if they are stored in 4
    bits."""
    return trainer.shape.hidden * trainer.shape.mlp if trainer.four_bit else 2 * trainer.shape.block


def rank_parts(trainer: TrainerMemory, division: Division, layer: int, backward: int, logit: float) -> Parts:
    """Returns bytes by part of the rank with most memory in its peak phase, in the first or the last stage.

    Args:
        layer, backward: bytes that one layer keeps for one token, and additional bytes of its backward pass.
        logit: bytes of one logit.
    """
    of_ranks = []
    for first in (True, False):
        stays = _stage_parts(trainer, division, first)
        of_ranks += [stays | phase for phase in _phases(trainer, division, (layer, backward), logit, first)]
    return max(of_ranks, key=lambda parts: sum(parts.values()))


def optimizer_bytes(trainer: TrainerMemory, division: Division, first: bool = False) -> float:
    """Returns bytes of weights, moments and their average in fp32, of one rank of the first or the last stage, on GPU
    or CPU."""
    bytes_each = 16.0 if trainer.averages else 12.0
    if trainer.lora_rank:
        return bytes_each * _adapters(trainer, division, first)
    rest, experts = division.numbers(trainer.shape, first)
    if not division.distributed_optimizer:
        return bytes_each * (rest + experts)
    copies = trainer.gpus / (division.tp * division.pp), trainer.gpus / (division.ep * division.pp)
    return bytes_each * (rest / copies[0] + experts / copies[1])


def _adapters(trainer: TrainerMemory, division: Division, first: bool) -> float:
    """Returns the adapter parameters of one rank."""
    share = division.layers(trainer.shape, first) / trainer.shape.layers
    return trainer.shape.adapters(trainer.lora_rank) * share / division.tp


def _stage_parts(trainer: TrainerMemory, division: Division, first: bool) -> Parts:
    shape = trainer.shape
    numbers = sum(division.numbers(shape, first))
    trained = _adapters(trainer, division, first) if trainer.lora_rank else numbers
    parts: Parts = {
        "weights": 2 * numbers,
        "gradients": 4 * trained,
        "frozen models": sum(2 * sum(division.numbers(one, first)) for one in trainer.frozen),
    }
    if not trainer.cpu_offload:
        parts["optimizer"] = optimizer_bytes(trainer, division, first)
    return parts


def _phases(
    trainer: TrainerMemory, division: Division, layer: tuple[int, int], logit: float, first: bool
) -> list[Parts]:
    """Returns the transient memory in the backward pass of one layer, while gradients of the vocabulary are widened,
    and at the output head if the stage has it."""
    shape, tokens = trainer.shape, trainer.tokens / division.cp
    kept, again = _activations(trainer, division, layer[0], first)
    ends = 0.0 if trainer.lora_rank else shape.embedding / division.tp
    head, alone = not first or division.pp == 1, division.pp == 1
    halves = 2 * max(shape.mlp, shape.used_experts * shape.expert_mlp + shape.shared_mlp)
    inside = tokens * (layer[1] + halves) / division.tp + 4 * shape.hidden * tokens
    outside = kept + (8 * shape.hidden * tokens if head else 0)
    phases: list[Parts] = [
        {
            "activations": kept + again + inside,
            "gradients in transfer": 2 * ends if shape.tied and alone else 0,
        },
        {"activations": outside, "gradients in transfer": WIDENED * ends},
    ]
    if head:
        rows = min(trainer.rows or tokens, tokens)
        summed = 2 * ends if rows < tokens else 0
        logits = logit * rows * shape.vocabulary / division.tp
        phases.append({"activations": outside, "gradients in transfer": summed, "logits": logits})
    return phases


def _activations(trainer: TrainerMemory, division: Division, layer: int, first: bool) -> tuple[float, float]:
    """Returns the bytes of activations that all micro-batches of a stage keep, and that one layer recomputes."""
    shape, tokens = trainer.shape, trainer.tokens / division.cp
    between = 16 * shape.hidden
    split = (between if division.sequence_parallel else 0) + layer - between
    one = (split + NORMS * (shape.queries + shape.keys)) / division.tp + layer - split
    whole = 2 * shape.hidden * tokens / (division.tp if division.sequence_parallel else 1)
    layers = (division.pp if first else 1) * division.layers(shape, first)
    again = tokens * one if trainer.checkpointing else 0.0
    return layers * (whole if trainer.checkpointing else tokens * one), again
