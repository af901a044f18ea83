"""`python -m slime.plan --model Qwen3-4B --gpus 8xH100`: prints whether a split fits, and the memory of each part.

Exit status 0 if it fits, 1 if not, 2 for invalid arguments.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ConfigError
from slime.plan.division import Division
from slime.plan.hardware import parse_gpus
from slime.plan.host import HostUse
from slime.plan.memory import EngineMemory, TrainerMemory
from slime.plan.placement_plan import Batch, MemoryPlan, Server, problems
from slime.plan.report import as_data, as_text
from slime.plan.shape import read_shape


@dataclass(frozen=True, kw_only=True)
class Split:
    """The model, the GPUs, and how they are split."""

    model: str = flag(REQUIRED, "a known name such as Qwen3-4B, or a folder with a config.json")
    judge_model: str | None = flag(None, "model of the judge's engines (default: --model)")
    gpus: str = flag("8xH100", "GPUs, such as 8xH100 or 1x24GB (default: 8xH100)")
    actor: int | None = flag(None, "GPUs for training (default: those that engines do not use)")
    rollout: int = flag(0, "GPUs of the policy's engines; 0: they share the trainer's")
    prm: int = flag(0, "GPUs of the judge's engines; 0: none")
    tp: int = flag(1, "GPUs per engine")
    train_backend: Literal["fsdp", "megatron"] = flag("fsdp", "training library")
    tensor_model_parallel_size: int = flag(1, "tensor-parallel ranks (megatron)")
    pipeline_model_parallel_size: int = flag(1, "pipeline-parallel ranks (megatron)")
    expert_model_parallel_size: int = flag(1, "expert-parallel ranks (megatron)")
    context_parallel_size: int = flag(1, "context-parallel ranks (megatron)")
    sequence_parallel: bool = flag(False, "sequence parallelism (megatron)")
    use_distributed_optimizer: bool = flag(
        False, "shard optimizer states over data-parallel ranks (megatron)"
    )
    mem_fraction_static: float = flag(0.8, "an engine's share of its GPUs' memory")
    context_length: int = flag(32768, "tokens of the longest request")
    max_tokens_per_gpu: int = flag(32768, "tokens of a micro-batch")
    log_probs_chunk_size: int = flag(1024, "rows of logits at a time; 0: all")
    gradient_checkpointing: bool = flag(True, "recompute activations in the backward pass")
    fsdp_cpu_offload: bool = flag(False, "keep parameters and optimizer states in host memory")
    lora_rank: int = flag(0, "rank of adapters; 0: train all weights")
    load_in_4bit: bool = flag(False, "load the frozen base in 4 bits (QLoRA)")
    frozen_models: int = flag(0, "number of further whole models, such as reference and teacher")
    rollout_batch_size: int = flag(16, "samples per step")
    length: int = flag(8192, "mean tokens of a sample")
    gate: bool = flag(True, "keep earlier trainer states in host memory, as all launch scripts do")
    price: float | None = flag(None, "US dollars per GPU hour")
    json: bool = flag(False, "print JSON")


def plan_of(args: Split) -> MemoryPlan:
    """Returns the plan for the command line. Raises ConfigError."""
    count, gpu = parse_gpus(args.gpus)
    shape = read_shape(args.model)
    colocated = args.rollout == 0
    actor = args.actor if args.actor is not None else count - args.rollout - args.prm
    serving = args.rollout or actor
    for name, number in (("--actor", actor), ("--tp", args.tp)):
        if number < 1:
            raise ConfigError(f"{name} is {number} with --gpus {args.gpus}; at least 1 is needed")
    for name, number in (("--rollout", serving), ("--prm", args.prm)):
        if number % args.tp:
            raise ConfigError(f"{name} {number} GPUs do not divide into engines of --tp {args.tp}")
    if args.load_in_4bit and not args.lora_rank:
        raise ConfigError("--load-in-4bit keeps a frozen base in 4 bits; it needs --lora-rank")
    trainer = TrainerMemory(
        shape=shape,
        gpus=actor,
        tokens=args.max_tokens_per_gpu,
        rows=args.log_probs_chunk_size,
        checkpointing=args.gradient_checkpointing,
        cpu_offload=args.fsdp_cpu_offload,
        lora_rank=args.lora_rank,
        four_bit=args.load_in_4bit,
        frozen=(shape,) * args.frozen_models,
        division=division_of(args),
    )
    if trainer.division is not None:
        trainer.division.check(shape, actor)
    engine = EngineMemory(shape, args.tp, args.mem_fraction_static, args.context_length)
    servers = [Server("policy", engine, serving // args.tp)]
    if args.prm:
        judge = read_shape(args.judge_model or args.model)
        own = EngineMemory(judge, args.tp, args.mem_fraction_static, args.context_length)
        servers.append(Server("judge", own, args.prm // args.tp))
    batch = Batch(args.rollout_batch_size, args.length, forwards=1 + args.frozen_models)
    return MemoryPlan(gpu, count, trainer, tuple(servers), batch, colocated, HostUse(gate=args.gate))


def division_of(args: Split) -> Division | None:
    """Returns how --train-backend megatron divides the model. Raises ConfigError if the flags contradict each
    other."""
    division = Division(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.context_parallel_size,
        args.expert_model_parallel_size,
        args.sequence_parallel,
        args.use_distributed_optimizer,
    )
    if args.train_backend == "megatron":
        if args.load_in_4bit:
            raise ConfigError("--load-in-4bit needs --train-backend fsdp")
        return division
    if division != Division():
        raise ConfigError(
            "the parallel sizes and --use-distributed-optimizer need --train-backend megatron; add it, or remove them"
        )
    return None


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(Split, argv, "python -m slime.plan", __doc__)
    try:
        plan = plan_of(args)
        shown = json.dumps(as_data(plan, args.price), indent=1) if args.json else as_text(plan, args.price)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(shown)
    return 1 if problems(plan) else 0


if __name__ == "__main__":
    sys.exit(main())
