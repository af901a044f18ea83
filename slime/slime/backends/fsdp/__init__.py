"""Training with FSDP2 on Hugging Face models, on CPUs (gloo) or GPUs (NCCL)."""

from slime.backends.fsdp.trainer import FSDPTrainer
from slime.checkpoints import CheckpointState

__all__ = ["CheckpointState", "FSDPTrainer"]
