"""Flags: where a run lives."""

from __future__ import annotations

from dataclasses import dataclass

from slime.arguments.field import flag


@dataclass
class RunArguments:
    """Run: folder, seed and what is logged."""

    run_dir: str = flag(
        "runs/slime", "folder of the run: process records, logs, live weights", env=("RUN_DIR",)
    )
    seed: int = flag(1234, "seed of every random number of the trainer")
    use_tensorboard: bool = flag(True, "write TensorBoard events")
    tensorboard_dir: str | None = flag(None, "folder of TensorBoard events (default: RUN_DIR/tensorboard)")
