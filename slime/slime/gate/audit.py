"""Tests a version on questions after its switch, while the next one trains.

A part of the questions is asked each time, and all of them if a previously correct answer is wrong. A version
that has become worse is rolled back automatically.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from slime.gate.answers import VERSIONS, AnswerCheck, right_answers, share_of
from slime.gate.history import GateHistory
from slime.gate.interruptible import LOOK_SECONDS, Tries, in_thread
from slime.gate.likelihood import LIKED, QUESTION, WISH, key, lasting, purpose
from slime.gate.limits import lost_more, too_few_right
from slime.gate.paired import SPLIT
from slime.gate.sampled import Tried, is_right
from slime.gate.wishes import outcomes, unknown_facts
from slime.types import Sample
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

Answers = dict[str, Tried] | None

MOST_SKIPPED = 2
"""Maximum consecutive interruptions by candidates."""
AT_ONCE = 16
"""Number of pool facts per call, which limits how long a candidate waits."""


class Audit:
    """Runs one audit at a time; the engine answers in a thread, everything else happens in `collect`."""

    def __init__(self, args: Arguments, history: GateHistory, answers: AnswerCheck) -> None:
        self.args, self.history, self.answers = args, history, answers
        self.questions: list[Sample] = []
        self.liked: list[Sample] = []
        self.wishes: list[Sample] = []
        self.version = -1
        self.at = self.skipped = 0
        self.engines: Sequence[Tries] = ()
        self.running: Future[Answers] | None = None
        self.check: AnswerCheck | None = None
        self.learning: threading.Event | None = None

    def begin(
        self, samples: Sequence[Sample], live: WeightVersion, engines: Sequence[Tries], whole: bool = False
    ) -> None:
        """Asks the live version questions that it has not answered yet: the next ones, or all if `whole`.

        Also sends prompts of liked answers, if the next candidate will be asked them.
        """
        self.note_better(samples)
        self.put_questions(samples, live, engines, whole)
        self.learn_facts(samples, live, engines)

    def put_questions(
        self, samples: Sequence[Sample], live: WeightVersion, engines: Sequence[Tries], whole: bool
    ) -> None:
        """Like `begin`, without the pool of facts. Includes requests, if it is unknown which were ever
        obeyed."""
        if self.busy:
            return  # of an earlier version; the next one follows
        self.running, self.version, self.engines = None, live.version, engines
        self.questions = [one for one in samples if purpose(one) == QUESTION]
        self.wishes = [one for one in samples if purpose(one) == WISH]
        known = self.history.reference.get(WISH, {})
        new = [] if all(lasting(one) in known for one in self.wishes) else self.wishes
        part, self.liked = [], []
        if all(key(one) in self.answers.candidate_answers for one in self.questions):
            self.history.good = live.version  # it was examined with all questions, or there are none
            if self.questions:
                self.history.note_right(share_of(self.questions, self.answers.candidate_answers)["right"])
            if not new:
                return
        else:
            due = self.history.unanswered + 1 >= self.args.gate_answers_every
            self.liked = [one for one in samples if purpose(one) == LIKED] if due else []
            part = self.next_part(whole)
        if engines and self.args.gate_questions:
            check = self.check = AnswerCheck(self.args, self.history, lambda: None)
            check.live_answers = dict(self.answers.live_answers)
            others = self.liked + list(new)
            self.running = in_thread(
                lambda: put(check, engines, live, part, self.questions, others), "questions"
            )

    def note_better(self, samples: Sequence[Sample]) -> None:
        """Makes a version the reference if it obeys significantly more requests."""
        wishes = [one for one in samples if purpose(one) == WISH]
        if wishes and all(key(one) in self.answers.candidate_answers for one in wishes):
            now = outcomes(wishes, self.answers.candidate_answers)
            self.history.note_better(WISH, now, SPLIT[WISH] * self.args.gate_false_alarms)

    def learn_facts(self, samples: Sequence[Sample], live: WeightVersion, engines: Sequence[Tries]) -> None:
        """Asks pool facts that were never asked, a few at a time, until a candidate needs the engine.

        Correct answers are the reference for later versions.
        """
        self.end_learning()
        facts = unknown_facts(self.answers, samples)
        if not facts or not engines:
            return
        ended = self.learning = threading.Event()
        check = AnswerCheck(self.args, self.history, lambda: None)

        def learn() -> None:
            for at in range(0, len(facts), AT_ONCE):
                while self.busy and not ended.wait(LOOK_SECONDS):
                    pass
                part = facts[at : at + AT_ONCE]
                answers = None if ended.is_set() else check.tried(engines, live, part)
                if answers is None:
                    return
                self.answers.first_answers = {**self.answers.first_answers, **answers}
                self.history.known = {**self.history.known, **right_answers(part, answers)}

        in_thread(learn, "facts")

    def end_learning(self) -> None:
        """Stops learning facts; the remaining ones are asked after the next version's switch."""
        if self.learning is not None:
            self.learning.set()
        self.learning = None

    def next_part(self, whole: bool = False) -> list[Sample]:
        """Returns the next questions; all if the best number of correct answers is unknown, or if some were
        lost."""
        count = len(self.questions)
        if whole or self.history.closer or self.history.questions != count:
            return self.questions
        size = -(-count // VERSIONS)
        part = [self.questions[(self.at + i) % count] for i in range(size)]
        self.at += size
        return part

    @property
    def busy(self) -> bool:
        """Returns whether the live version is being asked questions."""
        return self.running is not None and not self.running.done()

    def interrupt(self) -> None:
        """Interrupts the audit for a candidate that needs the same engine, up to a number of consecutive
        times."""
        self.end_learning()
        if self.running is None or self.running.done() or self.history.questions is None:
            return
        if self.skipped == MOST_SKIPPED:
            self.running.result()
            return
        if self.check is not None:
            self.check.given_up = True
        for engine in self.engines:
            engine.discard()
        self.running, self.skipped = None, self.skipped + 1

    def wait_for_first(self) -> None:
        """Waits until the best number of correct answers is known, if it is being determined."""
        if self.running is not None and self.history.questions is None:
            self.running.result()

    def collect(self) -> str | None:
        """Returns why the live version must be rolled back; None if unknown yet, or if it is good."""
        if self.running is None or not self.running.done():
            return None
        answers, self.running, self.skipped = self.running.result(), None, 0
        if answers is None:
            return None
        self.answers.live_answers |= answers
        self.answers.liked = [one for one in self.liked if key(one) in answers]
        self.history.compared_with(WISH, outcomes(self.wishes, answers))
        if not self.questions or any(key(one) not in answers for one in self.questions):
            # none of the asked questions was worse
            self.history.good = self.version
            return None
        share = share_of(self.questions, answers)
        reason = too_few_right(share, self.history.best_right(share), self.args)
        now = right_answers(self.questions, answers)
        before = self.history.compared_with(QUESTION, now)
        if reason is None:
            reason = lost_more("questions are answered incorrectly", before, now, QUESTION, self.args)
        if reason is None:
            self.history.note_better(QUESTION, now, SPLIT[QUESTION] * self.args.gate_false_alarms)
            self.history.good = self.version
            self.history.note_right(share["right"])
        else:
            self.history.suspect = True
            logger.warning("version %d became worse after its switch: %s", self.version, reason)
        return reason

    def forget(self) -> None:
        """Cancels the audit, because an order makes another version live."""
        self.end_learning()
        self.running = None


def wrong_now(check: AnswerCheck, question: Sample, answer: Tried) -> bool:
    """Returns whether an answer is wrong although the previous one was correct or is unknown."""
    expected, before = str(question.label), check.live_answers.get(key(question))
    return not is_right(answer.text, expected) and (before is None or is_right(before.text, expected))


def put(
    check: AnswerCheck,
    engines: Sequence[Tries],
    live: WeightVersion,
    part: list[Sample],
    everything: list[Sample],
    others: list[Sample],
) -> Answers:
    """Returns answers to a part of the questions, or to all if one of the part became worse; and to other
    prompts."""
    answers = check.tried(engines, live, part + others)
    if answers is None:
        return None
    if not any(wrong_now(check, one, answers[key(one)]) for one in part):
        return answers
    rest = check.tried(engines, live, [one for one in everything if key(one) not in answers])
    return None if rest is None else answers | rest
