"""Training with FSDP2 on Hugging Face models, on CPUs (gloo) or GPUs (NCCL)."""

from slime.training.fsdp.trainer import FSDPTrainer
from slime.weights.checkpoints import CheckpointState

__all__ = ["CheckpointState", "FSDPTrainer"]
