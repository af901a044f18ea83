"""Prompt files of errands: `python -m gui_rl.tiny.data OUT` writes train.jsonl and heldout.jsonl."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from gui_rl.tiny.pages import Errand, errand


def errands(count: int, seed: int, held_out: bool = False) -> list[Errand]:
    """`count` tasks of which no two are asked for in the same words on pages of the same theme."""
    rng = random.Random(f"{seed} {held_out}")
    found: dict[str, Errand] = {}
    while len(found) < count:
        one = errand(rng, held_out)
        found.setdefault(f"{one.template[2]} {one.instruction}", one)
    return list(found.values())


def write(out: Path, train: int, held_out: int, seed: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", errands(train, seed)), ("heldout", errands(held_out, 0, held_out=True))):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(one.row()) + "\n" for one in rows))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gui_rl.tiny.data", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the files")
    parser.add_argument("--train", type=int, default=1500, help="tasks to train on")
    parser.add_argument("--held-out", type=int, default=72, help="tasks to evaluate on; always the same")
    parser.add_argument("--seed", type=int, default=0, help="of those to train on")
    said = parser.parse_args(words)
    try:
        write(said.out, said.train, said.held_out, said.seed)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
