"""Questions that are put to a version right behind its switch, while the next one trains: a part of them each time, and
all where one is wrong that was right. A version that has fallen is gone back from, by itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from slime.gate.answers import AnswerCheck, Tries, label
from slime.gate.history import GateHistory
from slime.gate.likelihood import QUESTION, key, purpose
from slime.gate.limits import too_few_right
from slime.gate.patience import in_thread
from slime.gate.sampled import Tried, is_right, share_right
from slime.types import Sample
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.arguments import Arguments

logger = logging.getLogger(__name__)

Answers = dict[str, Tried] | None

VERSIONS = 4
"""So many versions in a row are put all questions."""
MOST_SKIPPED = 2
"""Times in a row that candidates may end it."""


class Audit:
    """One at a time; the engine answers in a thread, all else happens where `collect` is called."""

    def __init__(self, args: Arguments, history: GateHistory, answers: AnswerCheck) -> None:
        self.args, self.history, self.answers = args, history, answers
        self.questions: list[Sample] = []
        self.version = -1
        self.at = self.skipped = 0
        self.engines: Sequence[Tries] = ()
        self.running: Future[Answers] | None = None

    def begin(self, samples: Sequence[Sample], live: WeightVersion, engines: Sequence[Tries]) -> None:
        """Puts the next questions to the version that is live, where not all of them were put to it before."""
        if self.running is not None and not self.running.done():
            return  # of an earlier version; the next one has its turn
        self.running, self.version, self.engines = None, live.version, engines
        self.questions = [one for one in samples if purpose(one) == QUESTION]
        if all(key(one) in self.answers.says for one in self.questions):
            self.history.good = live.version  # it was examined with all of them, or there are none
            return
        if engines and self.args.gate_questions:
            check = AnswerCheck(self.args, self.history, lambda: None)
            check.said = dict(self.answers.said)
            part = self.next_part()
            self.running = in_thread(lambda: put(check, engines, live, part, self.questions), "questions")

    def next_part(self) -> list[Sample]:
        """All of them while it is not known how many were ever right."""
        count = len(self.questions)
        if self.history.questions != count:
            return self.questions
        size = -(-count // VERSIONS)
        found = [self.questions[(self.at + i) % count] for i in range(size)]
        self.at += size
        return found

    def make_way(self) -> None:
        """A candidate is to answer on the engine that is being asked: it goes first, a few times in a row."""
        if self.running is None or self.running.done() or self.history.questions is None:
            return
        if self.skipped == MOST_SKIPPED:
            self.running.result()
            return
        for engine in self.engines:
            engine.discard()
        self.running, self.skipped = None, self.skipped + 1

    def wait_for_first(self) -> None:
        """Returns when it is known how many questions were ever right, where that is being found out."""
        if self.running is not None and self.history.questions is None:
            self.running.result()

    def collect(self) -> str | None:
        """Why the live version must go, once that is known; None before, and where it may stay."""
        if self.running is None or not self.running.done():
            return None
        answers, self.running, self.skipped = self.running.result(), None, 0
        if answers is None:
            return None
        self.answers.said |= answers
        if len(answers) < len(self.questions):  # none of them was worse
            self.history.good = self.version
            return None
        found = share_right([answers[key(one)] for one in self.questions], list(map(label, self.questions)))
        reason = too_few_right(found, self.history.best_right(found), self.args)
        if reason is None:
            self.history.good = self.version
        else:
            logger.warning("version %d has fallen behind its switch: %s", self.version, reason)
        return reason

    def forget(self) -> None:
        """Another version goes live by an order."""
        self.running = None


def wrong_now(check: AnswerCheck, question: Sample, answer: Tried) -> bool:
    """Whether an answer is wrong, and the one before it was right or is not known."""
    wanted, before = str(question.label), check.said.get(key(question))
    return not is_right(answer.text, wanted) and (before is None or is_right(before.text, wanted))


def put(
    check: AnswerCheck,
    engines: Sequence[Tries],
    live: WeightVersion,
    part: list[Sample],
    everything: list[Sample],
) -> Answers:
    """Answers to a part of the questions, or to all where one of the part is worse than it was."""
    answers = check.tried(engines, live, part)
    if answers is None:
        return None
    if not any(wrong_now(check, one, answers[key(one)]) for one in part):
        return answers
    rest = check.tried(engines, live, [one for one in everything if key(one) not in answers])
    return None if rest is None else answers | rest
