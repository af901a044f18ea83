"""Facts about a judged turn other than its user's words, and whether the words agree with them.

    tools         results of the turn's own tool calls, or of those before the answer, by the rules judge
    a hook        --facts-path module:function, turn -> True, False or None, for further checks

If facts contradict each other, the answer is wrong: a single failure is enough. Without any fact it is unknown
(None).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from openclaw.common.messages import LINE_BREAK, text_of, user_texts_in
from openclaw.judge.questions import bounded, question_about
from openclaw.judge.rules.tool_calls import ToolCall, calls_in
from openclaw.judge.rules.tool_results import TOOL_ROLES, read_tool_result
from openclaw.judge.rules.wordings import RESULTS
from openclaw.types import Message, Turn

FactsHook = Callable[[Turn], bool | None]

_SAYS_IT_FAILED = re.compile(
    r"\bno\b|fail|error|exit (?:code|status)|not |n't|unable|fehl|nicht|erreur|échou|falló|erro\b|errore|fout|błąd"
    r"|ошиб|hata|失敗|エラー|失败|错误",
    re.IGNORECASE,
)
"""An answer that reports a failure is not wrong because of it."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_PLAIN = str.maketrans("’‘？！：", "''?!:")


def fact_of(turn: Turn, hook: FactsHook | None = None) -> bool | None:
    """True: the answer agrees with all known facts. False: it contradicts one. None: no fact is known."""
    verdicts = [tools_worked(turn)] if hook is None else [tools_worked(turn), hook(turn)]
    known = [one for one in verdicts if one is not None]
    return all(known) if known else None


def tools_worked(turn: Turn) -> bool | None:
    """Returns whether the answer's tool calls worked, or, if it has none, those right before it.

    The success of a read-only call proves nothing, nor does a failed call before an answer that reports the failure.
    """
    question = question_about(turn)
    own = _tool_texts(turn.next_state or [])
    if own:
        return _worked(own, calls_in(bounded(question.response)))
    before, caller = _results_before(turn.messages)
    worked = _worked(before, _calls_of(caller))
    return None if worked is False and _SAYS_IT_FAILED.search(bounded(question.response)) else worked


def agreement(turn: Turn, score: float, fact: bool | None, comment: str | None = None) -> bool | None:
    """Returns whether a user's comment on an answer agrees with the facts: praise of a correct result, or a complaint
    that calls a wrong result wrong. None: no evidence, for example a complaint about form, or only a tool's result.

    Args:
        score: the judge's score of the user's words.
        fact: whether the answer's result is correct; None: unknown.
        comment: the user's words; None: those that followed the answer.
    """
    words = texts_after_answer(turn) if comment is None else comment
    if fact is None or not score or words is None:
        return None
    if score > 0:
        return fact
    return (not fact) if rejects_result(words) else None


def texts_after_answer(turn: Turn) -> str | None:
    """Returns people's messages after the answer; None if only tools answered."""
    texts = user_texts_in(turn.next_state or [])
    return "\n".join(texts) if texts else None


def _worked(texts: Sequence[str], calls: Sequence[ToolCall]) -> bool | None:
    """Combines verdicts like `read_tool_results`: one failure means failure, and success needs all to succeed."""
    paired = calls if len(calls) == len(texts) else [ToolCall()] * len(texts)
    verdicts: list[bool | None] = []
    for text, call in zip(texts, paired, strict=True):
        score, _ = read_tool_result(text, call)
        verdicts.append(None if not score or (score > 0 and call.displays) else score > 0)
    if not verdicts or False in verdicts:
        return False if verdicts else None
    return None if None in verdicts else True


def _results_before(messages: Sequence[Message]) -> tuple[list[str], Message | None]:
    """Returns the tool results directly before an answer, and the message that called the tools."""
    start = len(messages)
    while start and messages[start - 1].get("role") in TOOL_ROLES:
        start -= 1
    return _tool_texts(messages[start:]), (messages[start - 1] if 0 < start < len(messages) else None)


def _calls_of(message: Message | None) -> list[ToolCall]:
    calls = (message or {}).get("tool_calls")
    called = [one["function"] for one in calls if "function" in one] if isinstance(calls, list) else []
    return calls_in(bounded("\n".join(f"{one.get('name')}({one.get('arguments')})" for one in called)))


def _tool_texts(messages: Sequence[Message]) -> list[str]:
    return [bounded(text_of(one, LINE_BREAK)) for one in messages if one.get("role") in TOOL_ROLES]


def rejects_result(comment: str) -> bool:
    """Returns whether a message calls the result of an answer wrong, not its form.

    A message that also mentions form ("Wrong. I asked for a list.") counts as a complaint about form.
    """
    sentences = _SENTENCE.split(bounded(comment).lower().translate(_PLAIN))
    if any(RESULTS["form"].search(sentence) for sentence in sentences):
        return False
    return any(RESULTS["wrong"].search(sentence) for sentence in sentences if not _asks(sentence))


def _asks(sentence: str) -> bool:
    return sentence.rstrip().endswith("?")
