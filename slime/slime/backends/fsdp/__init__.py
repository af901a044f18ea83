"""Training with FSDP2 on Hugging Face models, on CPUs (gloo) or GPUs (NCCL)."""

from slime.backends.fsdp.checkpoint import CheckpointState
from slime.backends.fsdp.trainer import FSDPTrainer

__all__ = ["CheckpointState", "FSDPTrainer"]
