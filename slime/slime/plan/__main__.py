"""`python -m slime.plan --model Qwen3-4B --gpus 8xH100`: does a split fit, and what does each part use?

Exit status 0 if it fits, 1 if not, 2 for arguments that make no sense.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from slime.errors import ConfigError
from slime.plan.division import Division
from slime.plan.hardware import parse_gpus
from slime.plan.host import HostUse
from slime.plan.memory import EngineMemory, TrainerMemory
from slime.plan.placement_plan import Batch, MemoryPlan, Server, problems
from slime.plan.report import as_data, as_text
from slime.plan.shape import read_shape


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slime.plan", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", required=True, help="a known name such as Qwen3-4B, or a folder with a config.json")
    add("--judge-model", help="of the judge's engines (default: --model)")
    add("--gpus", default="8xH100", help="such as 8xH100 or 1x24GB (default: 8xH100)")
    add("--actor", type=int, help="GPUs that train (default: what the engines leave)")
    add("--rollout", type=int, default=0, help="GPUs of the policy's engines; 0: they share the trainer's")
    add("--prm", type=int, default=0, help="GPUs of the judge's engines; 0: none")
    add("--tp", type=int, default=1, help="GPUs of one engine")
    add("--train-backend", choices=("fsdp", "megatron"), default="fsdp")
    for name, cut in (("tensor", "matrices"), ("pipeline", "layers"), ("expert", "experts")):
        add(
            f"--{name}-model-parallel-size",
            type=int,
            default=1,
            help=f"training GPUs that cut {cut} (megatron)",
        )
    add("--context-parallel-size", type=int, default=1, help="training GPUs that cut tokens (megatron)")
    add("--sequence-parallel", action="store_true", help="cut tokens between matrices too (megatron)")
    add("--use-distributed-optimizer", action="store_true", help="copies share its states out (megatron)")
    add("--mem-fraction-static", type=float, default=0.8, help="an engine's share of its GPUs' memory")
    add("--context-length", type=int, default=32768, help="tokens of the longest request")
    add("--max-tokens-per-gpu", type=int, default=32768, help="tokens of a micro-batch")
    add("--log-probs-chunk-size", type=int, default=1024, help="rows of logits at a time; 0: all")
    add("--gradient-checkpointing", action=argparse.BooleanOptionalAction, default=True)
    add("--fsdp-cpu-offload", action="store_true")
    add("--lora-rank", type=int, default=0, help="rank of adapters; 0: all weights are trained")
    add("--load-in-4bit", action="store_true", help="QLoRA")
    add("--frozen-models", type=int, default=0, help="whole models beside the policy: reference, teacher")
    add("--rollout-batch-size", type=int, default=16, help="samples of a step")
    add("--length", type=int, default=8192, help="mean tokens of a sample")
    add(
        "--gate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the trainer keeps states to go back to in host memory, as in every launch script",
    )
    add("--price", type=float, help="dollars for an hour of one GPU")
    add("--json", action="store_true")
    return parser


def plan_of(args: argparse.Namespace) -> MemoryPlan:
    """The plan that the command line asks for. Raises ConfigError."""
    count, gpu = parse_gpus(args.gpus)
    shape = read_shape(args.model)
    colocated = args.rollout == 0
    actor = args.actor if args.actor is not None else count - args.rollout - args.prm
    serving = args.rollout or actor
    for name, number in (("--actor", actor), ("--tp", args.tp)):
        if number < 1:
            raise ConfigError(f"{name} is {number} of {args.gpus}; at least 1 is needed")
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


def division_of(args: argparse.Namespace) -> Division | None:
    """How --train-backend megatron divides the model. Raises ConfigError where the flags contradict each other."""
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
            raise ConfigError("--load-in-4bit is there with --train-backend fsdp only")
        return division
    if division != Division():
        raise ConfigError("these sizes are of --train-backend megatron; add it, or drop them")
    return None


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
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
