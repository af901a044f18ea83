"""Checkpoints of a training rank: models and optimizers (torch DCP), and random states of every rank.

`slime.weights.checkpoints` defines where checkpoints are stored and when they become valid. Writing can run
in the background: tensors are first copied to the CPU, and ranks synchronize through a separate process
group, so training continues.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from claw_base.files import fresh_folder, temporary_path
from slime.errors import CheckpointError, TrainError
from slime.training.core.part import Part, tensors_of
from slime.training.core.safe_loading import SafePlanner, SafeReader
from slime.weights.checkpoints import (
    TRAINER,
    CheckpointState,
    activate_checkpoint,
    check_adapters,
    describe,
    folder_of,
    read_meta,
    trainer_folder,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class CheckpointWriter:
    """Writes the checkpoints of one rank, one at a time; all ranks must make the same calls.

    Args:
        save: folder of the checkpoints.
        in_background: create a process group, so that writing can continue during training.
    """

    def __init__(self, save: str, in_background: bool = False) -> None:
        self.save = save
        self.group = dist.new_group(backend="gloo") if in_background else None
        self.pool = ThreadPoolExecutor(1, "checkpoint")
        self.pending: Future[None] | None = None

    def write(
        self,
        state: CheckpointState,
        parts: Sequence[Part],
        extra: dict[str, Any],
        write_more: Callable[[Path], None] = lambda folder: None,
        wait: bool = True,
        hold: bool = False,
    ) -> Path:
        """Writes a checkpoint of the current state and returns its folder.

        Args:
            extra: added to `meta.json`.
            write_more: writes further files into the folder, on rank 0, before this returns.
            wait: return when the checkpoint is valid; otherwise, with `in_background`, when the tensors are
                copied.
            hold: return when it is complete under a hidden name; `activate_checkpoint` makes it valid.

        Raises:
            TrainError: the previous checkpoint could not be written in the background.
        """
        self.finish()
        rank, path = dist.get_rank(), folder_of(self.save, state.rollout_id)
        inner = temporary_path(path) / TRAINER
        if rank == 0:
            write_more(fresh_folder(path))
            inner.mkdir()
        dist.barrier()
        torch.save(random_state(), inner / f"rng_{rank}.pt")
        tensors = tensors_of(
            parts, {part.prefix for part in parts if part.optimizer and part.optimizer.state}
        )
        meta = {**_meta(state), "steps_of": {part.prefix: part.steps for part in parts}, **extra}
        complete = partial(self._complete, path, meta, hold)
        if self.group is None or wait or hold:
            with _plain_errors("written"):
                save_sharded(tensors, checkpoint_id=inner)
            complete(group=None)
            dist.barrier()
            return path
        staged = async_save(
            tensors, checkpoint_id=inner, process_group=self.group, async_stager=BlockingAsyncStager()
        )
        assert isinstance(staged, Future)

        def complete_later() -> None:
            staged.result()
            complete(group=self.group)

        self.pending = self.pool.submit(complete_later)
        return path

    def finish(self) -> None:
        """Waits until no write is in progress. Raises TrainError if the write failed."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        try:
            pending.result()
        except (Exception, CheckpointException) as error:
            raise TrainError(f"writing a checkpoint in the background failed: {_first(error)}") from error

    def _complete(self, path: Path, meta: dict[str, Any], hold: bool, group: ProcessGroup | None) -> None:
        dist.barrier(group)
        if dist.get_rank() == 0:
            describe(temporary_path(path), meta)
            if not hold:
                activate_checkpoint(path)


def load_checkpoint(
    path: Path, parts: Sequence[Part], lora: dict[str, Any] | None = None, reset_optimizer: bool = False
) -> CheckpointState:
    """Restores models, optimizers and random states; all ranks must call it.

    The number of ranks may differ from the one at saving; additional ranks keep their seeds.

    Args:
        lora: the policy's adapter settings; None for full training.
        reset_optimizer: start optimizers and the learning-rate schedule from their beginning.

    Raises:
        CheckpointError: the checkpoint is corrupt, or belongs to another model or other adapters.
    """
    meta, inner = read_meta(path), trainer_folder(path)
    check_adapters(path, meta, lora)
    reader = SafeReader(inner)
    index = reader.read_metadata()
    stepped: set[str] = set() if reset_optimizer else _stepped(parts, index)
    state = tensors_of(parts, stepped)
    _check_shapes(path, parts, state, index)
    with _plain_errors("read"):
        load_sharded(state, storage_reader=reader, planner=SafePlanner())
    for part in parts:
        names = [name for name in ("model", "optimizer") if part.prefix + name in state]
        part.restore({name: state[part.prefix + name] for name in names})
    rng = inner / f"rng_{dist.get_rank()}.pt"
    if rng.is_file():
        restore_random_state(torch.load(rng, weights_only=True))
    return CheckpointState(
        meta["rollout_id"],
        meta["version"],
        meta["parent"],
        str(path),
        global_step=0 if reset_optimizer else meta["global_step"],
        steps_of={} if reset_optimizer else meta.get("steps_of", {}),
    )


@contextmanager
def _plain_errors(deed: str) -> Iterator[None]:
    """Converts torch's `CheckpointException`, which does not derive from Exception, to CheckpointError."""
    try:
        yield
    except CheckpointException as error:
        raise TrainError(f"a checkpoint could not be {deed}: {_first(error)}") from error


def _first(error: BaseException) -> str:
    """Returns the error of the first rank that failed."""
    failures = getattr(error, "failures", {})
    return str(next((failure[0] for failure in failures.values()), error))


def _meta(state: CheckpointState) -> dict[str, Any]:
    return {
        "rollout_id": state.rollout_id,
        "version": state.version,
        "parent": state.parent,
        "global_step": state.global_step,
        "world_size": dist.get_world_size(),
        "saved_at": time.time(),
    }


def _stepped(parts: Sequence[Part], index: Metadata) -> set[str]:
    """Returns the parts whose optimizer has made at least one step; before that, AdamW has no state."""
    names = index.state_dict_metadata
    return {
        part.prefix for part in parts if any(name.startswith(f"{part.prefix}optimizer.") for name in names)
    }


def _check_shapes(path: Path, parts: Sequence[Part], state: dict[str, Any], index: Metadata) -> None:
    """Raises CheckpointError if names or shapes of the weights differ between checkpoint and models."""
    stored: dict[str, list[int]] = {}
    expected: dict[str, list[int]] = {}
    for part in parts:
        key = f"{part.prefix}model."
        stored |= {
            name: list(entry.size)
            for name, entry in index.state_dict_metadata.items()
            if name.startswith(key) and isinstance(entry, TensorStorageMetadata)
        }
        shapes = part.shapes({"model": state[f"{part.prefix}model"]})
        expected |= {key + name: shape for name, shape in shapes.items()}
    differ = sorted(
        name for name in stored.keys() | expected.keys() if stored.get(name) != expected.get(name)
    )
    if differ:
        name = differ[0]
        raise CheckpointError(
            f"checkpoint {path} belongs to another model: {name} is {stored.get(name, 'missing')} "
            f"in the checkpoint and {expected.get(name, 'missing')} in this model ({len(differ)} "
            f"of {len(expected)} tensors differ); use the model that it was trained from, or "
            "another --save"
        )


def seed_all(seed: int) -> None:
    """Seeds every random generator of this process."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def random_state() -> dict[str, Any]:
    """Returns the state of every random generator of this process."""
    name, keys, *rest = np.random.get_state(legacy=True)
    state = {
        "torch": torch.get_rng_state(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "python": random.getstate(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
