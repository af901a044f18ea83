"""Flags: trainer processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.declare import flag


@dataclass
class ClusterArguments:
    """Trainer processes."""

    train_backend: Literal["fsdp", "megatron"] = flag(
        "fsdp", "training backend: FSDP2 on the Hugging Face model, or megatron-core"
    )
    actor_num_nodes: int = flag(1, "machines that train")
    actor_num_gpus_per_node: int = flag(0, "GPUs that train on each machine; 0 trains on the CPU")
    num_train_processes: int = flag(1, "training processes where no GPU trains")
    train_threads: int = flag(1, "CPU threads of one training process")
    train_nice: int = flag(5, "added to the niceness of training processes that use the CPU, 0 to 19")
    trainer_max_restarts: int = flag(10, "times that a dead training process is started again")
    fsdp_cpu_offload: bool = flag(
        False,
        "keep fp32 weights, gradients and optimizer states of GPU training in CPU memory, and step there",
        aliases=("--optimizer-cpu-offload", "--offload-optimizer-state"),
    )
    gradient_checkpointing: bool = flag(
        False, "recompute activations in the backward pass: less memory, more time"
    )

    @property
    def train_world_size(self) -> int:
        """Number of training processes."""
        return self.actor_num_nodes * self.actor_num_gpus_per_node or self.num_train_processes
