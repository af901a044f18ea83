"""What outlives a training process: checkpoints to resume from and weights for the engines."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.errors import CheckpointError
from slime.training.core.checkpoint import CheckpointWriter, load_checkpoint
from slime.training.core.critic import PREFIX as CRITIC
from slime.training.core.critic import Critic
from slime.training.core.distributed import broadcast
from slime.training.core.part import Part
from slime.utils.files import commit_folder, fresh_folder, temporary_beside
from slime.utils.logging import event
from slime.weights import checkpoints
from slime.weights.checkpoints import CheckpointState, is_checkpoint
from slime.weights.checksum import checksum_of, weights_checksum
from slime.weights.folders import copy_model_files, stored_dtype, write_weights
from slime.weights.probe import Probe, write_probe
from slime.weights.slots import free_slot

if TYPE_CHECKING:
    from slime.arguments.groups.lora import LoraArguments

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Weights:
    """Names and tensors, one after the other, and about how many they are."""

    tensors: Iterable[tuple[str, Tensor]]
    count: int


class Persistent(ABC):
    """One rank of a training run, as its checkpoints and weight versions see it. All ranks make the same calls.

    Attributes:
        backend: its name in --train-backend and in checkpoints.
    """

    backend: str
    args: Any
    rank: int
    critic: Critic | None = None
    writer: CheckpointWriter
    global_step: int = 0
    version: int = 0

    @property
    @abstractmethod
    def parts(self) -> list[Part]:
        """All that changes, as checkpoints hold it."""

    @abstractmethod
    def whole_weights(self, dtype: torch.dtype | None) -> Weights:
        """All weights by Hugging Face's names as whole tensors, on rank 0, to be written in `dtype` (None: as they
        are). Every rank must take all of them."""

    @abstractmethod
    def probe(self) -> Probe | None:
        """What the present weights say of fixed ids, where an engine's update is proven by it. Every rank must call
        this."""

    @abstractmethod
    def gather_adapter(self, base: str) -> Callable[[Path], dict[str, Tensor]]:
        """What writes the adapter in PEFT's format on rank 0 and returns its tensors. Every rank must call this.

        Args:
            base: folder of the model that the adapter belongs to.
        """

    def write_extras(self) -> Callable[[Path], None]:
        """What writes the adapter into a checkpoint on rank 0, where there is one. Every rank must call this."""
        if not self.args.use_lora:
            return lambda folder: None
        write = self.adapter_writer()

        def write_extras(folder: Path) -> None:
            write(folder / "adapter")

        return write_extras

    def load(self) -> CheckpointState:
        """Resumes from the latest checkpoint of `save`, else from `load`; without one it is a fresh start.

        Raises:
            CheckpointError: a checkpoint that is not there, or does not fit this run.
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

    def return_to(self, checkpoint: str) -> None:
        """Takes over an older checkpoint of this run: weights, optimizer and random states, in place.

        Raises:
            CheckpointError: it is not there, or does not fit this run.
        """
        folder = Path(checkpoint)
        self._check_backend(folder)
        for part in self.parts:
            if part.optimizer is not None:
                part.optimizer.state.clear()  # a checkpoint of the first weights holds none
        state = load_checkpoint(folder, self.parts, lora_settings(self.args))
        self.global_step, self.version = state.global_step, state.version
        if self.critic is not None:
            self.critic.steps = state.steps_of.get(CRITIC, 0)
        event(logger, "trainer went back", version=state.version, path=checkpoint)

    def save(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        model_folder: str | None = None,
        wait: bool = True,
    ) -> str:
        """Writes a checkpoint of these weights, which are (or become) `version`; returns its folder.

        Args:
            model_folder: the same weights as `export_weights` wrote them; they become part of the checkpoint.
            wait: return when the checkpoint counts; else, with --async-save, when it is copied.
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

        path = self.writer.write(state, self.parts, extra, write_more, wait)
        event(logger, "checkpoint saved", rollout_id=rollout_id, version=version, path=path)
        return str(path)

    def finish_save(self) -> None:
        """Returns when no checkpoint is being written any more; raises TrainError if one could not be."""
        self.writer.finish()

    def adapter_writer(self) -> Callable[[Path], str]:
        """What writes the adapter alone on rank 0 and returns the checksum of its tensors. Every rank must call this."""
        write = self.gather_adapter(str(Path(self.first_weights()).resolve()))
        return lambda folder: "" if self.rank else weights_checksum(write(folder))

    def export_weights(self, folder: str, version: int, whole: bool = True) -> str:
        """Writes the weights as a Hugging Face folder and returns their checksum, on every rank.

        The folder appears whole or not at all. Tensors have the dtype that engines serve: fp32 on a CPU,
        else the model's own.

        Args:
            whole: with adapters merged; otherwise the adapter alone, in PEFT's format, and its checksum.
        """
        write = self._write_merged if whole else self.adapter_writer()
        target = Path(folder)
        checksum = write(fresh_folder(target) if self.rank == 0 else target)
        if self.rank == 0:
            commit_folder(temporary_beside(target), target)
        self.version = version
        return broadcast(checksum)

    def share_weights(self, slots: str, version: int) -> tuple[str, str]:
        """Puts the weights, adapters merged, into shared memory; returns their checksum and the slot, on every rank.

        The checksum is empty where the memory has no room for them; the slot is then the reason.

        Args:
            slots: folder of the run's slots on the machine of rank 0.
        """
        if self.rank:
            self._write_merged(Path(slots))
            found = "", ""
        else:
            with free_slot(Path(slots)) as slot:
                found = self._fill(slot)
        self.version = version
        return broadcast(found)

    def _fill(self, slot: Path) -> tuple[str, str]:
        try:
            return self._write_merged(slot), str(slot)
        except OSError as error:
            return "", str(error)

    def _write_merged(self, folder: Path) -> str:
        """On rank 0, to which the other ranks hand their parts; returns the checksum there."""
        probe, dtype = self.probe(), self._served_dtype()
        weights = self.whole_weights(dtype)
        tensors = iter(weights.tensors)
        try:
            if self.rank:
                return ""
            copy_model_files(folder, self.args.hf_checkpoint)
            if probe is not None:
                write_probe(folder, probe)
            return checksum_of(write_weights(folder, tensors, weights.count, dtype))
        finally:
            for _ in tensors:  # the other ranks hand over all of them, whatever becomes of the file
                pass

    def first_weights(self) -> str:
        """The Hugging Face folder to begin with; `load` may name one instead of checkpoints."""
        load = self.args.load
        if load is not None and (Path(load) / "config.json").is_file() and not is_checkpoint(Path(load)):
            return str(load)
        return str(self.args.hf_checkpoint)

    def _check_backend(self, folder: Path) -> None:
        written_by = checkpoints.read_meta(folder).get("backend", "fsdp")
        if written_by != self.backend:
            raise CheckpointError(
                f"checkpoint {folder} was written by --train-backend {written_by}, this run has {self.backend}; "
                f"use the same one, or start from the weights alone: --hf-checkpoint {folder} with another --save"
            )

    def _served_dtype(self) -> torch.dtype | None:
        args = self.args
        has_gpus = args.rollout_external_engine_addrs and args.rollout_backend != "embedded"
        return (
            torch.float32 if args.rollout_num_gpus == 0 and not has_gpus else stored_dtype(args.hf_checkpoint)
        )


def lora_settings(args: LoraArguments) -> dict[str, Any] | None:
    """What a checkpoint must agree with to be resumed; None without LoRA."""
    if not args.use_lora:
        return None
    names = ("lora_rank", "lora_alpha", "lora_target_modules", "lora_modules_to_save")
    return {name: getattr(args, name) for name in names}
