"""Adapters that take turns in one trainer, on a frozen base: each with its optimizer, random state and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.gate.memory import KeptState

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


class AdapterTurns:
    """One rank's part. Every rank makes the same calls.

    Args:
        trainer: has just loaded an adapter that changes nothing yet; every new one begins so.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.fresh = trainer, KeptState(trainer)

    def take_up(self, save: str, checkpoint: str | None) -> None:
        """Puts another adapter into the trainer: of a checkpoint, or a new one (None). What no checkpoint holds of the
        one before is lost.

        Args:
            save: folder of its checkpoints.

        Raises:
            CheckpointError: the checkpoint is not there, or does not fit this run.
        """
        self.trainer.save_to(save)
        if checkpoint is None:
            self.fresh.restore(self.trainer)
        else:
            self.trainer.return_to(checkpoint)
