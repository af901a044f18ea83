"""A split of GPUs over the parts of a run, whether each part fits its share, and the GPU time of a training step.

FLOPs of a token: 6 for each parameter used (2 forward, 4 backward), 2 more with recomputation, 2 for each further
forward pass over the batch (old log-probs, reference, teachers); attention adds 4 x length x queries forward. Frozen
weights (LoRA) have no gradient: 4 instead of 6. Kaplan et al. 2020, appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slime.plan.hardware import GIB, Gpu
from slime.plan.host import HostUse, disk_parts, host_parts
from slime.plan.memory import (
    CONTEXT,
    ENGINE_BESIDE,
    EngineMemory,
    Parts,
    TrainerMemory,
    engine_parts,
    host_bytes,
    kv_tokens,
    trainer_parts,
)
from slime.plan.shape import heads_problem

TIGHT = 0.95
"""Share of a GPU that a plan may use, because estimates are no better."""


MFU = 0.35
"""Share of a GPU's peak that training reaches, including recomputation. Measured on one H200 in bf16: 0.44 for
Qwen3-4B's shape, 0.32 for the same with QLoRA, 0.26 for Qwen3-0.6B's."""


@dataclass(frozen=True)
class Batch:
    """One rollout: samples, their mean length, forward passes without training, and passes of training over it."""

    samples: int
    length: int
    forwards: int = 1
    epochs: int = 1


def step_flops(trainer: TrainerMemory, batch: Batch) -> float:
    """Returns the floating-point operations of all GPUs together."""
    shape = trainer.shape
    # half of it is masked
    forward = 2.0 * shape.computed + 2.0 * shape.full_layers * shape.queries * batch.length
    backward = forward if trainer.lora_rank else 2 * forward
    training = forward + backward + (forward if trainer.checkpointing else 0.0)
    return batch.samples * batch.length * (batch.epochs * training + batch.forwards * forward)


def step_seconds(trainer: TrainerMemory, batch: Batch, gpu: Gpu, mfu: float = MFU) -> float:
    """Returns the seconds for which a step uses the trainer's GPUs."""
    return step_flops(trainer, batch) / (trainer.gpus * gpu.peak * 1e12 * mfu)


@dataclass(frozen=True)
class Server:
    """Engines of one model: `count` of them, each on `engine.gpus` GPUs. `role`: policy or judge."""

    role: str
    engine: EngineMemory
    count: int

    @property
    def gpus(self) -> int:
        return self.count * self.engine.gpus


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of all parts of a run on `gpus` GPUs. `colocated`: the policy's engines share the trainer's GPUs,
    and both stay. `host`: use of host memory and disk. `carrying`: bytes on each of the policy's GPUs for the process
    that passes weights to its engine."""

    gpu: Gpu
    gpus: int
    trainer: TrainerMemory
    servers: tuple[Server, ...]
    batch: Batch
    colocated: bool = False
    host: HostUse = field(default_factory=HostUse)
    carrying: float = 0.0

    @property
    def used(self) -> int:
        shared = sum(one.gpus for one in self.servers if one.role == "policy") if self.colocated else 0
        return self.trainer.gpus + sum(one.gpus for one in self.servers) - shared

    def arithmetic(self) -> str:
        """Returns `trainer 4 + policy 2 + judge 2 = 8 of 8 GPUs`."""
        parts = [f"trainer {self.trainer.gpus}"]
        parts += [
            f"{one.role} {one.gpus}" + (" (shared)" if self.colocated and one.role == "policy" else "")
            for one in self.servers
        ]
        return f"{' + '.join(parts)} = {self.used} of {self.gpus} GPUs"


def on_hosts(plan: MemoryPlan) -> tuple[Parts, Parts]:
    """Returns the bytes of host memory over all machines, and of disk, by purpose."""
    processes = plan.trainer.gpus + sum(one.gpus for one in plan.servers)
    offloaded = host_bytes(plan.trainer) * plan.trainer.gpus
    return host_parts(plan.trainer, processes, offloaded, plan.host), disk_parts(plan.trainer, plan.host)


def host_problems(plan: MemoryPlan, memory: float, disk: float) -> list[str]:
    """Returns why the machines are too small for the run; `memory`: bytes of all of them, `disk`: free bytes for the
    run's folder."""
    in_memory, on_disk = on_hosts(plan)
    need, space = sum(in_memory.values()), sum(on_disk.values())
    messages = []
    if need > memory:
        gate = "; it needs less without --gate, or with --use-lora" if plan.host.gate else ""
        messages.append(
            f"the run needs {need / GIB:.0f} GiB of host memory, but the machines have {memory / GIB:.0f}: "
            f"{_largest(in_memory)}{gate}"
        )
    if space > disk:
        messages.append(
            f"the run needs {space / GIB:.0f} GiB of disk, but {disk / GIB:.0f} are free: {_largest(on_disk)}; lower "
            "--keep-checkpoints, --keep-versions or --keep-weights"
        )
    return messages


def _largest(parts: Parts) -> str:
    name = max(parts, key=lambda one: parts[one])
    return f"{parts[name] / GIB:.0f} of them for {name}"


def problems(plan: MemoryPlan) -> list[str]:
    """Returns why the split does not fit, with remedies; [] if it does."""
    lines = []
    if plan.used > plan.gpus:
        lines.append(f"{plan.arithmetic()}: make a part smaller")
    lines += _trainer_problem(plan)
    for server in plan.servers:
        lines += _server_problem(server, plan.gpu)
    return lines


def _trainer_problem(plan: MemoryPlan) -> list[str]:
    parts = trainer_parts(plan.trainer)
    need, available = sum(parts.values()), TIGHT * plan.gpu.memory * GIB
    shared = [one.engine for one in plan.servers if plan.colocated and one.role == "policy"]
    for engine in shared[:1]:
        available -= engine.fraction * (plan.gpu.memory * GIB - CONTEXT) + ENGINE_BESIDE + plan.carrying
    if need <= available:
        return []
    place = (
        f"{available / GIB:.1f} GiB that engines leave of"
        if shared
        else f"{available / GIB:.1f} GiB usable on"
    )
    remedies = [smaller_share(engine, plan.gpu, need + plan.carrying) for engine in shared[:1]]
    return [
        f"the trainer needs {need / GIB:.1f} GiB a GPU, more than the {place} a {plan.gpu.name}: use "
        + "; ".join([*filter(None, remedies), advice(plan.trainer, parts)])
    ]


def smaller_share(engine: EngineMemory, gpu: Gpu, need: float) -> str:
    """Returns an engine's share that leaves `need` bytes free, if the engine can still hold a request with it."""
    left = TIGHT * gpu.memory * GIB - ENGINE_BESIDE - need
    share = int(100 * left / (gpu.memory * GIB - CONTEXT)) / 100
    if share <= 0 or kv_tokens(replace(engine, fraction=share), gpu) < engine.context:
        return ""
    return f"a smaller share of the engine (MEM_FRACTION_STATIC={share:g})"


def advice(trainer: TrainerMemory, parts: Parts) -> str:
    """Returns the remedy if a trainer does not fit: the flags for its largest parts."""
    remedies = {
        "activations": None if trainer.checkpointing else "--gradient-checkpointing",
        "logits": None if 0 < trainer.rows <= 1024 else "--log-probs-chunk-size 512",
        "optimizer": None if trainer.lora_rank else "--fsdp-cpu-offload, or --use-lora",
        "weights": None if trainer.four_bit or not trainer.lora_rank else "--load-in-4bit",
        "frozen models": "--fsdp-cpu-offload, or --use-lora (the frozen base then costs nothing)",
    }
    if (division := trainer.division) is not None:
        fully_divided = division.ep * division.pp >= min(trainer.gpus, trainer.shape.experts * division.pp)
        remedies = {
            "activations": remedies["activations"] or "--context-parallel-size",
            "logits": remedies["logits"] or "--tensor-model-parallel-size",
            "optimizer": "--fsdp-cpu-offload"
            if division.distributed_optimizer
            else "--use-distributed-optimizer",
            "gradients": "--pipeline-model-parallel-size"
            if fully_divided
            else "--expert-model-parallel-size",
            "weights": "--tensor-model-parallel-size",
            "frozen models": "--use-lora (the frozen base then costs nothing)",
        }
    largest = sorted(remedies, key=lambda name: -parts.get(name, 0.0))
    remedies_of_parts = [remedy for name in largest if parts.get(name) and (remedy := remedies[name])]
    return "; ".join([*remedies_of_parts[:2], f"--max-tokens-per-gpu below {trainer.tokens}", "more GPUs"])


def _server_problem(server: Server, gpu: Gpu) -> list[str]:
    engine, parts = server.engine, engine_parts(server.engine, gpu)
    if problem := heads_problem(server.role, engine.gpus, engine.shape.heads, engine.shape.name):
        return [problem]
    if parts["keys and values"] <= 0:
        return [
            f"the {server.role} engine's weights take {parts['weights'] / GIB:.1f} GiB a GPU, but its share is "
            f"{engine.fraction * gpu.memory:.1f} GiB: set more GPUs per engine (TP), or a larger share "
            "(MEM_FRACTION_STATIC)"
        ]
    tokens = kv_tokens(engine, gpu)
    if tokens < engine.context:
        return [
            f"the KV cache of the {server.role} engine holds {tokens:,} tokens, fewer than one request of "
            f"{engine.context:,}: set a smaller CONTEXT_LENGTH, more GPUs per engine (TP), or a larger share "
            "(MEM_FRACTION_STATIC)"
        ]
    return []
