"""Exports weights from a training process to the engines, as a Hugging Face folder or in shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from claw_base.files import commit_folder, fresh_folder, temporary_path
from slime.training.core.distributed import broadcast
from slime.training.core.model import serves_fp32
from slime.weights.checkpoints import is_checkpoint
from slime.weights.checksum import checksum_of, weights_checksum
from slime.weights.cpu_dtype import dtype_on_cpu
from slime.weights.folders import copy_model_files, fp32_vectors, stored_dtype, write_weights
from slime.weights.mapped import WrittenMemories
from slime.weights.probe import Probe, write_probe
from slime.weights.slots import free_slot


@dataclass(frozen=True)
class Weights:
    """Names and tensors, yielded one at a time, and their approximate number."""

    tensors: Iterable[tuple[str, Tensor]]
    count: int


class Exporting(ABC):
    """The export of weight versions by one rank of a training run. All ranks must make the same calls.

    Attributes:
        version: version of the last exported weights.
    """

    args: Any
    rank: int
    version: int = 0

    @abstractmethod
    def whole_weights(self, dtype: torch.dtype | None) -> Weights:
        """Yields all weights under Hugging Face's names as whole tensors, on rank 0. Every rank must consume
        all of them.

        They are to be written in `dtype` (None: unchanged); some vectors may stay in fp32.
        """

    @abstractmethod
    def probe(self) -> Probe | None:
        """Returns log-probs of fixed ids under the current weights, if engines are verified. Every rank must
        call this."""

    @abstractmethod
    def gather_adapter(self, base: str) -> Callable[[Path], dict[str, Tensor]]:
        """Returns a function that writes the adapter in PEFT's format and returns its tensors. Every rank
        must call this.

        Args:
            base: folder of the adapter's base model.
        """

    def adapter_writer(self) -> Callable[[Path], str]:
        """Returns a function that writes only the adapter and returns its tensors' checksum. Every rank must
        call this.

        Only rank 0 writes.
        """
        write = self.gather_adapter(str(Path(self.first_weights()).resolve()))
        return lambda folder: "" if self.rank else weights_checksum(write(folder))

    def export_weights(self, folder: str, version: int, whole: bool = True) -> str:
        """Writes the weights as a Hugging Face folder and returns their checksum, on every rank.

        The folder appears only when it is complete. Tensors have the dtype that engines serve: fp32 on a CPU without
        --bf16, else the model's dtype; those of `in_fp32` keep fp32.

        Args:
            whole: write the model with merged adapters; otherwise only the adapter in PEFT's format, with its
                checksum.
        """
        write = self._write_merged if whole else self.adapter_writer()
        target = Path(folder)
        checksum = write(fresh_folder(target) if self.rank == 0 else target)
        if self.rank == 0:
            commit_folder(temporary_path(target), target)
        self.version = version
        return broadcast(checksum)

    def keeps(self, folder: str) -> bool:
        """Returns whether a version's weights can still be loaded from `folder`."""
        return True

    @cached_property
    def in_fp32(self) -> frozenset[str]:
        """Returns the names of vectors that are exported in fp32, as stored in the model's folder."""
        return fp32_vectors(self.args.hf_checkpoint) if serves_fp32(self.args) else frozenset()

    @cached_property
    def _dtype_on_cpu(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, dtype_on_cpu(self.args.bf16, Path(self.args.run_dir)))
        return dtype

    @cached_property
    def memories(self) -> WrittenMemories:
        """Returns the shared-memory slots that this process writes."""
        return WrittenMemories()

    def share_weights(self, slots: str, version: int) -> tuple[str, str]:
        """Copies the merged weights to shared memory; returns checksum and slot, on every rank.

        If there is not enough memory, the checksum is empty and the reason replaces the slot.

        Args:
            slots: folder of the run's slots on rank 0's machine.
        """
        if self.rank:
            self._write_merged(Path(slots))
            shared = "", ""
        else:
            with free_slot(Path(slots)) as slot:
                shared = self._fill(slot)
        self.version = version
        checksum, place = broadcast(list(shared))
        return checksum, place

    def _fill(self, slot: Path) -> tuple[str, str]:
        try:
            return self._write_merged(slot, self.memories), str(slot)
        except OSError as error:
            return "", str(error)

    def _write_merged(self, folder: Path, memories: WrittenMemories | None = None) -> str:
        """Writes the merged weights on rank 0, which receives the other ranks' parts; returns the checksum on
        rank 0."""
        probe, dtype = self.probe(), self._served_dtype()
        weights = self.whole_weights(dtype)
        tensors = iter(weights.tensors)
        try:
            if self.rank:
                return ""
            copy_model_files(folder, self.args.hf_checkpoint)
            if probe is not None:
                write_probe(folder, probe)
            written = write_weights(folder, tensors, weights.count, dtype, memories, self.in_fp32)
            return checksum_of(written)
        finally:
            for _ in tensors:  # the other ranks must consume all tensors, even if writing fails
                pass

    def first_weights(self) -> str:
        """Returns the Hugging Face folder of the initial weights: `load` if it contains a model, not
        checkpoints."""
        load = self.args.load
        if load is not None and (Path(load) / "config.json").is_file() and not is_checkpoint(Path(load)):
            return str(load)
        return str(self.args.hf_checkpoint)

    def _served_dtype(self) -> torch.dtype | None:
        args = self.args
        has_gpus = args.rollout_external_engine_addrs and args.rollout_backend != "embedded"
        if args.rollout_num_gpus or has_gpus:
            return stored_dtype(args.hf_checkpoint)
        # an external embedded engine serves fp32 on a CPU, unless it has a --dtype
        return torch.float32 if args.rollout_external_engine_addrs else self._dtype_on_cpu
