"""Combines the rules with a small model that can correct them."""

from __future__ import annotations

import asyncio
import dataclasses

from openclaw.common.messages import last_user_text, user_texts_in
from openclaw.common.plain_sentences import plain_sentences
from openclaw.judge.questions import JudgeQuestion, bounded
from openclaw.judge.rules.judge import (
    REPLY,
    RulesBackend,
    hint_by_rules,
    read_by_rules,
    vote_on_tools,
    votes_for_hint,
    words_of_complaint,
)
from openclaw.judge.rules.languages import language_of
from openclaw.judge.sentences.features import Remark
from openclaw.judge.sentences.head import POLES, Head, Reading
from openclaw.types import Vote

LONGEST_CHARACTERS = 600
"""Most characters of a classified message: longer ones are requests with a text to work on."""


class SentenceBackend(RulesBackend):
    """Returns the rules' vote, unless the model is confident of another score for a user's message.

    The hint of a complaint about the form of an answer is a plain sentence that asks for the form, followed by the
    user's own words if these contain advice. For other complaints it is the advice in the user's words.
    """

    name = "rules+sentences"

    def __init__(self, head: Head) -> None:
        self._head = head
        self.prompt_name = self.hint_prompt_name = f"{RulesBackend.prompt_name}+sentences-{head.digest}"

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        return [await asyncio.to_thread(self.vote, question)] * m

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        hint = await asyncio.to_thread(self.hint, question)
        return votes_for_hint(hint, m)

    def vote(self, question: JudgeQuestion) -> Vote:
        return self._read(question)[0]

    def hint(self, question: JudgeQuestion) -> str:
        """Returns the change that a complaint asks for; "" if there is none."""
        _, reading, score = self._read(question)
        if reading is None:
            return hint_by_rules(question)
        if score != -1:
            return ""
        words = words_of_complaint(question)
        return " ".join(part for part in (self._sentence(reading, question), words) if part)

    def _read(self, question: JudgeQuestion) -> tuple[Vote, Reading | None, int]:
        """Returns the vote, and the classification of the user's message with its own score; None and 0 if it was not
        classified."""
        ruled = read_by_rules(question)
        vote, by_rules = ruled.vote, ruled.on_person
        remark = remark_of(question, by_rules)
        if by_rules is None or remark is None:
            return vote, None, 0
        reading = self._head.reading(remark)
        score = self._head.bounds.judged(by_rules.score or 0, reading, remark.answer)
        if score != by_rules.score:
            vote = dataclasses.replace(vote, score=score, text=reading.reason(score))
            vote = vote if score else vote_on_tools(question) or vote
        return vote, reading, score

    def _sentence(self, reading: Reading, question: JudgeQuestion) -> str:
        """Returns the plain sentence that asks for the form; "" if the message is no probable complaint about it."""
        kind = self._head.bounds.form(reading, bounded(question.response))
        if not kind:
            return ""
        language = language_of(
            "\n".join(user_texts_in(question.next_state)), last_user_text(question.messages)
        )
        return plain_sentences(POLES[kind], language)[0]


def remark_of(question: JudgeQuestion, by_rules: Vote | None) -> Remark | None:
    """Returns the message to classify, with the rules' vote on it; None if there is none."""
    text = "\n".join(user_texts_in(question.next_state)).strip()
    if by_rules is None or by_rules.text == REPLY or len(text) > LONGEST_CHARACTERS:
        return None
    request, answer = last_user_text(question.messages), bounded(question.response)
    return Remark(text=text, request=request, answer=answer, rules=by_rules)
