"""Judges an answer by the person's next message in Chinese: complaint, praise, or neither."""

from __future__ import annotations

import re
from itertools import pairwise

from openclaw.judge.rules.wordings import CHINESE

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_SENTENCE = re.compile(r"[。!?!?;;\n…~]+")
_CLAUSE = re.compile(r"[,,、::\s]+")
_QUOTED = re.compile(r"[“\"「『《][^”\"」』》]*[”\"」』》]|(?<!\w)'[^']*'(?!\w)")
_CORRECTION = re.compile(
    r"不是[^,,]{1,12}[,,]?\s*(?:而)?是|是[^,,]{1,14}[,,]\s*(?:而|可|又)?不是|(?:不|没)[^,,]{1,8}[,,]\s*是\S"
)
_DIGIT = re.compile(r"\d|[两三四五六七八九十百千]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PROBLEM = re.compile(r"多少|几[个本只元块天岁次棵条人]|求|还剩|一共|总共")
"""Question words of arithmetic problems."""
_CONDITION = re.compile(r"要是|如果|假如|万一|的话$|会不会|有没有|是不是")
"""A hypothetical clause."""
_FEW_NEW_SIGNS, _SOME_NEW_SIGNS, _NEW_SIGNS = 3, 7, 3
"""Most Chinese characters, new to the conversation, in a denial and in a complaint's clause; number that make a new
topic."""
_PAYLOAD = re.compile(r"[::“「].{4,}")
_FUNCTION = frozenset("的了吗呢吧啊一下再能可以不请你我把给就也都个是有在用很好要会么想谢过")
"""Chinese characters that do not indicate a topic."""
_STORY_LENGTH = 6
_TEXT_LENGTH = 4000
_CLAUSES = 60
"""Most clauses of a message that are examined."""


def read_chinese_feedback(text: str, conversation: str = "") -> tuple[int, str]:
    """Returns (score, reason): 1 praise or approval, -1 complaint, correction, redo or change request, 0 neither."""
    plain = _QUOTED.sub(" ", text[:_TEXT_LENGTH].lower())
    plain = CHINESE["innocent"].sub(" ", CHINESE["delight"].sub("很好", plain))
    clauses = _about_the_answer(plain, conversation)
    complained = _complaint(plain, clauses, conversation)
    plain_clauses = [clause for clause in clauses if not CHINESE["complaint"].search(clause)]
    praised = _first_praise([clause for clause in plain_clauses if not CHINESE["denial"].search(clause)])
    joined = " ".join(clauses)
    if (
        complained
        and praised
        and not CHINESE["turn"].search(joined)
        and joined.find(complained) < joined.find(praised)
    ):
        return 0, f"both: {praised}, {complained}"
    if complained:
        return -1, f"complaint: {complained}"
    praised = praised or _first_praise(clauses)
    return (1, f"praise: {praised}") if praised else (0, "no feedback")


def _first_praise(clauses: list[str]) -> str:
    return next((match.group() for clause in clauses if (match := CHINESE["praise"].search(clause))), "")


def _complaint(plain: str, clauses: list[str], conversation: str) -> str:
    for name in ("complaint", "wish"):
        for clause in clauses:
            match = CHINESE[name].search(clause)
            if match and _is_tied(clause.replace(match.group(), ""), conversation, _SOME_NEW_SIGNS):
                return match.group()
    match = _CORRECTION.search(plain)
    denied = next((clause for clause in clauses if _denies(clause, conversation)), "")
    return denied or (match.group() if match and clauses else "")


def _denies(clause: str, conversation: str) -> bool:
    """Returns whether a clause denies something and is about the answer."""
    return CHINESE["denial"].search(clause) is not None and _is_tied(clause, conversation, _FEW_NEW_SIGNS)


def _is_tied(clause: str, conversation: str, most_new: int) -> bool:
    """Returns whether a clause is about the answer: it refers to it, shares words with it, or contains nothing
    new."""
    if CHINESE["refers"].search(clause):
        return True
    signs = _HAN.findall(clause)
    if any("".join(pair) in conversation for pair in pairwise(signs)):
        return True
    return len(_new_signs(clause, conversation)) <= most_new


def _new_signs(text: str, conversation: str) -> list[str]:
    return [sign for sign in _HAN.findall(text) if sign not in _FUNCTION and sign not in conversation]


def _is_new_request(sentence: str, conversation: str) -> bool:
    """Returns whether a sentence asks for something that the conversation was not about."""
    if not CHINESE["asks"].search(sentence):
        return False
    payload = _PAYLOAD.search(sentence)
    if payload and len(_new_signs(payload.group(), conversation)) >= _NEW_SIGNS:
        return True
    if CHINESE["refers"].search(sentence):
        return False
    bare = CHINESE["wish"].sub("", CHINESE["asks"].sub("", sentence))
    return (
        sum(sign not in _FUNCTION and sign not in conversation for sign in _HAN.findall(bare)) >= _NEW_SIGNS
    )


def _about_the_answer(plain: str, conversation: str) -> list[str]:
    """Returns the clauses before the first one that sets a new task or begins the text of a problem."""
    clauses_about: list[str] = []
    for sentence in _SENTENCE.split(plain):
        if _PROBLEM.search(sentence) and len(_NUMBER.findall(sentence)) > 1:
            return clauses_about
        if _is_new_request(sentence, conversation):
            return clauses_about
        for clause in filter(None, _CLAUSE.split(sentence)):
            if _CONDITION.search(clause):
                continue
            complains = CHINESE["complaint"].search(clause)
            if len(clauses_about) == _CLAUSES or (CHINESE["new_task"].search(clause) and not complains):
                return clauses_about
            if _is_story(clause) and not clauses_about:
                return clauses_about
            clauses_about.append(clause)
    return clauses_about


def _is_story(clause: str) -> bool:
    """Returns whether the first clause has numbers but no address to a person, so that it is the text of a problem."""
    if (
        len(_HAN.findall(clause)) < _STORY_LENGTH
        or not _DIGIT.search(clause)
        or re.search(r"[你我这那它]", clause)
    ):
        return False
    return not any(
        pattern.search(clause) for pattern in (CHINESE["complaint"], CHINESE["wish"], CHINESE["praise"])
    )
