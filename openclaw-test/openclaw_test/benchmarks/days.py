"""Days of one person's work, each round checked by a program: the shape of MetaClaw-Bench, for models of any size.

`days.py make DAYS.json --days 6 --rounds 8` writes days that tiny-claw can do; `days.py play DAYS.json --url
http://127.0.0.1:30000/v1` plays a file and prints a line a day and one JSON line: the share of rounds whose first reply
passes. Its checks are run as they are, so play files that you trust. `days.py check` is the program of the tiny days."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "openclaw-test")]

from openclaw_test.evaluation.days import RULES, BadDays, play, read_days, tiny_days  # noqa: E402
from openclaw_test.people.agents import AgentError, ServedModel  # noqa: E402


def make(options: argparse.Namespace) -> int:
    options.file.write_text(
        json.dumps(tiny_days(options.seed, options.days, options.rounds), indent=1), "utf-8"
    )
    return 0


def check(options: argparse.Namespace) -> int:
    """0: the reply on standard input is as all the rules want it; 1: it is not."""
    about = json.loads(options.problem)
    problem = cast("Any", SimpleNamespace(answer=about["answer"], equations=tuple(about["equations"])))
    reply = sys.stdin.read()
    return 0 if all(RULES[rule](problem, reply) for rule in options.rules) else 1


def run(options: argparse.Namespace) -> int:
    key = os.environ.get("SGLANG_API_KEY", "")
    agent = ServedModel(options.url, key, retries=3)
    lines = []
    for line in play(read_days(options.file), agent, f"days-{os.getpid()}", options.seed):
        lines.append(line)
        print(
            f"{line['day']}: {line['passed']} of {line['rounds']} at once, {line['after_feedback']} after feedback",
            flush=True,
        )
    rounds, passed = sum(line["rounds"] for line in lines), sum(line["passed"] for line in lines)
    print(json.dumps({"rounds": rounds, "passed_at_once": round(passed / rounds, 4), "days": lines}))
    return 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make", help="write days that tiny-claw can do")
    maker.add_argument("file", type=Path)
    maker.add_argument("--days", type=int, default=6)
    maker.add_argument("--rounds", type=int, default=8, help="a day")
    maker.add_argument("--seed", type=int, default=0)
    maker.set_defaults(run=make)
    checker = commands.add_parser("check", help="whether the reply on standard input is as the rules want it")
    checker.add_argument("problem", help='JSON: {"answer": 3, "equations": ["1 + 2 = 3"]}')
    checker.add_argument("rules", nargs="+", choices=RULES)
    checker.set_defaults(run=check)
    player = commands.add_parser("play", help="play a file")
    player.add_argument("file", type=Path)
    player.add_argument("--url", default="http://127.0.0.1:30000/v1")
    player.add_argument("--seed", type=int, default=0, help="of the words of thanks")
    player.set_defaults(run=run)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        return int(options.run(options))
    except (AgentError, BadDays, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
