"""The judge without a model: explicit feedback, repeated requests, sentiment, exit codes, error traces.

    user message   complaint, correction, redo or change request -> -1; the same request again -> -1;
                   thanks, praise, approval -> 1; a new request, and whatever leaves a doubt -> 0
    tool results   a proven failure -> -1; a proven success -> 1; anything else -> 0

The hint is the complaint, where it says what should be different. A user message outranks the tool results beside it
unless it says nothing about the answer.
"""

from __future__ import annotations

import re

from openclaw.common.messages import LINE_BREAK, last_said, text_of
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.bounds import bounded
from openclaw.judge.rules.chinese import has_english, is_chinese, is_japanese, read_chinese_feedback
from openclaw.judge.rules.corrections import correction_in
from openclaw.judge.rules.languages import language_of, read_listed, read_signs
from openclaw.judge.rules.repetition import is_repeated, restates
from openclaw.judge.rules.sentiment import read_feedback
from openclaw.judge.rules.tool_calls import calls_in
from openclaw.judge.rules.tool_results import TOOL_ROLES, read_tool_results
from openclaw.types import Message, Vote

_REPLY = re.compile(
    r"(?i)^(?:yes|yeah|yep|yup|no|nope|nah|none|ok|okay|sure|ja|nein|nee|doch|sí|si|sì|oui|non|sim|não|tak|nie|да|нет|evet|hayır|はい|いいえ|是的?|对的?|不是?|不用|没有?|好的?|可以|要|不要)"
    r"(?:[,, ]+(?:please|bitte|por favor|thanks|thank you|danke|gracias))?[.!。! ]*$"
)
"""What answers a question that the response asks."""


class RulesBackend:
    """Deterministic: every vote is the same."""

    name = "rules"
    prompt_name = "rules-v4"
    hint_prompt_name = "rules-v4"

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        return [vote_by_rules(question)] * m

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        hint = hint_by_rules(question)
        if not hint:
            return [Vote(score=-1, text="nothing says what should be different")] * m
        return [Vote(score=1, text="correction", hint=hint)] * m

    async def close(self) -> None:
        return None


def vote_by_rules(question: JudgeQuestion) -> Vote:
    """One vote; its text says which rule decided."""
    said = _said(question)
    results = [_text(message) for message in question.next_state if message.get("role") in TOOL_ROLES]
    if said:
        vote = _vote_on_message(said, _last_request(question.messages), bounded(question.response))
        if vote.score or not results:
            return vote
    if not results:
        return Vote(score=0, text="nothing to judge by")
    score, why = read_tool_results(results, calls_in(bounded(question.response)))
    return Vote(score=score, text=why)


def hint_by_rules(question: JudgeQuestion) -> str:
    """What a complaint of the person says should be different, in the person's words. "" where nobody complains, or a
    complaint says only that the answer is wrong."""
    said = _said(question)
    asked, response = _last_request(question.messages), bounded(question.response)
    if not said or _vote_on_message(said, asked, response).score != -1:
        return ""
    return correction_in(said, f"{asked}\n{response}")


def _said(question: JudgeQuestion) -> str:
    texts = [_text(message) for message in question.next_state if message.get("role") == "user"]
    return bounded("\n".join(texts).strip())


def _text(message: Message) -> str:
    return bounded(text_of(message, LINE_BREAK))


def _vote_on_message(said: str, asked: str, response: str) -> Vote:
    if asked and is_repeated(said, asked):
        return Vote(score=-1, text="the same request again")
    if asked and restates(said, asked, response):
        return Vote(score=-1, text="what was asked for again")
    if response.rstrip().endswith(("?", "?")) and _REPLY.match(said):
        return Vote(score=0, text="a reply to a question")
    score, why = _feedback(said, f"{asked}\n{response}")
    return Vote(score=score, text=why)


def _feedback(said: str, conversation: str) -> tuple[int, str]:
    if is_chinese(said) and not is_japanese(conversation):
        score, why = read_chinese_feedback(said, conversation)
        if score or not has_english(said):
            return score, why
    language = language_of(said, conversation)
    if language == "en":
        return read_feedback(said, conversation)
    return read_signs(said) if language == "other" else read_listed(said, language, conversation)


def _last_request(messages: list[Message]) -> str:
    return bounded(last_said(messages))
