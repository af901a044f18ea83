"""Questions that are put to a version right behind its switch, while the next one trains: a part of them each time, and
all where one is wrong that was right. A version that has fallen is gone back from, by itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from slime.gate.answers import VERSIONS, AnswerCheck, Tries, share_of
from slime.gate.history import GateHistory
from slime.gate.interruptible import in_thread
from slime.gate.likelihood import LIKED, QUESTION, key, purpose
from slime.gate.limits import too_few_right
from slime.gate.sampled import Tried, is_right
from slime.types import Sample
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

Answers = dict[str, Tried] | None

MOST_SKIPPED = 2
"""Times in a row that candidates may end it."""


class Audit:
    """One at a time; the engine answers in a thread, all else happens where `collect` is called."""

    def __init__(self, args: Arguments, history: GateHistory, answers: AnswerCheck) -> None:
        self.args, self.history, self.answers = args, history, answers
        self.questions: list[Sample] = []
        self.liked: list[Sample] = []
        self.version = -1
        self.at = self.skipped = 0
        self.engines: Sequence[Tries] = ()
        self.running: Future[Answers] | None = None

    def begin(
        self, samples: Sequence[Sample], live: WeightVersion, engines: Sequence[Tries], whole: bool = False
    ) -> None:
        """Puts the next questions to the version that is live, where not all of them were put to it before; `whole`: all
        that were not. And prompts of liked answers, where the next candidate is to answer them."""
        if self.busy:
            return  # of an earlier version; the next one has its turn
        self.running, self.version, self.engines = None, live.version, engines
        self.questions = [one for one in samples if purpose(one) == QUESTION]
        if all(key(one) in self.answers.candidate_answers for one in self.questions):
            self.history.good = live.version  # it was examined with all of them, or there are none
            if self.questions:
                self.history.note_right(share_of(self.questions, self.answers.candidate_answers)["right"])
            return
        due = self.history.unanswered + 1 >= self.args.gate_answers_every
        self.liked = [one for one in samples if purpose(one) == LIKED] if due else []
        if engines and self.args.gate_questions:
            check = AnswerCheck(self.args, self.history, lambda: None)
            check.live_answers = dict(self.answers.live_answers)
            part, liked = self.next_part(whole), self.liked
            self.running = in_thread(
                lambda: put(check, engines, live, part, self.questions, liked), "questions"
            )

    def next_part(self, whole: bool = False) -> list[Sample]:
        """All of them while it is not known how many were ever right, and while some were lost."""
        count = len(self.questions)
        if whole or self.history.closer or self.history.questions != count:
            return self.questions
        size = -(-count // VERSIONS)
        found = [self.questions[(self.at + i) % count] for i in range(size)]
        self.at += size
        return found

    @property
    def busy(self) -> bool:
        """Whether the live version is being put questions."""
        return self.running is not None and not self.running.done()

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
        """Returns why the live version must go; None before that is known, and if it may stay."""
        if self.running is None or not self.running.done():
            return None
        answers, self.running, self.skipped = self.running.result(), None, 0
        if answers is None:
            return None
        self.answers.live_answers |= answers
        self.answers.liked = [one for one in self.liked if key(one) in answers]
        if any(key(one) not in answers for one in self.questions):  # none of those that were put was worse
            self.history.good = self.version
            return None
        found = share_of(self.questions, answers)
        reason = too_few_right(found, self.history.best_right(found), self.args)
        if reason is None:
            self.history.good = self.version
            self.history.note_right(found["right"])
        else:
            self.history.suspect = True
            logger.warning("version %d has fallen behind its switch: %s", self.version, reason)
        return reason

    def forget(self) -> None:
        """Another version goes live by an order."""
        self.running = None


def wrong_now(check: AnswerCheck, question: Sample, answer: Tried) -> bool:
    """Whether an answer is wrong, and the one before it was right or is not known."""
    wanted, before = str(question.label), check.live_answers.get(key(question))
    return not is_right(answer.text, wanted) and (before is None or is_right(before.text, wanted))


def put(
    check: AnswerCheck,
    engines: Sequence[Tries],
    live: WeightVersion,
    part: list[Sample],
    everything: list[Sample],
    liked: list[Sample],
) -> Answers:
    """Answers to a part of the questions, or to all where one of the part is worse than it was; and to liked prompts."""
    answers = check.tried(engines, live, part + liked)
    if answers is None:
        return None
    if not any(wrong_now(check, one, answers[key(one)]) for one in part):
        return answers
    rest = check.tried(engines, live, [one for one in everything if key(one) not in answers])
    return None if rest is None else answers | rest
