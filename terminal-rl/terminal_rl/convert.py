"""Converts task folders to prompt files: `python -m terminal_rl.convert --tasks_dir DIR [--output_dir DIR]`.

Writes train.jsonl, heldout.jsonl and split_manifest.json. A folder that sandboxes cannot run is reported and skipped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.agents.splits import split
from slime.errors import ClawError
from terminal_rl.task_folder import TaskError, TaskFolder, read_task, task_folders

SEED = "terminal-evolution-v1"


def convert(folder: Path, output: Path, share: float, seed: str, depth: int) -> dict[str, Any]:
    """Writes the prompt files and the manifest; returns the manifest.

    Args:
        share: fraction of the tasks that is held out.

    Raises:
        TaskError: no task is usable, or two have the same name.
        ConfigError: the split is impossible.
    """
    tasks: list[TaskFolder] = []
    for path in task_folders(folder, depth):
        try:
            tasks.append(read_task(path))
        except TaskError as error:
            print(f"left out: {error}", file=sys.stderr)
    if not tasks:
        raise TaskError(f"{folder}: no task can be used")
    names = [task.name for task in tasks]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise TaskError(f"{folder}: several tasks are named {', '.join(doubled)}")
    kept_back = split(names, share, seed).held_out if share else ()
    output.mkdir(parents=True, exist_ok=True)
    splits = {
        "train": [t for t in tasks if t.name not in kept_back],
        "heldout": [t for t in tasks if t.name in kept_back],
    }
    for name, part in splits.items():
        lines = (json.dumps(row(task, folder), ensure_ascii=False) + "\n" for task in part)
        (output / f"{name}.jsonl").write_text("".join(lines))
    manifest = {
        "seed": seed,
        "held_out_share": share,
        **{name: sorted(task.name for task in part) for name, part in splits.items()},
    }
    (output / "split_manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def row(task: TaskFolder, folder: Path) -> dict[str, Any]:
    """Returns a line of a prompt file, for --input-key task --metadata-key metadata."""
    about = {
        "task_name": task.name,
        "task_path": task.path.relative_to(folder).as_posix(),
        "instruction": task.instruction,
        "data_source": "terminal_bench",
        "difficulty": task.difficulty,
        "category": task.category,
    }
    return {"task": [{"role": "user", "content": task.instruction}], "metadata": about}


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The tasks to convert to prompts, and the folder to write."""

    tasks_dir: Path = flag(
        REQUIRED, "folder of task folders; DATASET_DIR of the run", aliases=("--tasks_dir",)
    )
    output_dir: Path | None = flag(
        None,
        "output folder (default: the input's name with _convert appended)",
        aliases=("--output_dir",),
    )
    train_split: float = flag(0.8, "share of training tasks; 1.0: hold out none", aliases=("--train_split",))
    seed: str = flag(SEED, "seed of the split")
    depth: int = flag(0, "1: tasks are in subfolders", least=0, most=1)


def main(words: Sequence[str] | None = None) -> int:
    flags = parse(Converted, words, "python -m terminal_rl.convert", (__doc__ or "").split("\n")[0])
    output = flags.output_dir or flags.tasks_dir.with_name(f"{flags.tasks_dir.name}_convert")
    try:
        manifest = convert(flags.tasks_dir, output, round(1 - flags.train_split, 9), flags.seed, flags.depth)
    except (ClawError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(manifest['train'])} tasks to train on, {len(manifest['heldout'])} held out, in {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
