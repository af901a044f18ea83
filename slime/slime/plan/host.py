"""Host memory of the machines, and disk, in bytes of a whole run.

Every process on a GPU needs `PROCESS` bytes (libraries, CUDA's host side, Ray). The trainer's state is weights and
two moments in fp32, 12 bytes a parameter: the gate keeps two copies while a version is being examined (the state to
restore, and the candidate's), a background checkpoint one. --offload-train moves it there, with frozen models; that
memory is not freed again. A checkpoint on disk contains the state and the model in bf16; one more than the kept
number exists while it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from slime.plan.hardware import GIB
from slime.plan.memory import Parts, TrainerMemory, trainer_parts

PROCESS = int(3 * GIB)
"""A typical value."""
STATE = 12
"""Bytes a trained parameter."""
SERVED = 2
"""Bytes a parameter of a version, in bf16."""
ON_THEIR_WAY = int(2 * GIB)
"""Buffers between the GPU and the version's file."""
RESIDENT = ("weights", "optimizer", "frozen models", "weights in 4 bits")
"""Parts of a training GPU's memory that exist between steps."""


@dataclass(frozen=True)
class HostUse:
    """The use of host memory and disk by a run.

    Attributes:
        gate, async_save, offload_train: the flags.
        shared: versions are sent through shared memory, in two slots, sometimes three.
        engines: number of engines that keep their weights in host memory while the trainer uses the GPU.
        gate_engine: an engine on the CPU answers the gate, in fp32, with its own weights and a version.
        weights, checkpoints: number of versions and checkpoints kept on disk.
    """

    gate: bool = False
    async_save: bool = False
    offload_train: bool = False
    shared: bool = False
    engines: int = 0
    gate_engine: bool = False
    weights: int = 3
    checkpoints: int = 3


def host_parts(trainer: TrainerMemory, processes: int, offloaded: float, use: HostUse) -> Parts:
    """Returns bytes of host memory over all machines, by purpose.

    Args:
        processes: number of processes that compute on GPUs.
        offloaded: bytes of all ranks that --fsdp-cpu-offload keeps in host memory.
    """
    state, model = STATE * trained(trainer), SERVED * trainer.shape.parameters
    parts: Parts = {
        "processes": float(PROCESS * processes),
        "weights in transfer": float(ON_THEIR_WAY),
        "offloaded by the trainer": offloaded + (offloaded_bytes(trainer) if use.offload_train else 0.0),
        "earlier trainer states": 2.0 * state if use.gate else 0.0,
        "checkpoint being saved": float(state) if use.async_save else 0.0,
        "shared memory": 3.0 * model if use.shared else 0.0,
        "engines' weights": float(model * use.engines),
        "the gate's engine": float(PROCESS + 4 * model) if use.gate_engine else 0.0,
    }
    return {name: size for name, size in parts.items() if size}


def offloaded_bytes(trainer: TrainerMemory) -> float:
    """Returns bytes that all ranks move off the GPUs while engines use them; 0 if they are in CPU memory anyway."""
    if trainer.cpu_offload:
        return 0.0
    parts = trainer_parts(trainer)
    return trainer.gpus * sum(parts.get(name, 0.0) for name in RESIDENT)


def disk_parts(trainer: TrainerMemory, use: HostUse) -> Parts:
    """Returns bytes of a run's folder on disk."""
    model = SERVED * trainer.shape.parameters
    return {
        "checkpoints": (use.checkpoints + 1.0) * checkpoint_bytes(trainer),
        "versions": (use.weights + 1.0) * model,
    }


def checkpoint_bytes(trainer: TrainerMemory) -> int:
    """Returns bytes of one checkpoint: the trained state, and the served model."""
    return STATE * trained(trainer) + SERVED * trainer.shape.parameters


def trained(trainer: TrainerMemory) -> int:
    """Returns the number of trained parameters."""
    return trainer.shape.adapters(trainer.lora_rank) if trainer.lora_rank else trainer.shape.parameters
