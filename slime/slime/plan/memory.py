"""Bytes on a GPU, from shapes.

Trainer (FSDP2 over W ranks, fp32 weights, bf16 computing, AdamW): a rank keeps 1/W of weights, gradients and two
moments in fp32 (16 bytes a number), and of frozen models 4 bytes a number. What comes on top differs between the phases
of a micro-batch, of which the fullest counts (`phases`): the output head, one layer's backward pass, and the gradients of
embedding and head on their way to the other ranks (slime/benchmarks/plan_vs_tracker.py: against torch's tracker).

Activations: what autograd keeps of one Hugging Face decoder layer for each token, 16 H + 10 (Q + K) + 8 I bytes in bf16
(hidden size, queries, keys, feed-forward; counted on Qwen3 with saved-tensor hooks, to which a test holds it), in every
layer; with --gradient-checkpointing 2 H in every layer and the rest in one. A mixture of experts keeps, instead of 8 I,
4 H + 8 I of each expert that the token goes to and 4 bytes of each expert. Attention must not keep its T x T scores,
which PyTorch's fused kernels and FlashAttention do not.

Engine: `mem_fraction` of what the CUDA context leaves of its GPU is its own; what bf16 weights leave of it holds keys and
values. Beside it lie its context, its CUDA graphs and what it computes with (`ENGINE_BESIDE`).
"""

from __future__ import annotations

from dataclasses import replace

from slime.plan.hardware import GIB, Gpu
from slime.plan.megatron_memory import optimizer_bytes, rank_parts
from slime.plan.parts import EngineMemory, Parts, TrainerMemory
from slime.plan.shape import Shape

RUNTIME = int(1.5 * GIB)
"""CUDA context, NCCL, kernels' workspace; a usual value."""
CONTEXT = int(0.5 * GIB)
"""CUDA context of a process; a usual value."""
ENGINE_BESIDE = int(1.5 * GIB)
"""What an engine takes beside weights, keys and values: context, CUDA graphs, activations of a prefill of 2,048 tokens;
a usual value."""
SLACK = 0.08
"""Share of what a trainer's tensors take that the allocator loses to fragments; a usual value."""
FOUR_BIT = 0.5 + (1 + 4 / 256) / 64
"""Bytes a number in NF4 with double quantisation: half a byte, one byte a block of 64, fp32 for 256 of these."""


def trainer_parts(trainer: TrainerMemory) -> Parts:
    """Bytes of one training GPU by part; what is offloaded to the CPU is not in it (see `host_bytes`)."""
    shape, trained = trainer.shape, _trained(trainer)
    if trainer.division is not None:
        parts = rank_parts(
            trainer, trainer.division, layer_bytes(shape), backward_bytes(shape), logit_bytes(trainer)
        )
        parts["runtime and fragments"] = RUNTIME + SLACK * sum(parts.values())
        return {name: size for name, size in parts.items() if size}
    parts = {}
    if not trainer.cpu_offload:
        parts["weights"] = _resting(trainer) / trainer.gpus
        parts["gradients"] = 4 * trained / trainer.gpus
        parts["optimizer"] = 8 * trained / trainer.gpus
        parts["frozen models"] = sum(4 * one.parameters for one in trainer.frozen) / trainer.gpus
    if trainer.four_bit:
        parts["weights in 4 bits"] = FOUR_BIT * shape.linear_parameters
    fullest: Parts = max(phases(trainer), key=lambda phase: sum(phase.values()))
    parts |= fullest
    parts["runtime and fragments"] = RUNTIME + SLACK * sum(parts.values())
    return {name: size for name, size in parts.items() if size}


def host_bytes(trainer: TrainerMemory) -> float:
    """Bytes of CPU memory of one rank that --fsdp-cpu-offload needs."""
    if not trainer.cpu_offload:
        return 0.0
    if trainer.division is not None:
        return optimizer_bytes(trainer, trainer.division)
    on_gpu = trainer_parts(replace(trainer, cpu_offload=False))
    return sum(on_gpu.get(name, 0.0) for name in ("weights", "gradients", "optimizer", "frozen models"))


def phases(trainer: TrainerMemory) -> list[Parts]:
    """What a micro-batch adds to what stays, at the output head, in the backward pass of one layer, and at its end."""
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
            "gradients on their way": 2.0 * trained_ends if chunked else 0.0,
            "activations": kept + 8.0 * shape.hidden * tokens,
            "logits": logit_bytes(trainer) * rows * shape.vocabulary,
        },
        {
            "layers in bf16": 2.0 * (ends + blocks),
            "gradients on their way": 2.0 * trained_ends + (6.0 + 4.0 / trainer.gpus) * layer,
            "activations": activations(trainer) + backward_bytes(shape) * tokens,
        },
        {
            "layers in bf16": 2.0 * ends,
            "gradients on their way": (6.0 + 4.0 / trainer.gpus) * trained_ends,
            "activations": 6.0 * shape.hidden * tokens,
        },
    ]


def logit_bytes(trainer: TrainerMemory) -> float:
    """Bytes a logit, measured: bf16, fp32, tempered, and the gradients; entropy has its own, more of them where ranks cut
    the vocabulary."""
    if not trainer.entropy:
        return 16.6
    return 20.6 if trainer.division is None else 24.6


def backward_bytes(shape: Shape) -> int:
    """Bytes of gradients that the backward pass of one layer holds at once for one token, in bf16; of a mixture, of every
    chosen expert's answer and of what it counts."""
    wide = max(shape.mlp, shape.used_experts * shape.expert_mlp + shape.shared_mlp)
    answers = 2 * shape.used_experts * shape.hidden + shape.hidden if shape.mixed_layers else 0
    return 2 * (max(wide, answers) + shape.hidden)


def activations(trainer: TrainerMemory) -> float:
    """Bytes that autograd keeps for `tokens` tokens."""
    shape = trainer.shape
    layer = layer_bytes(shape)
    if trainer.checkpointing:
        return float(trainer.tokens * (2 * shape.hidden * shape.layers + layer))
    return float(trainer.tokens * layer * shape.layers)


def layer_bytes(shape: Shape) -> int:
    """Bytes that autograd keeps of one layer for one token: bf16, the widest kind of layer."""
    mixing = shape.queries * (2 if shape.gated else 1) + shape.keys
    if (linear := shape.linear_attention) is not None:
        mixing = max(mixing, 2 * linear.keys + 2 * linear.values)
    dense = 8 * shape.mlp if shape.mixed_layers < shape.layers else 0
    return 16 * shape.hidden + 10 * mixing + max(dense, _mixture_bytes(shape))


def _mixture_bytes(shape: Shape) -> int:
    """Of the feed-forward of a layer with experts: rows for each chosen expert, before and after it; probabilities."""
    if not shape.mixed_layers:
        return 0
    chosen = shape.used_experts * (4 * shape.hidden + 8 * shape.expert_mlp)
    return chosen + 4 * shape.experts + 8 * shape.shared_mlp


def engine_parts(engine: EngineMemory, gpu: Gpu) -> Parts:
    """Bytes of one engine GPU by part. Keys and values are negative where not even the weights fit."""
    own = engine.fraction * (gpu.memory * GIB - CONTEXT)
    weights = 2 * engine.shape.parameters / engine.gpus
    return {"weights": weights, "keys and values": own - weights}


def kv_tokens(engine: EngineMemory, gpu: Gpu) -> int:
    """Tokens whose keys and values fit in an engine. Heads are dealt to its GPUs; fewer heads than GPUs are copied."""
    share = max(engine.shape.kv_heads / engine.gpus, 1.0) / engine.shape.kv_heads
    return max(0, int(engine_parts(engine, gpu)["keys and values"] / (engine.shape.kv_bytes * share)))


def _trained(trainer: TrainerMemory) -> int:
    return trainer.shape.adapters(trainer.lora_rank) if trainer.lora_rank else trainer.shape.parameters


def _resting(trainer: TrainerMemory) -> float:
    """Bytes of fp32 weights of all ranks together."""
    whole = trainer.shape.parameters - (trainer.shape.linear_parameters if trainer.four_bit else 0)
    return 4.0 * (whole + (_trained(trainer) if trainer.lora_rank else 0))


def _whole_blocks(trainer: TrainerMemory) -> int:
    """Numbers that are whole in bf16: two layers, or one matrix at a time where they are kept in 4 bits."""
    return trainer.shape.hidden * trainer.shape.mlp if trainer.four_bit else 2 * trainer.shape.block
