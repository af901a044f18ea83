"""Combines the rules with classifications by the served model."""

from __future__ import annotations

import dataclasses
from typing import get_args

from openclaw.common.messages import last_user_text, user_texts_in
from openclaw.common.plain_sentences import Pole, plain_sentences
from openclaw.judge.questions import JudgeQuestion, bounded
from openclaw.judge.reader.channel import Reading
from openclaw.judge.reader.reader import Reader
from openclaw.judge.rules.english import BY_TONE
from openclaw.judge.rules.judge import RulesBackend, hint_by_rules, vote_by_rules, votes_for_hint
from openclaw.judge.rules.languages import language_of
from openclaw.types import Vote

EXAMPLES_IN = "en"
"""Language of the examples. After them, the likelihood of a sentence in another language is meaningless."""
_POLES: tuple[Pole, ...] = get_args(Pole)


class ReadingBackend(RulesBackend):
    """Returns the rules' vote; the model's, if it is confident, for a user's message in which the rules find no sign,
    or only friendly or unfriendly words.

    The hint of a complaint about the form of an answer is a plain sentence that asks for the form, followed by the
    user's own words if the rules accept these as a hint. For other complaints it is the hint found by the rules.
    """

    name = "rules+reader"
    prompt_name = hint_prompt_name = f"{RulesBackend.prompt_name}+reader-v1"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def close(self) -> None:
        await self._reader.close()

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        return [(await self._vote(question))[0]] * m

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        vote, reading = await self._vote(question)
        words = hint_by_rules(question)
        if vote.score == -1 and reading is not None:
            sentence = _sentence(reading)
            words = " ".join(part for part in (sentence, words) if part)
        return votes_for_hint(words, m)

    async def _vote(self, question: JudgeQuestion) -> tuple[Vote, Reading | None]:
        """Returns the vote, and the model's classification if it is confident."""
        vote = vote_by_rules(question)
        comment = "\n".join(user_texts_in(question.next_state)).strip()
        is_by_tone = vote.text.startswith(BY_TONE)
        is_known_praise = vote.score == 1 and not is_by_tone
        if not comment or is_known_praise or _language(question) != EXAMPLES_IN:
            return vote, None
        answer = bounded(question.response)
        reading = await self._reader.reading(bounded(comment), answer, _previous_comment(question))
        if reading is None or not reading.is_sure:
            return vote, None
        if vote.score == 0 or (is_by_tone and vote.score != reading.kind.score):
            vote = dataclasses.replace(vote, score=reading.kind.score, text=reading.reason)
        return vote, reading


def _sentence(reading: Reading) -> str:
    """Returns the plain sentence for a complaint about the form; "" for other complaints."""
    sentences = [plain_sentences(pole, EXAMPLES_IN) for pole in _POLES if pole == reading.kind.name]
    return sentences[0][0] if sentences else ""


def _previous_comment(question: JudgeQuestion) -> str:
    """Returns the user's comment on the previous answer; "" for the first answer."""
    roles = [message.get("role") for message in question.messages]
    return bounded(last_user_text(question.messages)) if "assistant" in roles else ""


def _language(question: JudgeQuestion) -> str:
    return language_of("\n".join(user_texts_in(question.next_state)), last_user_text(question.messages))
