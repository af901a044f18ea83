"""Files in which the trainer stores values of single tokens until they are in the store, one a rollout:
`RUN_DIR/token_records/rollout-000012.jsonl`."""

from __future__ import annotations

from pathlib import Path

FOLDER = "token_records"


def file_of(run_dir: Path, rollout_id: int) -> Path:
    return run_dir / FOLDER / f"rollout-{rollout_id:06d}.jsonl"


def all_files(run_dir: Path) -> list[Path]:
    """Returns the existing files, the oldest rollout first."""
    return sorted((run_dir / FOLDER).glob("rollout-*.jsonl"))
