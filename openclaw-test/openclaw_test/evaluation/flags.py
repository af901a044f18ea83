"""Flags of `evaluate.py`; `python -m openclaw_test.evaluation.flags WORD...` rejects invalid ones before anything is
installed. It needs no packages.

Exit status: 0; 2 for a refusal, with one line on standard error; 10 if --help was answered.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

TASKS = ("conversation", "wishes", "coding", "tool-use")
BACKENDS = ("embedded",)
ANSWERED = 10


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def read_flags(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the flags. Raises SystemExit with status 2 for invalid flags, with 0 after --help."""
    parser = Parser(prog="run_eval.sh", description="Evaluates a model.", allow_abbrev=False)
    parser.add_argument("--model-path", type=model, required=True, help="folder of the model")
    parser.add_argument(
        "--compare",
        type=model,
        action="append",
        default=[],
        help="another folder to compare with, such as the model before training",
    )
    parser.add_argument("--eval-tasks", type=tasks, default=list(TASKS), help=f"of {', '.join(TASKS)}")
    parser.add_argument(
        "--dataset", type=file, help="problems of the conversation task (default: 36 built-in ones)"
    )
    parser.add_argument("--num-problems", type=count, default=36)
    parser.add_argument("--backend", choices=BACKENDS, default="embedded")
    parser.add_argument(
        "--output", type=output, help="output path without extension; .md and .json are written"
    )
    return parser.parse_args(argv)


def model(text: str) -> Path:
    if not (Path(text) / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"{text} contains no config.json; give a Hugging Face folder")
    return Path(text)


def tasks(text: str) -> list[str]:
    names = [task.strip() for task in text.split(",") if task.strip()]
    if not names or not set(names) <= set(TASKS):
        raise argparse.ArgumentTypeError(f"{text}: choose from {', '.join(TASKS)}")
    return names


def file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number, 1 or more")
    return int(text)


def output(text: str) -> Path:
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {Path(text).parent}")
    return Path(text)


def main() -> int:
    try:
        read_flags()
    except SystemExit as end:
        return 2 if end.code else ANSWERED
    return 0


if __name__ == "__main__":
    sys.exit(main())
