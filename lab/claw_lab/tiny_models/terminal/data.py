"""Writes prompt files of chores: `bash lab/run.sh tiny_models.terminal.data OUT` writes train.jsonl and
heldout.jsonl."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from claw_lab.tiny_models.terminal.chores import Chore, chore
from slime.errors import ConfigError
from slime.sandbox import require_sandbox


def chores(count: int, seed: int, held_out: bool = False) -> list[Chore]:
    """Returns `count` chores; no two have the same request."""
    rng = random.Random(f"{seed} {held_out}")
    by_key: dict[str, Chore] = {}
    while len(by_key) < count:
        one = chore(rng, held_out)
        by_key.setdefault(one.instruction, one)
    return list(by_key.values())


def write(out: Path, train: int, held_out: int, seed: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", chores(train, seed)), ("heldout", chores(held_out, 0, held_out=True))):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(one.row()) + "\n" for one in rows))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bash lab/run.sh tiny_models.terminal.data", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the files")
    parser.add_argument("--train", type=int, default=1500, help="number of training chores")
    parser.add_argument(
        "--held-out", type=int, default=64, help="number of evaluation chores, always the same ones"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the training chores")
    args = parser.parse_args(words)
    try:
        require_sandbox()
        write(args.out, args.train, args.held_out, args.seed)
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
