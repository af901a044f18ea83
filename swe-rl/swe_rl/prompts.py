"""Writes prompt files of instances, with a held-out part that is never trained on; both parts share no function.

python -m swe_rl.prompts INSTANCES --output-dir FOLDER [--share 0.2] [--seed swe-v1]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.agents.splits import SHARE, split
from slime.errors import ClawError
from swe_rl.instance import Instance, read_instances

SEED = "swe-v1"


def place_of(instance: Instance) -> str:
    """Returns the key of rows that stay together in a split: the function of a bug, or the instance."""
    if instance.bug is None:
        return instance.instance_id
    return f"{instance.repository}:{instance.bug.file}:{instance.bug.function}"


def row(instance: Instance) -> dict[str, Any]:
    """Returns a line for --prompt-data with --input-key text --metadata-key metadata."""
    about = {"task_id": instance.instance_id, "instance": instance.to_row()}
    return {"text": instance.problem_statement, "metadata": about}


def write_prompts(
    instances: Sequence[Instance], folder: Path, share: float = SHARE, seed: str = SEED
) -> dict[str, Any]:
    """Writes train.jsonl, heldout.jsonl and split_manifest.json; returns the manifest.

    Raises:
        ConfigError: there are too few instances for two parts.
    """
    parts = split((place_of(one) for one in instances), share, seed)
    held = set(parts.held_out)
    sides = {
        "train": [one for one in instances if place_of(one) not in held],
        "heldout": [one for one in instances if place_of(one) in held],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, side in sides.items():
        write_text(folder / f"{name}.jsonl", "".join(json.dumps(row(one)) + "\n" for one in side))
    manifest: dict[str, Any] = {"seed": seed, "share": share}
    manifest |= {name: [one.instance_id for one in side] for name, side in sides.items()}
    write_text(folder / "split_manifest.json", json.dumps(manifest, indent=2) + "\n")
    return manifest


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The instances to convert to prompts, and the folder to write."""

    instances: Path = flag(
        REQUIRED, "JSONL or Parquet: SWE-bench, SWE-Gym, SWE-smith, R2E or the factory", positional=True
    )
    output_dir: Path = flag(REQUIRED, "output folder")
    share: float = flag(SHARE, "share of held-out instances")
    seed: str = flag(SEED, "seed of the split: any text")


def main() -> int:
    args = parse(Converted, None, "python -m swe_rl.prompts", __doc__.splitlines()[0])
    try:
        made = write_prompts(list(read_instances(args.instances)), args.output_dir, args.share, args.seed)
    except (ClawError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(
        f"{len(made['train'])} instances to train on, {len(made['heldout'])} held out, in {args.output_dir}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
