"""Trains several adapters of a frozen base in turn, each with its own optimizer, random state and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.errors import CheckpointError
from slime.gate.memory import KeptState

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


class AdapterTurns:
    """One rank's part of switching adapters. Every rank makes the same calls.

    Args:
        trainer: trainer with a newly loaded untrained adapter. Every new adapter starts from this state, with
            --adapter-parent from the parent's weights.

    Raises:
        CheckpointError: the parent is missing, or does not fit this run.
    """

    def __init__(self, trainer: Trainer) -> None:
        if (parent := trainer.args.adapter_parent) is not None:
            try:
                trainer.start_from(parent)
            except CheckpointError as error:
                raise CheckpointError(f"--adapter-parent: {error}") from error
        self.trainer, self.untrained = trainer, KeptState(trainer)

    def load_adapter(self, save: str, checkpoint: str | None) -> None:
        """Loads another adapter into the trainer: from a checkpoint, or a new one (None).

        State of the previous adapter that is not in a checkpoint is lost.

        Args:
            save: folder of its checkpoints.

        Raises:
            CheckpointError: the checkpoint is missing, or does not fit this run.
        """
        self.trainer.save_to(save)
        if checkpoint is None:
            self.untrained.restore(self.trainer)
        else:
            self.trainer.return_to(checkpoint)
