"""A user without feedback: one task after another, no thanks, no complaints. There is nothing to learn."""

from __future__ import annotations

import random

from openclaw_test.people.tastes import STUDENT
from tiny_claw.dialogues import ask
from tiny_claw.problems import random_problem

TASKS = 3
"""Tasks in a session."""


class NeutralSession:
    """A conversation that consists only of tasks."""

    def __init__(self, rng: random.Random) -> None:
        self._problems = [random_problem(rng, "train") for _ in range(TASKS)]
        self._tasks = [ask(rng, problem) for problem in self._problems]
        self._asked = 1
        self.opening = self._tasks[0]
        self.satisfied_at_once: bool | None = None

    def next_message(self, reply: str) -> str | None:
        """Returns the next task, whatever the reply; None after the last."""
        if self.satisfied_at_once is None:
            self.satisfied_at_once = STUDENT.is_content(self._problems[0], reply)
        self._asked += 1
        return self._tasks[self._asked - 1] if self._asked <= TASKS else None


class NeutralUser:
    """Draws sessions from `seed`."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"neutral {seed}")

    def session(self) -> NeutralSession:
        """Returns the next session; it has its own random stream."""
        return NeutralSession(random.Random(self._rng.getrandbits(64)))
