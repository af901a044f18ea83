"""Plays a folder in the format of MetaClaw-Bench through the real loop, day after day, and prints its scores.

    python -m openclaw_test.evaluation.metaclaw FOLDER --url http://127.0.0.1:30000/v1

A day is a session and its rounds are questions; the feedback on one precedes the next, so the loop can learn from it.
Days are played one after the other. Commands of the model and of the folder's checks run in the project's sandbox;
without one the program exits with an error, unless --allow-commands is given. Prints a line a day and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "base"))
sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "slime"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from openclaw_test.evaluation.metaclaw.playing import TOOLS, play
from openclaw_test.evaluation.metaclaw.reading import BadBench, read_bench
from openclaw_test.evaluation.metaclaw.scoring import Score, summary
from openclaw_test.evaluation.metaclaw.workplace import places
from openclaw_test.people.agents import AgentError, ToolModel
from slime.errors import SandboxError


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m openclaw_test.evaluation.metaclaw",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder with all_tests.json")
    parser.add_argument("--url", default="http://127.0.0.1:30000/v1", help="address of the server")
    parser.add_argument("--days", nargs="*", metavar="ID", help="play only these days (default: all)")
    parser.add_argument(
        "--tools",
        choices=("auto", "on", "off"),
        default="auto",
        help="offer tools (default: if the folder has any)",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=512, help="maximum tokens of each answer, default 512"
    )
    parser.add_argument("--no-history", action="store_true", help="omit turns before a day's first round")
    parser.add_argument("--no-train", action="store_true", help="do not store or train the turns")
    parser.add_argument(
        "--wait", type=float, default=0.0, help="seconds between two days, so that an update can go live"
    )
    parser.add_argument(
        "--allow-commands", action="store_true", help="without a sandbox, run commands as this user"
    )
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> int:
    """Plays the folder; returns the exit status. Raises AgentError, BadBench, SandboxError."""
    bench = read_bench(options.folder)
    known = [day.id for day in bench.days]
    if unknown := sorted(set(options.days or ()) - set(known)):
        raise BadBench(f"there is no day {unknown[0]}; there are {', '.join(known)}")
    days = [day for day in bench.days if not options.days or day.id in options.days]
    if options.no_history:
        days = [type(day)(day.id, day.rounds, ()) for day in days]
    open_place = places(options.allow_commands)
    key = os.environ.get("SGLANG_API_KEY", "")
    model = ToolModel(options.url, key, retries=3, max_tokens=options.max_tokens, train=not options.no_train)
    tools = model.takes(TOOLS) if options.tools == "auto" else options.tools == "on"
    scores: list[Score] = []
    lines: list[dict[str, Any]] = []
    for played in play(bench, days, model, open_place, tools, f"metaclaw-{os.getpid()}"):
        scores += played.scores
        line = {
            "day": played.day,
            **summary(played.scores),
            "calls": played.calls,
            "shortened": played.shortened,
        }
        lines.append({**line, "version": model.version()})
        print(
            f"{played.day}: {line['score']:.2f} of {line['rounds']} rounds, {played.calls} calls of tools",
            flush=True,
        )
        if played.day != days[-1].id:
            time.sleep(options.wait)
    print(json.dumps({"name": bench.name, "tools": tools, **summary(scores), "days": lines}))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if the folder, the server or the sandbox cannot be used."""
    try:
        return run(parse(argv))
    except (AgentError, BadBench, SandboxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
