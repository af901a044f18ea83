"""Flags: trainer processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import flag, needs
from slime.flags.shared import on_gpus


@dataclass
class ClusterArguments:
    """Trainer processes."""

    train_backend: Literal["fsdp", "megatron", "rented"] = flag(
        "fsdp",
        "training backend: FSDP2 on the Hugging Face model, megatron-core, or a service (--rented-service)",
        main=True,
    )
    actor_num_nodes: int = flag(1, "number of training machines", least=1)
    actor_num_gpus_per_node: int = flag(
        0, "training GPUs per machine; 0 trains on the CPU", least=0, main=True
    )
    num_train_processes: int = flag(
        1,
        "training processes without a GPU",
        least=1,
        rules=[
            needs(
                actor_num_gpus_per_node=0,
                text="{flag} {value} is for training on the CPU; drop it, or set --actor-num-gpus-per-node 0",
            )
        ],
    )
    train_threads: int = flag(1, "CPU threads per training process", least=1)
    use_idle_processors: bool = flag(
        False,
        "let engines and training processes on the CPU use idle processors beyond "
        "--engine-threads and --train-threads",
    )
    train_nice: int = flag(5, "niceness increment of training processes on the CPU, 0 to 19", least=0)
    trainer_max_restarts: int = flag(10, "maximum restarts of dead training processes", least=0)
    fsdp_cpu_offload: bool = flag(
        False,
        "keep fp32 weights, gradients and optimizer states in CPU memory, and run the optimizer there",
        aliases=("--optimizer-cpu-offload", "--offload-optimizer-state"),
        rules=[on_gpus("moves weights and optimizer states from GPUs to CPU memory")],
    )
    gradient_checkpointing: bool = flag(
        False, "recompute activations in the backward pass: less memory, more time"
    )

    @property
    def train_world_size(self) -> int:
        """Number of training processes."""
        return self.actor_num_nodes * self.actor_num_gpus_per_node or self.num_train_processes
