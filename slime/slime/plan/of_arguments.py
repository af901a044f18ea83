"""The plan of a training run from the driver's own arguments, and the share of an engine that shares its GPU with a
trainer.

SGLang takes its share of the memory that is free when it starts, and counts later allocations on the GPU against its
keys and values: started after a trainer, or restarted, it would get a third or nothing. `share_words` gives it the
planned number of tokens, and a share so large that this number is the limit. vLLM gets the bytes. So the result does
not depend on the order of their start.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from slime.errors import ConfigError
from slime.flags import Arguments
from slime.flags.engine import EngineArguments
from slime.plan.division import Division
from slime.plan.gate_engine import CPU, gate_engine_of
from slime.plan.hardware import GIB, Gpu, gpus_here
from slime.plan.host import HostUse
from slime.plan.memory import CONTEXT, EngineMemory, TrainerMemory, engine_parts, kv_tokens
from slime.plan.model_servers import mem_fraction, model_servers
from slime.plan.placement_plan import Batch, MemoryPlan, Server
from slime.plan.shape import Shape, read_shape

if TYPE_CHECKING:
    from slime.flags.sides import ServingSide

logger = logging.getLogger(__name__)

USUAL_LENGTH = 8192  # tokens of a sample, if the lengths of conversations are unknown
LARGE = "0.9"
"""Share of the free memory at which SGLang's number of tokens is the limit; the rest is for activations."""
CAPS = {"sglang": "--sglang-max-total-tokens", "vllm": "--vllm-kv-cache-memory-bytes"}


def plan_of(args: Arguments, gpus: int, gpu: Gpu) -> MemoryPlan | None:
    """Returns the plan of a run that trains on GPUs; None for one that trains on the CPU. Raises ConfigError."""
    if args.actor_num_gpus_per_node == 0:
        return None
    shape = read_shape(args.hf_checkpoint)
    context = args.context_length or shape.context
    frozen = frozen_models(args, shape)
    division = division_of(args)
    if division is not None:
        division.check(shape, args.train_world_size)
    trainer = TrainerMemory(
        shape=shape,
        gpus=args.train_world_size,
        tokens=args.max_tokens_per_gpu
        if args.use_dynamic_batch_size
        else context * (args.micro_batch_size or 1),
        rows=max(args.log_probs_chunk_size, 0),
        checkpointing=args.gradient_checkpointing or args.recompute_granularity == "full",
        cpu_offload=args.fsdp_cpu_offload,
        lora_rank=args.lora_rank or 0 if args.use_lora else 0,
        four_bit=args.load_in_4bit,
        frozen=frozen,
        division=division,
        entropy=bool(args.entropy_coef),
        averages=args.average_steps > 0,
    )
    samples = args.rollout_batch_size * args.n_samples_per_prompt
    forwards = len(frozen) + (1 if args.train_epochs > 1 or args.loss_spec_path else 0)
    batch = Batch(samples, min(USUAL_LENGTH, context), forwards, args.train_epochs)
    engines = servers(args, shape, context)
    return MemoryPlan(
        gpu,
        gpus,
        trainer,
        tuple(engines),
        batch,
        args.colocate,
        host_use(args, engines),
        float(carrying(args)),
    )


def carrying(args: EngineArguments) -> int:
    """Returns the bytes on each GPU of an SGLang that receives weights through memory: our process with the current
    and the next bucket."""
    if (
        args.update_weight_transport != "tensor"
        or args.rollout_backend != "sglang"
        or not args.rollout_num_gpus
    ):
        return 0
    return CONTEXT + 2 * args.update_weight_buffer_size


def host_use(args: Arguments, engines: Sequence[Server]) -> HostUse:
    """Returns the run's use of host memory and disk."""
    return HostUse(
        gate=args.gate,
        async_save=args.async_save,
        offload_train=bool(args.offload_train),
        shared=args.update_weight_transport == "tensor",
        engines=sum(one.count for one in engines if one.role == "policy") if args.offload_rollout else 0,
        gate_engine=args.gate and gate_engine_of(args) == CPU,
        weights=args.keep_weights,
        checkpoints=max(args.keep_checkpoints, args.keep_versions),
    )


def division_of(args: Arguments) -> Division | None:
    """Returns how --train-backend megatron divides the model; None for fsdp."""
    if args.train_backend != "megatron":
        return None
    return Division(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.context_parallel_size,
        args.expert_model_parallel_size,
        args.sequence_parallel,
        args.use_distributed_optimizer,
        args.decoder_last_pipeline_num_layers,
    )


def frozen_models(args: Arguments, shape: Shape) -> tuple[Shape, ...]:
    """Returns the full models in addition to the policy: reference and teacher, once if they are the same. With
    adapters, the policy's base model is used."""
    folders = []
    if (args.use_kl_loss and args.kl_loss_coef) or args.kl_coef:
        folders.append(args.ref_load or args.hf_checkpoint)
    if args.teacher_source == "trainer" and args.teacher_model != "self":
        folders.append(args.hf_checkpoint if args.teacher_model == "base" else args.teacher_model)
    own = Path(args.hf_checkpoint).resolve()
    whole = dict.fromkeys(Path(folder).resolve() for folder in folders)
    return tuple(
        shape if folder == own else read_shape(str(folder))
        for folder in whole
        if not (args.use_lora and folder == own)
    )


def servers(args: Arguments, shape: Shape, context: int) -> list[Server]:
    """Returns the engines on GPUs: the policy's and, if they have their own GPUs, those of judge and teacher."""
    if args.debug_train_only:
        return []
    own = {"prm": args.prm_context_length}
    servers_of_run = []
    for one in model_servers(args):
        if one.gpus and one.count:
            shape_here = shape if one.model == args.hf_checkpoint else read_shape(one.model)
            engine = EngineMemory(
                shape_here, one.gpus, mem_fraction(args, one.part), own.get(one.part) or context
            )
            servers_of_run.append(Server(one.title, engine, one.count))
    return servers_of_run


@lru_cache(maxsize=1)
def smallest_gpu() -> Gpu | None:
    """Returns the smallest GPU of this machine, where engines run; None without a GPU."""
    return min(gpus_here(), key=lambda gpu: gpu.memory, default=None)


def share_words(args: ServingSide, gpu: Gpu | None) -> list[str]:
    """Returns the engine's own flags that limit it to its share of a GPU with a trainer; [] if it has the GPU to
    itself, if the GPU is unknown, or if the user's flags set a limit.

    Raises:
        ConfigError: the share is too small for the weights.
    """
    words = args.engine_words.get("rollout", [])
    cap = CAPS.get(args.rollout_backend)
    if not args.colocate or not args.rollout_num_gpus or gpu is None or cap is None:
        return []
    if any(word.split("=", 1)[0].replace("_", "-") == cap for word in words):
        return []
    try:
        shape = read_shape(args.hf_checkpoint)
    except ConfigError as error:
        logger.warning(
            "%s, so the memory of its engine is not planned: the engine takes the memory that is free at its start",
            error,
        )
        return []
    share, context = mem_fraction(args), args.context_length or shape.context
    engine = EngineMemory(shape, args.rollout_num_gpus_per_engine, share, context)
    parts = engine_parts(engine, gpu)
    if parts["keys and values"] <= 0:
        raise ConfigError(
            f"the engine's share {share:g} of a {gpu.name} is too small for the {parts['weights'] / GIB:.1f} GiB of "
            "its weights: set a larger share (MEM_FRACTION_STATIC), or more GPUs per engine (TP)"
        )
    if args.rollout_backend == "vllm":
        return [cap, str(int(parts["keys and values"]))]
    return [cap, str(kv_tokens(engine, gpu)), "--sglang-mem-fraction-static", LARGE]
