"""Training with megatron-core on Hugging Face models, on CPUs (gloo) or GPUs (NCCL)."""

from slime.training.megatron.trainer import MegatronTrainer

__all__ = ["MegatronTrainer"]
