"""A user with a habitual preference who occasionally asks for something else: a list.

Otherwise the same as the student. In one session of `EVERY` the question ends with a wish for a list, and a reply
without one gets a complaint that asks for one. Learning must neither mistake such a request for the habit nor forget
how to obey it.
"""

from __future__ import annotations

import random

from openclaw_test.people.scripted_user import ScriptedUser, Session
from openclaw_test.people.tastes import Taste
from openclaw_test.people.wishes import wordings
from tiny_claw import detectors
from tiny_claw.problems import Problem

EVERY = 5
NO_LIST = "no list"


def _no_list(problem: Problem, reply: str) -> tuple[str, ...]:
    return () if detectors.manner(reply) == "list" else (NO_LIST,)


LISTED = Taste("listed", "list", _no_list)
"""Whether a reply satisfies a request for a list."""


class ListSession(Session):
    """A conversation whose question asks for a list; one problem."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, LISTED, "train", max_tries=3, continue_probability=0.0)
        self._words = wordings()["search"]["list"]
        self.opening = f"{self.opening} {rng.choice(self._words['asked'])}"

    def _complain(self, flaws: tuple[str, ...]) -> str:
        if flaws != (NO_LIST,):
            return super()._complain(flaws)
        complaint = self._rng.choice(
            [text for text in self._words["complaint"] if text not in self._complaints]
        )
        self._complaints.add(complaint)
        return complaint


class OccasionalUser:
    """Draws sessions from `seed`; every `EVERY`th asks for a list."""

    def __init__(self, seed: int) -> None:
        self._usual = ScriptedUser(seed + 4801)
        self._rng = random.Random(f"occasional {seed}")
        self._sessions = self._rng.randrange(EVERY)
        self.listed: list[ListSession] = []
        """The sessions that asked for a list so far."""

    def session(self) -> Session:
        """Returns the next session; it has its own random stream."""
        self._sessions += 1
        if self._sessions % EVERY:
            return self._usual.session()
        self.listed.append(ListSession(random.Random(self._rng.getrandbits(64))))
        return self.listed[-1]

    @property
    def pleased(self) -> float | None:
        """Returns the share of list sessions whose first reply was right."""
        known = [session.satisfied_at_once for session in self.listed if session.attempts]
        return sum(map(bool, known)) / len(known) if known else None
