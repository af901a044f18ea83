"""Tries a judge on your own data: python -m openclaw.judge FILE.jsonl --backend rules

Each line has `response` and `next_state` (a text, or a list of chat messages), and may have `id`, `next_state_role`
(user or tool; default user) and `messages`, the conversation before the response. Prints a line `{"id", "score",
"hint", "hints", "votes"}` for each, in the same order. `-` reads from standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from claw_base.settings.command_line import parser_of
from claw_base.settings.declare import REQUIRED, flag
from openclaw.common.version import VERSION
from openclaw.errors import ConfigError
from openclaw.judge.backends.base import make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.score_lines import BadLine, LineScorer
from openclaw.judge.settings import add_flags, load_settings


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The file to score, and whether hints are requested too."""

    file: str = flag(REQUIRED, "JSON lines file; - for standard input", positional=True)
    hint: bool = flag(False, "also request hints; `hint` is the longest of `hints`")


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = parser_of(
        Lines,
        "python -m openclaw.judge",
        "Scores replies by what followed them: one JSON object a line in, one a line out.",
        VERSION,
        'A line: {"id": "1", "response": "42", "next_state": "Thanks!", "next_state_role": "user"}',
    )
    add_flags(parser.add_argument_group("judge", "Who judges, and how."), short=True)
    return parser


async def score_lines(args: argparse.Namespace, lines: TextIO) -> int:
    """Prints one score a line; invalid lines go to stderr with their number. Returns the number of invalid lines.
    Raises ConfigError."""
    settings = load_settings(args)
    metrics = JudgeMetrics(settings.judge_backend)
    backend = make_backend(settings, metrics)
    scorer = LineScorer(backend, settings, hint=bool(args.hint))
    waiting: deque[tuple[int, asyncio.Task[str]]] = deque()
    bad = number = 0
    try:
        while line := await asyncio.to_thread(lines.readline):
            number += 1
            if line.strip():
                waiting.append((number, asyncio.create_task(scorer.score(line, number))))
            while waiting and (waiting[0][1].done() or len(waiting) >= settings.judge_concurrency):
                bad += await _show(*waiting.popleft())
        while waiting:
            bad += await _show(*waiting.popleft())
    finally:
        await backend.close()
    return bad


async def _show(number: int, task: asyncio.Task[str]) -> int:
    """Prints the result of a line; returns 1 if the line is invalid."""
    try:
        print(await task, flush=True)
    except BadLine as error:
        print(f"line {number}: {error}", file=sys.stderr)
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 all lines scored, 1 some were not, 2 invalid configuration or file."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    args = build_parser().parse_args(argv)
    try:
        if args.file == "-":
            lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="replace")
            return 1 if asyncio.run(score_lines(args, lines)) else 0
        with open(args.file, encoding="utf-8-sig", errors="replace") as file:
            return 1 if asyncio.run(score_lines(args, file)) else 0
    except (ConfigError, OSError) as error:
        print(f"judge: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
