"""Writes the tasks of a run on a laptop: `bash lab/run.sh tiny_models.toolcall.make_tasks FOLDER [--seed 0]`.

train.jsonl      sums and products, two in five of them of one digit
heldout.jsonl    long sums, products and differences that no training text asks; differences come in no task of RL
by_heart.jsonl   of one digit, which the model knows without a tool
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from claw_lab.tiny_models.toolcall.problems import (
    HELD_OUT_DIGITS,
    TRAINED,
    TRAINED_DIGITS,
    UNSEEN,
    Problem,
    asked,
    long_problem,
    short_problem,
)

BY_HEART = 0.4


def train(rng: random.Random, count: int) -> Iterator[Problem]:
    for _ in range(count):
        operation = rng.choice(TRAINED)
        short = rng.random() < BY_HEART
        yield (
            short_problem(rng, operation)
            if short
            else long_problem(rng, operation, rng.choice(TRAINED_DIGITS))
        )


def held_out(rng: random.Random, count: int) -> list[Problem]:
    """Returns different problems, equally many of each operation."""
    by_text: dict[str, Problem] = {}
    while len(by_text) < count:
        operation = (*TRAINED, UNSEEN)[len(by_text) % 3]
        problem = long_problem(rng, operation, rng.choice(HELD_OUT_DIGITS), held_out=True)
        by_text.setdefault(problem.text, problem)
    return list(by_text.values())


def by_heart(rng: random.Random, count: int) -> list[Problem]:
    """Returns different problems of the operations that RL trains."""
    by_text: dict[str, Problem] = {}
    while len(by_text) < count:
        problem = short_problem(rng, TRAINED[len(by_text) % 2])
        by_text.setdefault(problem.text, problem)
    return list(by_text.values())


def row(rng: random.Random, problem: Problem) -> dict[str, Any]:
    about = {"task_id": problem.text, "operation": problem.operation}
    return {"prompt": asked(rng, problem), "label": str(problem.result), "metadata": about}


def write(folder: Path, seed: int, tasks: int, evaluated: int) -> None:
    """Writes the files; raises OSError if the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(f"{seed} tasks")
    fixed = random.Random("held out")  # independent of the seed
    files: dict[str, Iterable[Problem]] = {
        "train": train(rng, tasks),
        "heldout": held_out(fixed, evaluated),
        "by_heart": by_heart(fixed, evaluated // 3),
    }
    for name, problems in files.items():
        lines = [json.dumps(row(rng if name == "train" else fixed, one)) + "\n" for one in problems]
        write_text(folder / f"{name}.jsonl", "".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=4000, help="number of training tasks")
    parser.add_argument("--evaluated", type=int, default=120, help="number of held-out tasks")
    args = parser.parse_args()
    write(args.folder, args.seed, args.tasks, args.evaluated)


if __name__ == "__main__":
    main()
