"""People's preferences about replies, and their complaints.

The tastes of OpenClaw-RL's users, put into what tiny-claw can do: the student wants natural prose with the steps and no
AI look, the teaching assistant comments that are detailed and specific, the teacher a friendly and patient tone. All
three read prose, so one model can please them all. It cannot please these too: the brief one wants one sentence of
prose, the counter the number alone, the cheerful lister a warm list. The dasher's preference, dashes in front of the
lines of a list, has no words in tiny-claw's training text. Who complains in own words wants what the student wants, in
wordings that neither tiny-claw nor the rules judge was made with; the judge misses some.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tiny_claw import detectors, wordings
from tiny_claw.problems import Problem

Flaws = tuple[str, ...]
"""The flaws of a reply, as keys of the complaints; empty: none."""

_NUMBERED = re.compile(r"^\s{0,8}\d{1,3}[.)]\s", re.MULTILINE)
_DASHED = re.compile(r"^\s{0,8}[-*•]\s", re.MULTILINE)

COMPLAINTS: dict[str, tuple[str, ...]] = {
    "formatted": wordings.MANNER_COMPLAINTS["prose"]["train"] + wordings.MANNER_COMPLAINTS["prose"]["test"],
    "wrong": wordings.WRONG_RESULT_COMPLAINTS["train"] + wordings.WRONG_RESULT_COMPLAINTS["test"],
    "lost steps": wordings.LOST_STEPS_COMPLAINTS["train"] + wordings.LOST_STEPS_COMPLAINTS["test"],
    "short": (
        "Please be more specific: explain each step in detail, in sentences.",
        "I need a detailed explanation in sentences, please.",
        "More details, please. Explain it thoroughly, in plain sentences.",
        "Please write it in plain sentences with all the details.",
        "I miss the details. Please explain everything carefully in sentences.",
        "The comments should be detailed and specific, in natural sentences.",
    ),
    "cold": (
        "That sounds too cold. Please be warm and friendly.",
        "Too dry. Please use a kind and encouraging tone.",
        "Please be more friendly. My pupils need a warm tone.",
        "This is not friendly enough, use kind words please.",
        "Please write it in a cheerful and patient way, this is too harsh.",
        "I want a friendlier tone. Encourage the student, please.",
    ),
    "unlisted": wordings.MANNER_COMPLAINTS["list"]["train"] + wordings.MANNER_COMPLAINTS["list"]["test"],
    "long": (
        "Make it brief, in plain prose, please.",
        "Keep the reply short, in ordinary prose.",
        "Plain prose, please. Keep the reply short.",
        "A short reply is enough. Use normal prose.",
        "Use normal prose. Not too long, please.",
        "A brief reply is enough, in plain sentences.",
        "Be brief, please. Use a paragraph instead of a list.",
    ),
    "not the number": wordings.MANNER_COMPLAINTS["bare"]["train"]
    + wordings.MANNER_COMPLAINTS["bare"]["test"],
    "no dashes": (
        "Use dashes.",
        "Please use dashes, not digits.",
        "Write the steps with dashes, not digits, please.",
        "Dashes, please, nothing else.",
        "No digits in front, use dashes.",
        "I want dashes before the steps.",
    ),
}

OWN_COMPLAINTS: dict[str, tuple[str, ...]] = {
    "own words": (
        "Could you drop the stars and the numbering?",
        "It reads like a manual. Just tell me.",
        "Nobody in my class writes like this.",
        "Can I get that as one flowing paragraph?",
        "Less structure, please. Only sentences.",
        "Please lose the markdown.",
        "I'd rather have it told than listed.",
        "Write it the way I would say it.",
        "The layout gives it away. Make it plain.",
        "That is a slide and not an answer.",
    ),
}
"""Complaints whose wordings were not used to build anything. The rules judge does not know all of them."""


@dataclass(frozen=True)
class Taste:
    """One person's preference. All people want the right result, and all steps unless they want the number alone.

    Attributes:
        manner: the requested manner of replies.
        missing: the flaws of a reply's manners, given problem and reply; complaints mention them first.
        no_steps: the flaw of a reply without all steps.
    """

    name: str
    manner: detectors.Manner
    missing: Callable[[Problem, str], Flaws]
    no_steps: str = "lost steps"

    def flaws(self, problem: Problem, reply: str) -> Flaws:
        """Returns the person's complaints about a reply; empty if the person is satisfied."""
        missing = self.missing(problem, reply)
        if missing:
            return missing
        verdict = detectors.judge(problem, reply)
        complete = verdict.steps_kept or self.manner == "bare"
        if verdict.right and complete and verdict.manner == self.manner:
            return ()
        sound = all(equation.holds for equation in detectors.equations(reply))
        return (self.no_steps,) if verdict.right and sound else ("wrong",)

    def is_content(self, problem: Problem, reply: str) -> bool:
        return not self.flaws(problem, reply)


def complaint(rng: random.Random, flaws: Flaws, used: Collection[str] = ()) -> str:
    """Returns known wordings for each flaw, joined, preferably not in `used`."""
    parts = []
    for flaw in flaws:
        known = OWN_COMPLAINTS.get(flaw) or COMPLAINTS[flaw]
        parts.append(rng.choice([text for text in known if text not in used] or known))
    return " ".join(parts)


def has_dashes(reply: str) -> bool:
    """Returns whether lines begin with a dash or a bullet, and none with a number."""
    text = detectors.visible(reply)
    return _DASHED.search(text) is not None and _NUMBERED.search(text) is None


def _formatted(problem: Problem, reply: str) -> Flaws:
    return ("formatted",) if detectors.manner(reply) == "list" else ()


def _formatted_in_own_words(problem: Problem, reply: str) -> Flaws:
    return ("own words",) if detectors.manner(reply) == "list" else ()


def _not_detailed(problem: Problem, reply: str) -> Flaws:
    if detectors.manner(reply) == "prose" and not detectors.is_detailed(problem, reply):
        return ("short",)
    return _formatted(problem, reply)


def _cold(reply: str) -> Flaws:
    return () if detectors.tone(reply) == "warm" else ("cold",)


def _not_warm(problem: Problem, reply: str) -> Flaws:
    return _formatted(problem, reply) + _cold(reply)


def _not_a_warm_list(problem: Problem, reply: str) -> Flaws:
    unlisted: Flaws = () if detectors.has_list(reply) else ("unlisted",)
    return unlisted + _cold(reply)


def _not_brief(problem: Problem, reply: str) -> Flaws:
    return ("long",) if detectors.manner(reply) == "list" or detectors.is_detailed(problem, reply) else ()


def _not_the_number(problem: Problem, reply: str) -> Flaws:
    return () if detectors.manner(reply) == "bare" else ("not the number",)


def _not_dashed(problem: Problem, reply: str) -> Flaws:
    return () if has_dashes(reply) else ("no dashes",)


STUDENT = Taste("student", "prose", _formatted)
ASSISTANT = Taste("TA", "prose", _not_detailed)
TEACHER = Taste("teacher", "prose", _not_warm)
DASHER = Taste("dasher", "list", _not_dashed)
OWN_WORDS = Taste("own words", "prose", _formatted_in_own_words)
CHEERFUL_LISTER = Taste("cheerful lister", "list", _not_a_warm_list, "unlisted")
BRIEF = Taste("brief", "prose", _not_brief)
COUNTER = Taste("counter", "bare", _not_the_number)
OPPOSITES = (ASSISTANT, TEACHER, BRIEF, CHEERFUL_LISTER, COUNTER)
"""No reply pleases three of these people; the assistant's and the brief one's replies exclude each other."""
BY_NAME = {taste.name: taste for taste in (STUDENT, DASHER, OWN_WORDS, *OPPOSITES)}
