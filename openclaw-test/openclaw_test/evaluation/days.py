"""Days of one person's work, each round checked by a program: the shape of MetaClaw-Bench, for models of any size.

A day has rounds, a round a task, a check and what the person says where it fails. Checks are programs of their own that
read the reply and decide by their exit status, so no model judges. What is right is right from its day on, and nobody
says so before a reply was wrong: what counts is the share of rounds whose *first* reply passes, day by day.

`make` writes days that a tiny model can do; `play` plays a file with any OpenAI-compatible address. The file is JSON:

    {"days": [{"name": "day 1", "rounds": [{"task": "...", "check": ["program", "argument"], "feedback": "..."}]}]}

In a check `{python}` is this interpreter and `{days}` the program with the checks of the tiny days.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openclaw_test.people.agents import Agent
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
"""What a person of the tiny days may want of a reply."""
_SAID = {"right": "wrong", "prose": "formatted", "warm": "cold", "detailed": "short"}
PROGRAM = Path(__file__).resolve().parents[1] / "benchmarks" / "days.py"


class BadDays(ValueError):
    """A file that holds no days, or a check that cannot be run; the message says where."""


@dataclass(frozen=True)
class Round:
    """A task, the program that checks its reply, and what is said where it fails."""

    task: str
    check: tuple[str, ...]
    feedback: str

    def passes(self, reply: str) -> bool:
        """Whether the program ends with 0 rather than 1 for the reply on its standard input. Raises BadDays where it does
        neither."""
        places = {"{python}": sys.executable, "{days}": str(PROGRAM)}
        command = [places.get(word, word) for word in self.check]
        try:
            done = subprocess.run(
                command, input=reply.encode(), capture_output=True, timeout=CHECK_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadDays(f"the check {' '.join(self.check)[:200]} cannot be run: {error}") from error
        if done.returncode not in (0, 1):
            said = done.stderr.decode(errors="replace").strip()[-300:]
            raise BadDays(f"the check {' '.join(self.check)[:200]} failed with {done.returncode}: {said}")
        return done.returncode == 0


@dataclass(frozen=True)
class Day:
    name: str
    rounds: tuple[Round, ...]


def read_days(file: Path) -> list[Day]:
    """Raises BadDays, OSError."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise BadDays(f"{file} is no JSON: {error}") from error
    days = found.get("days") if isinstance(found, dict) else None
    if not isinstance(days, list) or not days:
        raise BadDays(f'{file} holds no days: it begins with {{"days": [...]}}')
    return [_day(file, number, day) for number, day in enumerate(days, 1)]


def _day(file: Path, number: int, day: Any) -> Day:
    rounds = day.get("rounds") if isinstance(day, dict) else None
    if not isinstance(rounds, list) or not rounds:
        raise BadDays(f"{file}: day {number} has no rounds")
    found = []
    for at, one in enumerate(rounds, 1):
        known = isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("task", "feedback"))
        check = one.get("check") if known else None
        if not isinstance(check, list) or not check or not all(isinstance(word, str) for word in check):
            raise BadDays(
                f"{file}: round {at} of day {number} needs the texts task and feedback, and check, a program and its "
                "arguments"
            )
        found.append(Round(one["task"], tuple(check), one["feedback"]))
    return Day(str(day.get("name", f"day {number}")), tuple(found))


def play(days: Sequence[Day], agent: Agent, prefix: str, seed: int) -> Iterator[dict[str, Any]]:
    """One line a day: its name, rounds, how many passed at once, and how many only after the feedback.

    A round is a session: task, reply, and where it fails the feedback and one more reply; then thanks, or it ends.

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
    """Days that tiny-claw can do: right results in prose from the first day on, warm from the middle one on."""
    rng = random.Random(f"tiny days {seed}")
    found = []
    for number in range(days):
        wanted = ["right", "prose"] + (["warm"] if number >= days // 2 > 0 else [])
        found.append(
            {"name": f"day {number + 1}", "rounds": [_tiny_round(rng, wanted) for _ in range(rounds)]}
        )
    return {"days": found}


def _tiny_round(rng: random.Random, wanted: Sequence[str]) -> dict[str, Any]:
    problem = random_problem(rng, "train")
    about = json.dumps({"answer": problem.answer, "equations": problem.equations})
    said = [rng.choice(COMPLAINTS[_SAID[rule]]) for rule in wanted if rule != "right"]
    check = ["{python}", "{days}", "check", about, *wanted]
    return {"task": ask(rng, problem), "check": check, "feedback": " ".join(said)}
