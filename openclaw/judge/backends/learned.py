"""A judge that was fitted to stored votes and to people's ratings (`openclaw.judge.learned`)."""

from __future__ import annotations

from openclaw.common.messages import last_said, said_in
from openclaw.judge.learned.classifier import CLASSES, decided, logits, softmax
from openclaw.judge.learned.features import features_of
from openclaw.judge.learned.judge_file import JudgeFile
from openclaw.judge.questions import JudgeQuestion, bounded
from openclaw.judge.rules.corrections import correction_in
from openclaw.judge.rules.judge import votes_for_hint
from openclaw.types import Vote


class LearnedBackend:
    """Votes of a fitted judge. Deterministic: all votes of a turn are equal; the text of a vote lists the probability of
    each score.

    The classifier decides whether a message is a complaint. The rules then extract the hint from it.
    """

    name = "learned"

    def __init__(self, judge: JudgeFile) -> None:
        self._judge, self._weights = judge, judge.rows
        self.prompt_name = self.hint_prompt_name = f"learned-{judge.digest}"

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        return [self.vote(question)] * m

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        said = "\n".join(said_in(question.next_state))
        hint = ""
        if said.strip() and self.vote(question).score == -1:
            asked = last_said(question.messages)
            hint = correction_in(bounded(said), f"{asked}\n{bounded(question.response)}")
        return votes_for_hint(hint, m)

    async def close(self) -> None:
        return None

    def vote(self, question: JudgeQuestion) -> Vote:
        """The score, 0 where no sign is likely enough."""
        rules, features = features_of(question)
        given = softmax(logits(self._weights, rules, features), self._judge.temperature)
        text = ", ".join(f"{name:+d}: {share:.2f}" for name, share in zip(CLASSES, given, strict=True))
        return Vote(score=decided(given, self._judge.threshold), text=f"{text}; the rules: {rules:+d}")
