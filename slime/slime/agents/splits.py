"""Splits off held-out tasks: the same ones on every machine, selected by the hash of their names.

python -m slime.agents.splits TASKS.jsonl --out FOLDER [--name task_name] [--share 0.2] [--seed agents-v1]
writes train.jsonl, heldout.jsonl and split_manifest.json.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ConfigError

SEED, SHARE = "agents-v1", 0.2


@dataclass(frozen=True)
class Split:
    """Sorted names of tasks; no name is in both parts."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


def split(names: Iterable[str], share: float = SHARE, seed: str = SEED) -> Split:
    """Returns a split: the first round(share * N) tasks, at least one, by sha256("seed:name") are held out. Order and
    duplicates do not matter.

    Raises:
        ConfigError: fewer than two tasks, or a share that leaves none on a side.
    """
    ranked = sorted(
        set(names), key=lambda name: (hashlib.sha256(f"{seed}:{name}".encode()).hexdigest(), name)
    )
    count = max(1, round(share * len(ranked)))
    if not 0 < share < 1 or count >= len(ranked):
        raise ConfigError(
            f"a share of {share:g} of {len(ranked)} tasks leaves none to train on, or none to hold out"
        )
    return Split(tuple(sorted(ranked[count:])), tuple(sorted(ranked[:count])))


def split_rows(
    rows: Sequence[Mapping[str, Any]], name: str, share: float = SHARE, seed: str = SEED
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]], Split]:
    """Returns training rows, held-out rows, and the split of their names, which are in a row or its metadata.

    Raises:
        ConfigError: a row without that name; else as `split`.
    """
    names = [_name_of(row, name, number) for number, row in enumerate(rows, 1)]
    parts = split(names, share, seed)
    held_out = set(parts.held_out)
    sides: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]] = [], []
    for row, task in zip(rows, names, strict=True):
        sides[task in held_out].append(row)
    return *sides, parts


def _name_of(row: Mapping[str, Any], name: str, number: int) -> str:
    metadata = row.get("metadata")
    value = row.get(name, metadata.get(name) if isinstance(metadata, Mapping) else None)
    if not isinstance(value, str | int) or value == "":
        raise ConfigError(
            f"row {number} has no column {name} with the name of its task; choose another with --name"
        )
    return str(value)


def write_split(source: Path, folder: Path, name: str, share: float = SHARE, seed: str = SEED) -> Split:
    """Splits a JSON Lines file into `folder`. Raises ConfigError like `split_rows`, and for an unreadable file."""
    try:
        rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {source} as JSON Lines: {error}") from error
    train, held_out, parts = split_rows(rows, name, share, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for file, part in (("train.jsonl", train), ("heldout.jsonl", held_out)):
        write_text(folder / file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in part))
    manifest = {"seed": seed, "share": share, "train": parts.train, "heldout": parts.held_out}
    write_text(folder / "split_manifest.json", json.dumps(manifest, indent=2) + "\n")
    return parts


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """The tasks to split, and the shares."""

    tasks: Path = flag(REQUIRED, "JSON Lines, one task per row", positional=True)
    out: Path = flag(REQUIRED, "folder for the two files and the manifest")
    name: str = flag("task_name", "column, or metadata entry, that names the task")
    share: float = flag(SHARE, "share of tasks that are held out")
    seed: str = flag(SEED, "seed of the split: any text")


def main() -> int:
    args = parse(Splitting, None, "python -m slime.agents.splits", __doc__)
    try:
        counts = write_split(args.tasks, args.out, args.name, args.share, args.seed)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(counts.train)} tasks to train on, {len(counts.held_out)} held out, in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
