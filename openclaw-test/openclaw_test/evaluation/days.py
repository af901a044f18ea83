"""Days of one person's work with programmatic checks, in the format of MetaClaw-Bench, for models of any size.

A day has rounds; a round has a task, a check, and the feedback if it fails. Checks are programs of their own that
read the reply and decide by their exit status, so no model judges. A rule applies from its day on without being
announced, until feedback explains it: the metric is the share of rounds whose *first* reply passes, day by day.

    python openclaw-test/openclaw_test/evaluation/days.py make DAYS.json --days 6 --rounds 8
    python openclaw-test/openclaw_test/evaluation/days.py play DAYS.json --url http://127.0.0.1:30000/v1

`make` writes days that tiny-claw can do. `play` plays a file and prints a line a day and one JSON line: the share of
rounds whose first reply passes. Its checks are run as they are, so play files that you trust. The file is JSON:

    {"days": [{"name": "day 1", "rounds": [{"task": "...", "check": ["program", "argument"], "feedback": "..."}]}]}

In a check `{python}` is this interpreter and `{days}` this program, whose `check` is that of the tiny days.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from openclaw_test.people.agents import Agent, AgentError, ServedModel
from openclaw_test.people.scripted_user import thanks
from openclaw_test.people.tastes import COMPLAINTS
from tiny_claw import detectors
from tiny_claw.dialogues import ask
from tiny_claw.problems import Problem, random_problem

CHECK_SECONDS = 60.0
RULES: dict[str, Callable[[Problem, str], bool]] = {
    "right": lambda problem, reply: detectors.is_right(problem, reply),
    "prose": lambda problem, reply: detectors.manner(reply) == "prose",
    "warm": lambda problem, reply: detectors.tone(reply) == "warm",
    "detailed": lambda problem, reply: detectors.is_detailed(problem, reply),
}
"""Rules that a person of the tiny days may apply to a reply."""
_SAID = {"right": "wrong", "prose": "formatted", "warm": "cold", "detailed": "short"}


class BadDays(ValueError):
    """A file without days, or a check that cannot be run; the message gives its position."""


@dataclass(frozen=True)
class Round:
    """A task, the program that checks its reply, and the feedback if it fails."""

    task: str
    check: tuple[str, ...]
    feedback: str

    def passes(self, reply: str) -> bool:
        """Returns whether the program exits with 0 (passed) or 1 (failed) for the reply on its standard input. Raises
        BadDays for any other status."""
        places = {"{python}": sys.executable, "{days}": __file__}
        command = [places.get(word, word) for word in self.check]
        try:
            done = subprocess.run(
                command, input=reply.encode(), capture_output=True, timeout=CHECK_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadDays(f"the check {' '.join(self.check)[:200]} cannot be run: {error}") from error
        if done.returncode not in (0, 1):
            errors = done.stderr.decode(errors="replace").strip()[-300:]
            raise BadDays(f"the check {' '.join(self.check)[:200]} failed with {done.returncode}: {errors}")
        return done.returncode == 0


@dataclass(frozen=True)
class Day:
    name: str
    rounds: tuple[Round, ...]


def read_days(file: Path) -> list[Day]:
    """Reads a file of days. Raises BadDays, OSError."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise BadDays(f"{file} is not JSON: {error}") from error
    days = content.get("days") if isinstance(content, dict) else None
    if not isinstance(days, list) or not days:
        raise BadDays(f'{file} contains no days: it begins with {{"days": [...]}}')
    return [_day(file, number, day) for number, day in enumerate(days, 1)]


def _day(file: Path, number: int, day: Any) -> Day:
    rounds = day.get("rounds") if isinstance(day, dict) else None
    if not isinstance(rounds, list) or not rounds:
        raise BadDays(f"{file}: day {number} has no rounds")
    parsed = []
    for at, one in enumerate(rounds, 1):
        known = isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("task", "feedback"))
        check = one.get("check") if known else None
        if not isinstance(check, list) or not check or not all(isinstance(word, str) for word in check):
            raise BadDays(
                f"{file}: round {at} of day {number} needs the texts task and feedback, and check, a program and its "
                "arguments"
            )
        parsed.append(Round(one["task"], tuple(check), one["feedback"]))
    return Day(str(day.get("name", f"day {number}")), tuple(parsed))


def play(days: Sequence[Day], agent: Agent, prefix: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yields one record a day: its name, number of rounds, how many passed at once, and how many only after the
    feedback.

    A round is a session: task, reply, and if it fails the feedback and one more reply; then thanks, or it ends.

    Raises:
        AgentError, BadDays.
    """
    rng = random.Random(f"days {seed}")
    for number, day in enumerate(days, 1):
        first = second = 0
        for at, one in enumerate(day.rounds, 1):
            session = f"{prefix}-{number}-{at}"
            passed = at_once = one.passes(agent.say(session, one.task))
            if not passed:
                passed = one.passes(agent.say(session, one.feedback))
            if passed:
                agent.say(session, thanks(rng))
            agent.end(session)
            first, second = first + at_once, second + (passed and not at_once)
        yield {"day": day.name, "rounds": len(day.rounds), "passed": first, "after_feedback": second}


def tiny_days(seed: int, days: int, rounds: int) -> dict[str, Any]:
    """Returns days that tiny-claw can do: right results in prose from the first day on, in a warm tone from the
    middle one on."""
    rng = random.Random(f"tiny days {seed}")
    all_days = []
    for number in range(days):
        rules = ["right", "prose"] + (["warm"] if number >= days // 2 > 0 else [])
        all_days.append(
            {"name": f"day {number + 1}", "rounds": [_tiny_round(rng, rules) for _ in range(rounds)]}
        )
    return {"days": all_days}


def _tiny_round(rng: random.Random, rules: Sequence[str]) -> dict[str, Any]:
    problem = random_problem(rng, "train")
    about = json.dumps({"answer": problem.answer, "equations": problem.equations})
    complaints = [rng.choice(COMPLAINTS[_SAID[rule]]) for rule in rules if rule != "right"]
    check = ["{python}", "{days}", "check", about, *rules]
    return {"task": ask(rng, problem), "check": check, "feedback": " ".join(complaints)}


def make(options: argparse.Namespace) -> int:
    options.file.write_text(
        json.dumps(tiny_days(options.seed, options.days, options.rounds), indent=1), "utf-8"
    )
    return 0


def check(options: argparse.Namespace) -> int:
    """Returns 0 if the reply on standard input satisfies all rules, else 1."""
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
    maker = commands.add_parser("make", help="write days of tasks that tiny-claw can solve")
    maker.add_argument("file", type=Path)
    maker.add_argument("--days", type=int, default=6)
    maker.add_argument("--rounds", type=int, default=8, help="rounds per day")
    maker.add_argument("--seed", type=int, default=0)
    maker.set_defaults(run=make)
    checker = commands.add_parser("check", help="check a reply from standard input against the rules")
    checker.add_argument("problem", help='JSON: {"answer": 3, "equations": ["1 + 2 = 3"]}')
    checker.add_argument("rules", nargs="+", choices=RULES)
    checker.set_defaults(run=check)
    player = commands.add_parser("play", help="play a file of days")
    player.add_argument("file", type=Path)
    player.add_argument("--url", default="http://127.0.0.1:30000/v1")
    player.add_argument("--seed", type=int, default=0, help="seed of the wording of thanks")
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
