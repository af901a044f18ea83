"""What a training step costs, in GPU time.

Work of a token: 6 FLOPs a number that it is multiplied with (2 forward, 4 backward), 2 more with recomputation, 2 for
each other forward pass over the batch (old log-probs, reference, teachers); attention adds 4 x length x queries forward.
Frozen weights (LoRA) need no gradient of their own: 4 instead of 6. Kaplan et al. 2020, appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass

from slime.plan.hardware import Gpu
from slime.plan.parts import TrainerMemory

MFU = 0.35
"""Share of a GPU's peak that training reaches; a usual value for packs of long sequences, not a measurement."""


@dataclass(frozen=True)
class Batch:
    """One rollout: samples, their mean length, forward passes beside training, and passes of training over it."""

    samples: int
    length: int
    forwards: int = 1
    epochs: int = 1


def step_flops(trainer: TrainerMemory, batch: Batch) -> float:
    """Floating-point operations of all GPUs together."""
    shape = trainer.shape
    forward = (
        2.0 * shape.computed + 2.0 * shape.full_layers * shape.queries * batch.length
    )  # half of it is masked
    backward = forward if trainer.lora_rank else 2 * forward
    training = forward + backward + (forward if trainer.checkpointing else 0.0)
    return batch.samples * batch.length * (batch.epochs * training + batch.forwards * forward)


def step_seconds(trainer: TrainerMemory, batch: Batch, gpu: Gpu, mfu: float = MFU) -> float:
    """Seconds that a step keeps the trainer's GPUs busy."""
    return step_flops(trainer, batch) / (trainer.gpus * gpu.peak * 1e12 * mfu)
