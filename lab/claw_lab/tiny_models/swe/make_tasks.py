"""Writes the tasks of a run on a laptop: `bash lab/run.sh tiny_models.swe.make_tasks FOLDER [--seed 0]`.

train.jsonl      bugs to learn on
heldout.jsonl    bugs in functions, and by mutations, that neither demonstrations nor train.jsonl have; always the
same
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from claw_base.files import write_text
from claw_lab.tiny_models.swe.bugs import Bug, draw
from slime.errors import ConfigError
from slime.sandbox import require_sandbox
from swe_rl.prompts import row


def distinct(rng: random.Random, count: int, held_out: bool) -> list[Bug]:
    by_key: dict[str, Bug] = {}
    while len(by_key) < count:
        bug = draw(rng, held_out)
        by_key.setdefault(bug.instance().instance_id, bug)
    return list(by_key.values())


def write(folder: Path, seed: int, tasks: int, evaluated: int) -> None:
    """Writes the files; raises OSError if the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = {
        "train": distinct(random.Random(f"{seed} tasks"), tasks, held_out=False),
        "heldout": distinct(random.Random("held out"), evaluated, held_out=True),
    }
    for name, bugs in sides.items():
        write_text(folder / f"{name}.jsonl", "".join(json.dumps(row(bug.instance())) + "\n" for bug in bugs))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bash lab/run.sh tiny_models.swe.make_tasks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="seed of the training tasks")
    parser.add_argument("--tasks", type=int, default=1000, help="number of training tasks")
    parser.add_argument("--evaluated", type=int, default=80, help="number of held-out tasks")
    args = parser.parse_args()
    try:
        require_sandbox()
        write(args.folder, args.seed, args.tasks, args.evaluated)
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
