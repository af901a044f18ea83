"""Prompt files of tasks in OSWorld's JSON: `python -m gui_rl.convert --tasks_dir DIR` reads DIR/DOMAIN/ID.json.

Writes train.jsonl, heldout.jsonl and split_manifest.json. Tasks that need more than a browser page are skipped, each
with its reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from gui_rl.scoring.getters import DESKTOP_GETTERS, GETTERS
from gui_rl.scoring.metrics import METRICS
from gui_rl.scoring.setup_steps import refused_step
from gui_rl.scoring.task import GuiTask, TaskError, read_json, task_from
from slime.agents.splits import SEED, SHARE, split
from slime.errors import ClawError


def refusal(task: GuiTask, desktop: bool = False) -> str | None:
    """Returns why a task cannot be used here; None if it can."""
    if step := refused_step([*task.config, *task.postconfig], desktop):
        return step
    for check in task.checks:
        if check.func not in METRICS:
            return f"metric {check.func}"
        for settings in (check.result, check.expected):
            kind = settings.get("type")
            if kind not in GETTERS and not (desktop and kind in DESKTOP_GETTERS):
                return f"getter {kind}"
    return None


def tasks_of(folder: Path, desktop: bool = False) -> tuple[list[GuiTask], dict[str, str]]:
    """Returns the usable tasks, and the reason for each other one, by its file."""
    tasks, refused = [], {}
    for name in sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*.json")):
        try:
            task = task_from(read_json(folder, name), name.partition("/")[0])
            reason = refusal(task, desktop)
        except TaskError as error:
            reason = str(error)
        if reason is None:
            tasks.append(task)
        else:
            refused[name] = reason
    return tasks, refused


def row(task: GuiTask) -> Mapping[str, Any]:
    """Returns a line of a prompt file; the run finds the task by --gui-tasks-dir."""
    about = {
        "domain": task.domain,
        "example_id": task.name,
        "task_id": task.name,
        "instruction": task.instruction,
    }
    return {"prompt": task.instruction, "label": "", "metadata": about}


def convert(
    folder: Path, output: Path, share: float = SHARE, seed: str = SEED, desktop: bool = False
) -> dict[str, Any]:
    """Writes the three files; returns the manifest.

    Raises:
        TaskError: no task can be used.
        ConfigError: the split cannot be made.
    """
    tasks, refused = tasks_of(folder, desktop)
    for name, reason in refused.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    if not tasks:
        raise TaskError(f"{folder}: no task can be used")
    kept_back = split([task.name for task in tasks], share, seed).held_out if share else ()
    parts = {
        "train": [task for task in tasks if task.name not in kept_back],
        "heldout": [task for task in tasks if task.name in kept_back],
    }
    output.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        lines = (json.dumps(row(task), ensure_ascii=False) + "\n" for task in part)
        (output / f"{name}.jsonl").write_text("".join(lines))
    manifest = {
        "seed": seed,
        "share": share,
        **{name: [task.name for task in part] for name, part in parts.items()},
    }
    (output / "split_manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The tasks to convert to prompts, and the folder to write."""

    tasks_dir: Path = flag(REQUIRED, "folder of DOMAIN/ID.json", aliases=("--tasks_dir",), unit="path")
    output_dir: Path | None = flag(
        None,
        "output folder (default: the input's name with _convert appended)",
        aliases=("--output_dir",),
        unit="path",
    )
    share: float = flag(SHARE, "share of tasks to hold out; 0: none")
    seed: str = flag(SEED, "seed of the split")
    desktop: bool = flag(
        False, "also convert tasks for SCREENSHOT_BACKEND=xvfb, which use programs other than a browser"
    )


def main(words: Sequence[str] | None = None) -> int:
    flags = parse(Converted, words, "python -m gui_rl.convert", __doc__)
    output = flags.output_dir or flags.tasks_dir.with_name(f"{flags.tasks_dir.name}_convert")
    try:
        manifest = convert(flags.tasks_dir, output, flags.share, flags.seed, flags.desktop)
    except (ClawError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(manifest['train'])} tasks to train on, {len(manifest['heldout'])} held out, in {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
