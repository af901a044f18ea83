"""A scripted user: brings homework, complains until a reply matches the user's preference, thanks.

Pure: no HTTP, no clock. A session is a state machine over replies:

    user = ScriptedUser(seed=7)
    session = user.session()
    message = session.opening
    while message is not None:
        message = session.next_message(send(message))
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from openclaw_test.people import tastes
from openclaw_test.people.tastes import STUDENT, Flaws, Taste
from tiny_claw import detectors, wordings
from tiny_claw.detectors import Verdict
from tiny_claw.dialogues import ask
from tiny_claw.problems import Problem, random_problem
from tiny_claw.problems import Split as ProblemSplit


@dataclass(frozen=True)
class Attempt:
    """One reply to a problem: the detectors' results, and the flaws complained about (none: thanked)."""

    problem: Problem
    number: int
    verdict: Verdict
    flaws: Flaws

    @property
    def satisfies(self) -> bool:
        return not self.flaws


def find_flaw(problem: Problem, reply: str) -> str | None:
    """Returns the most important flaw of a reply for the student: its look, then its result, then missing steps."""
    return next(iter(STUDENT.flaws(problem, reply)), None)


def complaint(rng: random.Random, flaw: str, used: Collection[str] = ()) -> str:
    """Returns a complaint about the flaw, in a wording that is not in `used` if possible."""
    return tastes.complaint(rng, (flaw,), used)


def thanks(rng: random.Random) -> str:
    return rng.choice(wordings.THANKS["train"] + wordings.THANKS["test"])


class Session:
    """One conversation; `attempts` holds all replies judged so far."""

    def __init__(
        self,
        rng: random.Random,
        taste: Taste,
        split: ProblemSplit,
        max_tries: int,
        continue_probability: float,
    ) -> None:
        self._rng = rng
        self._taste = taste
        self._split: ProblemSplit = split
        self._max_tries = max_tries
        self._continue_probability = continue_probability
        self._tries = 0
        self._thanked = False
        self._complaints: set[str] = set()
        self.attempts: list[Attempt] = []
        self.problem, self.opening = self._new_problem()

    @property
    def satisfied_at_once(self) -> bool | None:
        """Returns whether the session's first reply satisfied the preference; None before it."""
        return self.attempts[0].satisfies if self.attempts else None

    def next_message(self, reply: str) -> str | None:
        """Returns the message after `reply`; None when the session is over."""
        if self._thanked:
            return self._after_thanks()
        flaws = self._taste.flaws(self.problem, reply)
        self._tries += 1
        self.attempts.append(Attempt(self.problem, self._tries, detectors.judge(self.problem, reply), flaws))
        if not flaws:
            self._thanked = True
            return thanks(self._rng)
        return self._complain(flaws) if self._tries < self._max_tries else None

    def _after_thanks(self) -> str | None:
        if self._rng.random() >= self._continue_probability:
            return None
        self._thanked, self._tries = False, 0
        self.problem, text = self._new_problem()
        return text

    def _complain(self, flaws: Flaws) -> str:
        parts = [complaint(self._rng, flaw, self._complaints) for flaw in flaws]
        self._complaints.update(parts)
        return " ".join(parts)

    def _new_problem(self) -> tuple[Problem, str]:
        problem = random_problem(self._rng, self._split)
        return problem, ask(self._rng, problem)


class ScriptedUser:
    """A person, by default the student, whose sessions are drawn from `seed`. `max_tries`: replies to a problem
    before giving up; `continue_probability`: of one more problem after thanks; `split`: which problems to bring."""

    def __init__(
        self,
        seed: int,
        max_tries: int = 3,
        continue_probability: float = 0.2,
        split: ProblemSplit = "train",
        taste: Taste = STUDENT,
    ) -> None:
        if max_tries < 1 or not 0 <= continue_probability < 1:
            raise ValueError("max_tries must be 1 or more and continue_probability in [0, 1)")
        name = "user" if taste is STUDENT else taste.name
        self._rng = random.Random(f"scripted {name} {seed}")
        self._taste = taste
        self._max_tries = max_tries
        self._continue_probability = continue_probability
        self._split: ProblemSplit = split

    def session(self) -> Session:
        """Returns the next session; it has its own random stream, so sessions can run concurrently."""
        rng = random.Random(self._rng.getrandbits(64))
        return Session(rng, self._taste, self._split, self._max_tries, self._continue_probability)
