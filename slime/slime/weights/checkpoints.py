"""Checkpoint folders. Imports no torch: the driver uses it too.

    SAVE/checkpoint-12/        after 12 rollouts: a Hugging Face model, `trainer/` to resume from, `meta.json`
    SAVE/checkpoint-latest     link to the newest complete one
    SAVE/rollout/              state of the data source after each rollout

A checkpoint is built in a hidden folder, renamed, and then the link is moved, so after a kill at any moment the
previous checkpoint is still valid. Folders of earlier releases (`iter_0000011`) can be resumed from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw_base.files import commit_folder, recover_folder, temporary_path, write_text
from slime.errors import CheckpointError

if TYPE_CHECKING:
    from slime.flags.lora import LoraArguments

LATEST = "checkpoint-latest"
META = "meta.json"
TRAINER = "trainer"
EARLIER_TRACKER = "latest_checkpointed_iteration.txt"
MEGATRON_INDEX = "metadata.json"
NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class CheckpointState:
    """The state of training at a checkpoint.

    Attributes:
        rollout_id: last trained rollout; -1: none.
        version, parent: version of these weights, and the version before the last update.
        path: checkpoint folder; None for a fresh start.
        global_step: optimizer steps of the policy so far.
        steps_of: optimizer steps of other trained models, such as a critic, by name.
    """

    rollout_id: int = -1
    version: int = 0
    parent: int | None = None
    path: str | None = None
    global_step: int = 0
    steps_of: dict[str, int] = field(default_factory=dict, compare=False)


def folder_of(save: str | Path, rollout_id: int) -> Path:
    """Returns `checkpoint-N`, where N is the number of rollouts in it: `rollout_id` + 1."""
    return Path(save) / f"checkpoint-{rollout_id + 1}"


def trainer_folder(checkpoint: Path) -> Path:
    """Returns the folder that only the trainer reads; in the earlier layout, it was the checkpoint's own folder."""
    inner = checkpoint / TRAINER
    return inner if inner.is_dir() else checkpoint


def is_checkpoint(folder: Path) -> bool:
    return (folder / META).is_file()


def is_torch_dist(folder: Path) -> bool:
    """Returns whether a folder is or contains a Megatron-LM checkpoint."""
    inner = (folder, folder / "release", *folder.glob("iter_*"))
    return any((one / MEGATRON_INDEX).is_file() and (one / ".metadata").is_file() for one in inner)


def read_meta(checkpoint: Path) -> dict[str, Any]:
    """Returns the checkpoint's own description.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        meta = json.loads((checkpoint / META).read_text())
        return {**meta, "rollout_id": int(meta["rollout_id"]), "global_step": int(meta["global_step"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{checkpoint / META} is not the description of a checkpoint: {error!r}"
        ) from error


def newest_rollout(save: Path) -> int:
    """Returns the last rollout in the latest checkpoint; -1 if none can be read. Does not repair anything."""
    try:
        return int(read_meta(save / os.readlink(save / LATEST))["rollout_id"])
    except (OSError, CheckpointError):
        return -1


def find(path: str | None) -> Path | None:
    """Returns the checkpoint to resume from: `path` itself, or the latest one in the folder `path`. None if there is
    none.

    Raises:
        CheckpointError: the folder's latest checkpoint is missing.
    """
    if path is None:
        return None
    folder = Path(path)
    return folder.resolve() if is_checkpoint(folder) else latest(folder)


def latest(save: Path) -> Path | None:
    """Returns the checkpoint that `checkpoint-latest` names, or None if there is none.

    Raises:
        CheckpointError: the named checkpoint is missing.
    """
    link = save / LATEST
    if link.is_symlink():
        folder, named_by = save / os.readlink(link), link
    elif (save / EARLIER_TRACKER).is_file():
        named_by = save / EARLIER_TRACKER
        folder = save / f"iter_{int(named_by.read_text()):07d}"
    else:
        return None
    recover_folder(folder)
    if not is_checkpoint(folder):
        raise CheckpointError(
            f"{named_by} names {folder}, which is not a checkpoint; remove it, or point it to another one"
        )
    return folder


def lora_settings(args: LoraArguments) -> dict[str, Any] | None:
    """Returns the LoRA settings that a checkpoint must have to be resumed; None without LoRA."""
    if not args.use_lora:
        return None
    names = ("lora_rank", "lora_alpha", "lora_target_modules", "lora_modules_to_save")
    return {name: vars(args)[name] for name in names}


def check_adapters(path: Path, meta: dict[str, Any], lora: dict[str, Any] | None) -> None:
    """Raises CheckpointError if the checkpoint `path` was trained with other adapter settings than `lora`."""
    if meta.get("lora") != lora:
        raise CheckpointError(
            f"checkpoint {path} was trained with {_described(meta.get('lora'))}, this run with "
            f"{_described(lora)}; use the same flags, or another --save"
        )


def _described(lora: dict[str, Any] | None) -> str:
    settings = [
        f"--{name.replace('_', '-')} {value}" for name, value in (lora or {}).items() if value is not None
    ]
    return " ".join(settings) or "no LoRA"


def ignored_checkpoint_warning(save: str, load: str | None) -> str | None:
    """Returns a warning if `load` is an older checkpoint of `save`, because a run resumes from its newest; else None."""
    if load is None or Path(load).resolve().parent != Path(save).resolve() or not is_checkpoint(Path(load)):
        return None
    newest = latest(Path(save))
    if newest is None or newest.resolve() == Path(load).resolve():
        return None
    older = Path(load).resolve().name
    return (
        f"--load {load} is ignored: the run continues from {newest.name}; to go back, stop it, "
        f"ln -sfn {older} {Path(save) / LATEST}, and start it again"
    )


def describe(temporary: Path, meta: dict[str, Any]) -> None:
    """Adds the description to a complete checkpoint; it becomes valid only through `activate_checkpoint`."""
    write_text(temporary / META, json.dumps(meta, indent=1))


def activate_checkpoint(folder: Path) -> None:
    """Makes a completely written, hidden checkpoint the latest one."""
    commit_folder(temporary_path(folder), folder)
    make_latest(folder)


def make_latest(folder: Path) -> None:
    """Makes this the checkpoint that a restarted run resumes from."""
    link = folder.parent / LATEST
    temporary = temporary_path(link)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder.name)
    temporary.replace(link)


def add_model(checkpoint: Path, model: Path) -> None:
    """Adds the files of a Hugging Face folder to the checkpoint, as hard links if possible."""
    for file in sorted(model.iterdir()):
        if file.is_file():
            try:
                os.link(file, checkpoint / file.name)
            except OSError:  # on another file system
                shutil.copyfile(file, checkpoint / file.name)


def numbers(save: Path) -> list[int]:
    """Returns the numbers of the existing checkpoints (rollouts in each), ascending."""
    names = (NAME.fullmatch(path.name) for path in save.glob("checkpoint-*"))
    return sorted(int(name[1]) for name in names if name is not None)


def prune(save: Path, keep: int) -> list[Path]:
    """Removes all but the `keep` newest checkpoints (0: none), never the latest one; returns the removed ones."""
    if keep <= 0:
        return []
    link = save / LATEST
    latest_name = os.readlink(link) if link.is_symlink() else None
    old: Iterable[Path] = (save / f"checkpoint-{number}" for number in numbers(save)[:-keep])
    removed = [folder for folder in old if folder.name != latest_name]
    for folder in removed:
        shutil.rmtree(folder)
    return removed
