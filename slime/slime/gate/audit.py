"""All questions, put to a version right behind its switch, while the next one trains: what a few questions before it did
not show. A version that has fallen is gone back from, by itself."""

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
from slime.gate.sampled import Tried, share_right
from slime.types import Sample
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.arguments import Arguments

logger = logging.getLogger(__name__)

Answers = dict[str, Tried] | None


class Audit:
    """One at a time; the engine answers in a thread, all else happens where `collect` is called."""

    def __init__(self, args: Arguments, history: GateHistory, answers: AnswerCheck) -> None:
        self.args, self.history, self.answers = args, history, answers
        self.questions: list[Sample] = []
        self.version = -1
        self.running: Future[Answers] | None = None

    def begin(self, samples: Sequence[Sample], live: WeightVersion, engines: Sequence[Tries]) -> None:
        """Puts the questions to the version that is live, where not all of them were put to it before."""
        self.running, self.version = None, live.version
        self.questions = [one for one in samples if purpose(one) == QUESTION]
        if all(key(one) in self.answers.says for one in self.questions):
            self.history.good = live.version  # it was examined with all of them, or there are none
            return
        if engines and self.args.gate_questions:
            unasked = AnswerCheck(self.args, self.history, lambda: None)
            unasked.said = dict(self.answers.said)
            self.running = in_thread(lambda: unasked.tried(engines, live, self.questions), "questions")

    def collect(self) -> str | None:
        """Why the live version must go, once that is known; None before, and where it may stay."""
        if self.running is None or not self.running.done():
            return None
        answers, self.running = self.running.result(), None
        if answers is None:
            return None
        self.answers.said |= answers
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
