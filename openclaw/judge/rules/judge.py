"""The judge without a model: explicit feedback, repeated requests, sentiment, exit codes, error traces.

    user message   complaint, correction, redo or change request -> -1; the same request again -> -1;
                   thanks, praise, approval -> 1; a new request, and unclear messages -> 0
    tool results   a proven failure -> -1; a proven success -> 1; anything else -> 0

The hint is the part of a complaint that asks for a change. A user message outranks tool results in the same next
state,
unless it is not about the answer. A complaint about a text that the assistant did not write is 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

from openclaw.common.messages import LINE_BREAK, last_user_text, text_of
from openclaw.judge.questions import JudgeQuestion, bounded
from openclaw.judge.rules.advice import request_after_praise, wish_for_form
from openclaw.judge.rules.chinese import read_chinese_feedback
from openclaw.judge.rules.corrections import correction_in, restated
from openclaw.judge.rules.english import read_feedback
from openclaw.judge.rules.languages import (
    has_latin_words,
    language_of,
    read_listed,
    read_signs,
    without_han,
)
from openclaw.judge.rules.own_texts import ABOUT_OTHERS, without_own_texts
from openclaw.judge.rules.renderings import result_of_user
from openclaw.judge.rules.tool_calls import calls_in
from openclaw.judge.rules.tool_results import TOOL_ROLES, read_tool_result, read_tool_results
from openclaw.types import Message, Vote

REPLY = "a reply to a question"
"""Reason of a vote on a response that asks a question, which the user answers."""
_REPLY = re.compile(
    r"(?i)^(?:yes|yeah|yep|yup|no|nope|nah|none|ok|okay|sure|ja|nein|nee|doch|sí|si|sì|oui|non|sim|não|tak|nie|да|нет|evet|hayır|はい|いいえ|是的?|对的?|不是?|不用|没有?|好的?|可以|要|不要)"
    r"(?:[,, ]+(?:please|bitte|por favor|thanks|thank you|danke|gracias))?[.!。! ]*$"
)
"""Typical replies to a question."""
_WORD = re.compile(
    r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W\d_]+?(?=[\u4e00-\u9fff])|[^\W\d_]+(?:'\w+)?|\d+(?:[.,]\d+)*"
)
"""A Chinese character counts as a word."""
_FILLER = frozenset(
    re.findall(
        r"\S+",
        """
    a an the please pls kindly can could would will you me tell again once more so ok okay hey hi well now
    just is are was do does did it that this of in at on to for and i my
    请 帮 我 一 下 的 了 吧 呢 吗 啊 再 你 麻 烦 给 把 是
    """,
    )
)
_DOUBTFUL = ("sarcasm", "both")
_SAME = 0.75
_LENGTH = 4000
"""Most characters of a request that are compared."""
_FEWEST_WORDS, _MOST_WORDS = 2, 500
"""Fewest content words (without fillers) of a request that is compared with another, and most that are compared."""
_MOST_RESTATED, _LETTERS = 3, 3
"""Most content words of a restated part of a request, and least letters of each."""


def votes_for_hint(hint: str, m: int) -> list[Vote]:
    """Returns `m` equal votes for a hint; "": votes that there is none."""
    if not hint:
        return [Vote(score=-1, text="no change is asked for")] * m
    return [Vote(score=1, text="correction", hint=hint)] * m


class RulesBackend:
    """Deterministic: every vote is the same."""

    name = "rules"
    prompt_name = "rules-v6"
    hint_prompt_name = "rules-v6"

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        return [vote_by_rules(question)] * m

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        hint = hint_by_rules(question)
        return votes_for_hint(hint, m)

    async def close(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Ruled:
    """The rules' vote, and their vote on the user's message alone: None without a message, and for a tool result that
    an agent sent as the user."""

    vote: Vote
    on_person: Vote | None


def read_by_rules(question: JudgeQuestion) -> Ruled:
    """Returns the votes; each text names the deciding rule."""
    comment = _person_text(question)
    if (of_agent := result_of_user(comment)) is not None:
        score, why = read_tool_result(*of_agent)
        return Ruled(vote=Vote(score=score, text=why), on_person=None)
    vote = None
    if comment:
        vote = _vote_on_message(comment, _last_request(question.messages), bounded(question.response))
        if vote.score:
            return Ruled(vote=vote, on_person=vote)
    on_tools = vote_on_tools(question)
    return Ruled(vote=on_tools or vote or Vote(score=0, text="nothing to judge by"), on_person=vote)


def vote_on_tools(question: JudgeQuestion) -> Vote | None:
    """Returns the vote if there are only tool results, else None."""
    results = [_text(message) for message in question.next_state if message.get("role") in TOOL_ROLES]
    if not results:
        return None
    score, why = read_tool_results(results, calls_in(bounded(question.response)))
    return Vote(score=score, text=why)


def vote_by_rules(question: JudgeQuestion) -> Vote:
    """Returns one vote; its text names the deciding rule."""
    return read_by_rules(question).vote


def hint_by_rules(question: JudgeQuestion) -> str:
    """Returns the change that a complaint asks for, in the user's words. Returns "" without a complaint, and for one
    that only calls the answer wrong."""
    on_person = read_by_rules(question).on_person
    return words_of_complaint(question) if on_person is not None and on_person.score == -1 else ""


def words_of_complaint(question: JudgeQuestion) -> str:
    """Returns the change that a complaint asks for; "" if it asks for none."""
    comment, asked, response = (
        _person_text(question),
        _last_request(question.messages),
        bounded(question.response),
    )
    conversation = f"{asked}\n{response}"
    if asked and not is_repeated(comment, asked) and restates(comment, asked, response):
        return restated(comment, conversation)
    return correction_in(comment, conversation)


def _person_text(question: JudgeQuestion) -> str:
    texts = [_text(message) for message in question.next_state if message.get("role") == "user"]
    return bounded("\n".join(texts).strip())


def _text(message: Message) -> str:
    return bounded(text_of(message, LINE_BREAK))


def _vote_on_message(comment: str, asked: str, response: str) -> Vote:
    if asked and is_repeated(comment, asked):
        return Vote(score=-1, text="the same request again")
    if asked and restates(comment, asked, response):
        return Vote(score=-1, text="what was asked for again")
    if response.rstrip().endswith(("?", "?")) and _REPLY.match(comment):
        return Vote(score=0, text=REPLY)
    conversation = f"{asked}\n{response}"
    comment = without_own_texts(comment, language_of(comment, conversation), asked, response)
    if not comment:
        return Vote(score=0, text=ABOUT_OTHERS)
    score, why = _feedback(comment, conversation)
    if score > 0 and (rest := request_after_praise(comment, conversation)):
        return Vote(score=-1, text=f"praise, and a wish for another form: {rest}")
    if not score and not why.startswith(_DOUBTFUL) and not response.rstrip().endswith(("?", "？", "؟")):
        wish = wish_for_form(comment, conversation)
        if wish:
            return Vote(score=-1, text=f"a wish for another form: {wish}")
    return Vote(score=score, text=why)


def _feedback(comment: str, conversation: str) -> tuple[int, str]:
    language = language_of(comment, conversation)
    if language == "zh":
        score, why = read_chinese_feedback(comment, conversation)
        if score or not has_latin_words(comment):
            return score, why
        language = language_of(without_han(comment), conversation)
    if language == "en":
        return read_feedback(comment, conversation)
    return read_signs(comment) if language == "other" else read_listed(comment, language, conversation)


def _last_request(messages: list[Message]) -> str:
    return bounded(last_user_text(messages))


def is_repeated(request: str, earlier: str) -> bool:
    """Returns whether a request has the same words in the same order, except fillers, and the same numbers."""
    words, before = _content_words(request), _content_words(earlier)
    if len(words) < _FEWEST_WORDS or _numbers(words) != _numbers(before):
        return False
    return SequenceMatcher(None, words, before, autojunk=False).ratio() >= _SAME


def restates(comment: str, asked: str, response: str) -> bool:
    """Returns whether a short comment only names something that the request had and the answer lacks: "bullets",
    "jazz!!!". After an answer that asks a question, such words are a reply."""
    words = _content_words(comment)
    if not 0 < len(words) <= _MOST_RESTATED or response.rstrip().endswith(("?", "?")):
        return False
    had, response_stems = _stems(_content_words(asked)), _stems(_content_words(response))
    return (
        all(len(word) >= _LETTERS for word in words)
        and _stems(words) <= had
        and not _stems(words) & response_stems
    )


def _stems(words: list[str]) -> set[str]:
    return {word.removesuffix("s") for word in words}


def _content_words(text: str) -> list[str]:
    words = _WORD.findall(text[:_LENGTH].lower().replace("'s", " "))
    return [word for word in words if word not in _FILLER][:_MOST_WORDS]


def _numbers(words: list[str]) -> list[str]:
    return sorted(word for word in words if word[0].isdigit())
