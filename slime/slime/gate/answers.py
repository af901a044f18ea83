"""Stage c: compares the candidate's answers with those of the live weights before it goes live."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from slime.errors import EngineError
from slime.gate.history import GateHistory
from slime.gate.interruptible import Ordered, Tries, interruptible
from slime.gate.likelihood import FACT, LIKED, QUESTION, WISH, key, lasting, purpose
from slime.gate.limits import bad_answers, lost_more
from slime.gate.paired import Outcomes
from slime.gate.sampled import Tried, is_right, measure_sampled, share_right
from slime.gate.wishes import look_at_facts, look_at_wishes
from slime.types import Sample
from slime.weights.update import CandidateRejected
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

STAGE = "answers"
ENOUGH_LIKED = 4
"""Minimum number of liked answers for estimating the preferred length by their mean."""
MOST = 1 << 30
FEWER = {FACT: 32}
"""Maximum tokens of an answer, by purpose, if its row sets none; --gate-answer-tokens if that is less."""
VERSIONS = 4
"""Number of consecutive versions that are asked all questions."""


class AnswerCheck:
    """Compares the answers of the live weights and of a candidate during one run.

    Attributes:
        live_answers: answers of the live weights, or of a version shortly before, by key of the prompt.
        candidate_answers: answers of the candidate, by key of the prompt.
        at: number of questions asked so far; every candidate is asked the next few, in rotation.
        liked: prompts of liked answers that were sent to the live weights after their switch, so that the
            next candidate need not wait for that.
        liked_length: see `mean_length`.
        first_answers: first answers to facts of the pool; drafts of later answers.
        given_up: the questions were cancelled on purpose, so the engine's error is not logged.
        live_right: share of correct answers of the live weights, asked again because the candidate was worse;
            None: it was not, or no engine responded.
    """

    def __init__(self, args: Arguments, history: GateHistory, ordered: Ordered) -> None:
        self.args, self.history, self.ordered = args, history, ordered
        self.live_answers: dict[str, Tried] = {}
        self.candidate_answers: dict[str, Tried] = {}
        self.first_answers: dict[str, Tried] = {}
        self.at = 0
        self.liked: list[Sample] = []
        self.liked_length: dict[str, float] = {}
        self.live_right: float | None = None
        self.given_up = False

    def look(
        self,
        samples: Sequence[Sample],
        weights: WeightVersion,
        live: WeightVersion,
        engines: Sequence[Tries],
        measurements: dict[str, float],
        due: bool,
        near: bool,
    ) -> None:
        """Tests the candidate if that is `due`: a few questions and the prompts of liked answers.

        All questions are asked after one wrong answer, and after a regression until a version has passed all
        of them.

        Args:
            near: the candidate is near a limit of an earlier stage.

        Raises:
            CandidateRejected: with its `measurements`.
        """
        self.candidate_answers, self.live_right = {}, None
        questions = [one for one in samples if purpose(one) == QUESTION]
        self.liked_length = mean_length(samples, self.args.gate_answer_tokens)
        liked = self.liked or [one for one in samples if purpose(one) == LIKED]
        new = bool(questions) and self.history.questions != len(questions)
        turns = self.args.gate_questions > 0
        everything = due and (not turns or new or self.history.suspect)
        count = max(self.args.gate_questions, -(-len(questions) // VERSIONS) if near else 0)
        asked = questions + liked if everything else self.few(questions, count) + liked if due else []
        if not asked or not self.ask(asked, weights, live, engines):
            return
        if not everything and any(self.is_worse(one) for one in asked):
            asked = questions + liked
            if not self.ask(asked, weights, live, engines):
                return
        self.liked = []
        complete = all(key(one) in self.candidate_answers for one in questions)
        reason = self.problem(asked, measurements, complete)
        if reason is not None and (again := self.tried(engines, live, asked)):
            # The live answers may be of an earlier version.
            self.live_answers |= again
            self.live_right = (
                share_of(questions, self.live_answers)["right"] if complete and questions else None
            )
            reason = self.problem(asked, measurements, complete)
        if reason is not None:
            raise CandidateRejected(reason, STAGE)

    def problem(self, asked: Sequence[Sample], measurements: dict[str, float], complete: bool) -> str | None:
        """Compares the candidate's answers with the live ones; returns the reason to reject it, or None.

        Questions and people's prompts are compared separately, so that a large group does not hide a small
        one.

        Args:
            measurements: the candidate's measurements are added to it.
            complete: all questions were asked.
        """
        measurements |= self.measured(asked, complete)[0]
        for what in (QUESTION, LIKED):
            group = [one for one in asked if purpose(one) == what]
            if group:
                now, then = self.measured(group, complete)
                then |= self.liked_length
                if "taught_length" in measurements:
                    then["taught_length"] = measurements["taught_length"]
                reason = bad_answers(now, then, self.history.best_right(then), self.args)
                if reason is None and what == QUESTION and complete:
                    reason = self.lost_questions(group)
                if reason is not None:
                    return reason
        return None

    def look_at_wishes(
        self,
        samples: Sequence[Sample],
        weights: WeightVersion,
        live: WeightVersion,
        engines: Sequence[Tries],
        measurements: dict[str, float],
    ) -> None:
        """Tests every candidate for obedience to explicit requests, and on some facts that the initial model
        knew.

        Raises like `look`.
        """
        look_at_wishes(
            self, [one for one in samples if purpose(one) == WISH], weights, live, engines, measurements
        )
        look_at_facts(
            self, [one for one in samples if purpose(one) == FACT], weights, live, engines, measurements
        )

    def lost_questions(self, questions: Sequence[Sample]) -> str | None:
        """Returns the reason if the paired test against the reference version fails."""
        before = self.history.compared_with(QUESTION, right_answers(questions, self.live_answers))
        now = right_answers(questions, self.candidate_answers)
        return lost_more("questions are answered incorrectly", before, now, QUESTION, self.args)

    def measured(self, asked: Sequence[Sample], complete: bool) -> tuple[dict[str, float], dict[str, float]]:
        """Returns the measurements of the candidate, and of the live weights."""
        labels = [label(one) if complete else None for one in asked]
        old = [self.live_answers[key(one)] for one in asked]
        new = [self.candidate_answers[key(one)] for one in asked]
        return measure_sampled(new, labels, old), measure_sampled(old, labels, old)

    def few(self, questions: Sequence[Sample], count: int) -> list[Sample]:
        """Returns the next few questions, in rotation."""
        count = min(count, len(questions))
        chosen = [questions[(self.at + i) % len(questions)] for i in range(count)]
        self.at += count
        return chosen

    def is_worse(self, one: Sample) -> bool:
        """Returns whether a question was answered correctly before and is now answered incorrectly."""
        expected, named = label(one), key(one)
        if expected is None:
            return False
        live, candidate = self.live_answers[named].text, self.candidate_answers[named].text
        return is_right(live, expected) and not is_right(candidate, expected)

    def ask(
        self, asked: Sequence[Sample], weights: WeightVersion, live: WeightVersion, engines: Sequence[Tries]
    ) -> bool:
        """Requests the missing `candidate_answers` and `live_answers`; returns False if no engine can answer."""
        before = self.tried(engines, live, [one for one in asked if key(one) not in self.live_answers])
        if before is None:
            return False
        self.live_answers |= before
        now = self.tried(engines, weights, [one for one in asked if key(one) not in self.candidate_answers])
        if now is None:
            return False
        self.candidate_answers |= now
        return True

    def tried(
        self,
        engines: Sequence[Tries],
        weights: WeightVersion,
        asked: Sequence[Sample],
        temperature: float = 0.0,
    ) -> dict[str, Tried] | None:
        """Returns answers by key, from the first engine that can answer; None if there is none.

        An engine that cannot read the files will reject them again when they go live, so its error is
        reported then.
        """
        results: dict[str, Tried] = {}
        for most in sorted({self.longest(one) for one in asked}):
            group = [one for one in asked if self.longest(one) == most]
            answers = self.put(engines, weights, group, most, temperature)
            if answers is None:
                return None
            results |= answers
        return results

    def longest(self, sample: Sample) -> int:
        """Returns the maximum tokens of an answer to examine."""
        return min(
            self.args.gate_answer_tokens, int(sample.metadata.get("tokens", FEWER.get(purpose(sample), MOST)))
        )

    def put(
        self,
        engines: Sequence[Tries],
        weights: WeightVersion,
        asked: Sequence[Sample],
        most: int,
        temperature: float = 0.0,
    ) -> dict[str, Tried] | None:
        """Like `tried`, for answers of at most `most` tokens."""
        prompts = [sample.tokens[: sample.prompt_length] for sample in asked]
        drafts = [] if temperature > 0 else [self.draft(key(one)) for one in asked]
        for engine in engines:
            ask = partial(
                engine.try_weights, weights.path, weights.version, prompts, most, drafts, temperature
            )
            try:
                answers = interruptible(ask, engine.discard, self.ordered)
            except EngineError as error:
                if not self.given_up:
                    logger.warning("answers of version %d are not checked: %s", weights.version, error)
                return None
            if answers is not None:
                results = [Tried(**answer) for answer in answers]
                return {key(sample): answer for sample, answer in zip(asked, results, strict=True)}
        return None

    def draft(self, name: str) -> list[int]:
        """Returns another version's answer as a draft; [] if there is none."""
        answer = self.live_answers.get(name) or self.first_answers.get(name)
        return [] if answer is None else answer.ids


def share_of(questions: Sequence[Sample], answers: Mapping[str, Tried]) -> dict[str, float]:
    """Returns `share_right` of all questions; `answers` is keyed by prompt key."""
    return share_right([answers[key(one)] for one in questions], list(map(label, questions)))


def right_answers(questions: Sequence[Sample], answers: Mapping[str, Tried]) -> Outcomes:
    """Returns the outcomes of the answered questions, by their permanent keys; `answers` is keyed by prompt
    key."""
    return {
        lasting(one): is_right(answers[key(one)].text, str(one.label))
        for one in questions
        if key(one) in answers
    }


def label(sample: Sample) -> str | None:
    """Returns the text that an answer must contain; None if unknown."""
    return None if sample.label is None else str(sample.label)


def mean_length(samples: Sequence[Sample], most: int) -> dict[str, float]:
    """Returns `liked_length`, the mean tokens of liked answers, each at most `most`; {} if there are too few."""
    lengths = [min(one.response_length, most) for one in samples if purpose(one) == LIKED]
    return {"liked_length": sum(lengths) / len(lengths)} if len(lengths) >= ENOUGH_LIKED else {}
