"""Writes checkpoints of a training process, and resumes from them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from slime.errors import CheckpointError
from slime.training.core.checkpoint import (
    CheckpointWriter,
    load_checkpoint,
    random_state,
    restore_random_state,
)
from slime.training.core.critic import PREFIX as CRITIC
from slime.training.core.critic import Critic
from slime.training.core.part import Part
from slime.training.export import Exporting
from slime.utils.logging import event
from slime.weights import checkpoints
from slime.weights.checkpoints import CheckpointState, lora_settings

logger = logging.getLogger(__name__)


class Persistent(Exporting):
    """Saves and loads the checkpoints of one rank of a training run. All ranks must make the same calls.

    Attributes:
        backend: name in --train-backend and in checkpoints.
    """

    backend: str
    critic: Critic | None = None
    writer: CheckpointWriter
    global_step: int = 0

    @property
    @abstractmethod
    def parts(self) -> list[Part]:
        """Returns all trained parts, in the form of checkpoints."""

    def write_extras(self) -> Callable[[Path], None]:
        """Returns a function that writes the adapter, if any, to a checkpoint on rank 0. Every rank must call
        this."""
        if not self.args.use_lora:
            return lambda folder: None
        write = self.adapter_writer()

        def write_extras(folder: Path) -> None:
            write(folder / "adapter")

        return write_extras

    def load(self) -> CheckpointState:
        """Resumes from the latest checkpoint of `save`, else of `load`, else from the initial weights.

        Raises:
            CheckpointError: a checkpoint is missing or does not fit this run.
        """
        own = checkpoints.find(self.args.save)
        folder = own or checkpoints.find(self.args.load)
        state = CheckpointState()
        if folder is not None:
            self._check_backend(folder)
            reset = own is None and self.args.reset_optimizer_states
            state = load_checkpoint(folder, self.parts, lora_settings(self.args), reset)
        self.global_step, self.version = state.global_step, state.version
        if self.critic is not None:
            self.critic.steps = state.steps_of.get(CRITIC, 0)
        event(logger, "trainer loaded", rollout_id=state.rollout_id, version=state.version, path=state.path)
        return state

    def save_to(self, save: str) -> None:
        """Sets the folder of later checkpoints."""
        self.finish_save()
        self.writer.save = save

    def start_from(self, folder: str) -> None:
        """Loads only the weights of a checkpoint, of this or another run; optimizer and counters are
        unchanged.

        Args:
            folder: the checkpoint, or a folder of checkpoints, of which the latest is used.

        Raises:
            CheckpointError: there is none, or it does not fit this run.
        """
        checkpoint = checkpoints.find(folder)
        if checkpoint is None:
            raise CheckpointError(f"{folder} contains no checkpoint")
        self._check_backend(checkpoint)
        random = random_state()
        load_checkpoint(checkpoint, self.parts, lora_settings(self.args), reset_optimizer=True)
        restore_random_state(random)

    def return_to(self, checkpoint: str) -> None:
        """Restores an earlier checkpoint of this run in place: weights, optimizer and random states.

        Raises:
            CheckpointError: it is missing or does not fit this run.
        """
        folder = Path(checkpoint)
        self._check_backend(folder)
        for part in self.parts:
            if part.optimizer is not None:
                part.optimizer.state.clear()  # the checkpoint of the initial weights has no optimizer state
        state = load_checkpoint(folder, self.parts, lora_settings(self.args))
        self.global_step, self.version = state.global_step, state.version
        if self.critic is not None:
            self.critic.steps = state.steps_of.get(CRITIC, 0)
        event(logger, "returned to a checkpoint", version=state.version, path=checkpoint)

    def save(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        model_folder: str | None = None,
        wait: bool = True,
        hold: bool = False,
    ) -> str:
        """Writes a checkpoint of the current weights and returns its folder.

        Args:
            version: weight version that these weights have or will get.
            model_folder: the same weights as written by `export_weights`; they become part of the checkpoint.
            wait: return when the checkpoint is valid; otherwise, with --async-save, when the tensors are
                copied.
            hold: return when it is complete; `activate_checkpoint` makes it valid later.
        """
        state = CheckpointState(rollout_id, version, parent, None, self.global_step)
        extra = {
            "hf_checkpoint": self.args.hf_checkpoint,
            "lora": lora_settings(self.args),
            "backend": self.backend,
        }
        write_extras = self.write_extras()

        def write_more(folder: Path) -> None:
            write_extras(folder)
            if model_folder is not None:
                checkpoints.add_model(folder, Path(model_folder))

        path = self.writer.write(state, self.parts, extra, write_more, wait, hold)
        event(logger, "checkpoint saved", rollout_id=rollout_id, version=version, path=path)
        return str(path)

    def finish_save(self) -> None:
        """Waits until no checkpoint is being written; raises TrainError if a write failed."""
        self.writer.finish()

    def _check_backend(self, folder: Path) -> None:
        written_by = checkpoints.read_meta(folder).get("backend", "fsdp")
        if written_by != self.backend:
            raise CheckpointError(
                f"checkpoint {folder} was written by --train-backend {written_by}, but this run "
                f"uses {self.backend}; use the same backend, or load only the weights: "
                f"--hf-checkpoint {folder} with another --save"
            )
