"""Checkpoints: `SAVE/iter_0000012/` with model and optimizer (torch DCP), random states and `meta.json`.

A checkpoint is built in a hidden folder and renamed, then the tracker file names it. So a kill at any moment
leaves the checkpoint before it in force.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from slime.errors import TrainError
from slime.utils.files import commit_folder, fresh_folder, recover_folder, temporary_beside, write_text

TRACKER = "latest_checkpointed_iteration.txt"
META = "meta.json"


@dataclass(frozen=True)
class CheckpointState:
    """Where training stands.

    Attributes:
        rollout_id: last rollout that was trained; -1 if none was.
        version, parent: weight version of these weights and the one that they were trained from.
        path: checkpoint folder; None for a fresh start.
        global_step: optimizer steps so far.
    """

    rollout_id: int = -1
    version: int = 0
    parent: int | None = None
    path: str | None = None
    global_step: int = 0


def folder_of(save: str, rollout_id: int) -> Path:
    return Path(save) / f"iter_{rollout_id:07d}"


def latest(save: str | None) -> Path | None:
    """The checkpoint that the tracker names, or None if there is none.

    Raises:
        TrainError: the tracker names a checkpoint that is not there.
    """
    tracker = Path(save or "") / TRACKER
    if save is None or not tracker.is_file():
        return None
    folder = folder_of(save, int(tracker.read_text()))
    recover_folder(folder)
    if not (folder / META).is_file():
        raise TrainError(
            f"{tracker} names {folder}, which is not a checkpoint; write the number of another one"
        )
    return folder


def save_checkpoint(
    save: str,
    state: CheckpointState,
    model: Any,
    optimizer: torch.optim.Optimizer,
    extra: dict[str, Any],
    write_more: Callable[[Path], None] | None = None,
) -> Path:
    """Writes a checkpoint of what is trained; every rank must call it.

    Args:
        extra: added to `meta.json`.
        write_more: writes further files into the folder, on rank 0.
    """
    rank, path = dist.get_rank(), folder_of(save, state.rollout_id)
    temporary = temporary_beside(path)
    if rank == 0:
        fresh_folder(path)
    dist.barrier()
    save_sharded(_tensors(model, optimizer, state.global_step), checkpoint_id=temporary)
    torch.save(random_state(), temporary / f"rng_{rank}.pt")
    dist.barrier()
    if rank == 0:
        meta = {
            "rollout_id": state.rollout_id,
            "version": state.version,
            "parent": state.parent,
            "global_step": state.global_step,
            "world_size": dist.get_world_size(),
            "saved_at": time.time(),
            **extra,
        }
        if write_more is not None:
            write_more(temporary)
        write_text(temporary / META, json.dumps(meta, indent=1))
        commit_folder(temporary, path)
        write_text(Path(save) / TRACKER, str(state.rollout_id))
    dist.barrier()
    return path


def load_checkpoint(
    path: Path, model: Any, optimizer: torch.optim.Optimizer, lora: dict[str, Any] | None = None
) -> CheckpointState:
    """Restores model, optimizer and random states; every rank must call it.

    Another number of ranks than at saving works; ranks that were not there keep their seeds.

    Args:
        lora: the adapters that `model` has; None for a model that is trained as a whole.

    Raises:
        TrainError: the checkpoint is of other adapters.
    """
    meta = json.loads((path / META).read_text())
    if meta.get("lora") != lora:
        raise TrainError(
            f"checkpoint {path} was trained with {_described(meta.get('lora'))}, this run with "
            f"{_described(lora)}; use the same flags, or another --save"
        )
    state = _tensors(model, optimizer, meta["global_step"])
    load_sharded(state, checkpoint_id=path)
    set_model_state_dict(model, state["model"], options=_options(model))
    if "optimizer" in state:
        set_optimizer_state_dict(model, optimizer, state["optimizer"], options=_options(model))
    rng = path / f"rng_{dist.get_rank()}.pt"
    if rng.is_file():
        restore_random_state(torch.load(rng, weights_only=True))
    return CheckpointState(
        meta["rollout_id"], meta["version"], meta["parent"], str(path), meta["global_step"]
    )


def _described(lora: dict[str, Any] | None) -> str:
    given = [
        f"--{name.replace('_', '-')} {value}" for name, value in (lora or {}).items() if value is not None
    ]
    return " ".join(given) or "no LoRA"


def _options(model: Any) -> StateDictOptions:
    """Frozen weights are not part of a checkpoint."""
    return StateDictOptions(
        ignore_frozen_params=True, strict=all(parameter.requires_grad for parameter in model.parameters())
    )


def _tensors(model: Any, optimizer: torch.optim.Optimizer, steps: int) -> dict[str, Any]:
    """What DCP saves, or fills in place. AdamW has no state before its first step."""
    parameters = model.named_parameters(remove_duplicate=False)
    frozen = {name for name, parameter in parameters if not parameter.requires_grad}
    tensors = get_model_state_dict(model, options=_options(model))  # drops a tied weight under one name only
    state: dict[str, Any] = {"model": {name: x for name, x in tensors.items() if name not in frozen}}
    if steps:
        state["optimizer"] = get_optimizer_state_dict(model, optimizer, options=_options(model))
    return state


def random_state() -> dict[str, Any]:
    """The state of every random generator of this process: tensors and plain values, so that loading runs no code."""
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
