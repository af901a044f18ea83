"""Problems in the format of the evaluation's GSM8K file, and problems of our own in it.

    python openclaw-test/openclaw_test/people/gsm8k.py --count 36 --output GSM8K.json
        writes own problems, with their equations

A file is a JSON array, or JSON lines, of {"question", "ground_truth_answer"}; GSM8K's own {"question", "answer"} with
the result after "####" is read too. "equations", a list such as ["12+7=19"], is optional: with it a detector checks
whether all steps are kept; without it, only whether there are steps and they are right.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tiny_claw.problems import random_problem


class BadDataset(ValueError):
    """A file that is not a list of problems; the message names the entry."""


@dataclass(frozen=True)
class WordProblem:
    """A question with its result. `equations` is empty if the file has none."""

    question: str
    answer: Decimal
    equations: tuple[str, ...] = ()


def read_problems(path: Path, limit: int | None = None) -> list[WordProblem]:
    """Returns the first `limit` problems of a file (None: all). Raises BadDataset and OSError."""
    text = path.read_text(encoding="utf-8")
    try:
        entries = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except json.JSONDecodeError as error:
        raise BadDataset(f"{path} is neither a JSON array nor JSON lines: {error}") from error
    if not entries:
        raise BadDataset(f"{path} contains no problems")
    return [_problem(entry, f"{path}, entry {number}") for number, entry in enumerate(entries[:limit])]


def own_problems(count: int, seed: int) -> list[dict[str, Any]]:
    """Returns generated problems in the file's format."""
    rng = random.Random(f"people {seed}")
    problems = [random_problem(rng, "held-out") for _ in range(count)]
    return [
        {"question": p.text, "ground_truth_answer": str(p.answer), "equations": list(p.equations)}
        for p in problems
    ]


def _problem(entry: Any, where: str) -> WordProblem:
    if not isinstance(entry, dict) or not isinstance(entry.get("question"), str):
        raise BadDataset(f"{where} has no text 'question'")
    solution = entry.get("ground_truth_answer", entry.get("answer"))
    if solution is None:
        raise BadDataset(f"{where} has no 'ground_truth_answer'")
    try:
        answer = Decimal(str(solution).rpartition("####")[2].strip().replace(",", "").lstrip("$"))
    except InvalidOperation:
        raise BadDataset(f"{where}: the answer {str(solution)[:60]!r} is not a number") from None
    return WordProblem(entry["question"], answer, tuple(entry.get("equations", ())))


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes word problems of our own.")
    parser.add_argument("--count", type=int, default=36)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.write_text(json.dumps(own_problems(args.count, args.seed), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
