"""Writes prompt files of small tasks: `bash lab/run.sh tiny_models.gui.data OUT` writes train.jsonl and
heldout.jsonl."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from claw_lab.tiny_models.gui.boards import Board, board
from claw_lab.tiny_models.gui.pages import Errand, errand

Made = TypeVar("Made")


def errands(count: int, seed: int, held_out: bool = False) -> list[Errand]:
    """Returns `count` tasks; no two have the same request on pages of the same theme."""
    return _distinct(errand, lambda one: f"{one.template[2]} {one.instruction}", count, seed, held_out)


def boards(count: int, seed: int, held_out: bool = False) -> list[Board]:
    """Returns `count` tasks; no two have the same board."""
    return _distinct(board, lambda one: one.name, count, seed, held_out)


def _distinct(
    make: Callable[[random.Random, bool], Made],
    name: Callable[[Made], str],
    count: int,
    seed: int,
    held_out: bool,
) -> list[Made]:
    rng = random.Random(f"{seed} {held_out}")
    by_key: dict[str, Made] = {}
    while len(by_key) < count:
        one = make(rng, held_out)
        by_key.setdefault(name(one), one)
    return list(by_key.values())


KINDS: dict[str, Callable[[int, int, bool], Sequence[Board | Errand]]] = {"pages": errands, "boards": boards}


def write(out: Path, train: int, held_out: int, seed: int, kind: str = "pages") -> None:
    out.mkdir(parents=True, exist_ok=True)
    made = KINDS[kind]
    for name, tasks in (("train", made(train, seed, False)), ("heldout", made(held_out, 0, True))):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(one.row()) + "\n" for one in tasks))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bash lab/run.sh tiny_models.gui.data", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the files")
    parser.add_argument(
        "--kind", choices=[*KINDS], default="pages", help="kind of tasks (default: %(default)s)"
    )
    parser.add_argument("--train", type=int, default=1500, help="number of training tasks")
    parser.add_argument(
        "--held-out", type=int, default=72, help="number of evaluation tasks, always the same ones"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the training tasks")
    args = parser.parse_args(words)
    try:
        write(args.out, args.train, args.held_out, args.seed, args.kind)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
