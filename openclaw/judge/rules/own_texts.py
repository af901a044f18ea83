"""Finds where a message turns to texts and people that have nothing to do with the answer: "my essay is too long", "my
boss finds my emails too formal". Such words complain, but not about the answer."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openclaw.judge.rules.wordings import FOLDER

ABOUT_OTHERS = "about a text that is not the answer"
"""Reason of a vote on a message that is only about such a text."""
_CLAUSE = re.compile(r"[.!?…。！？;；,，、:：]\s*|\n")
_CODE = re.compile(
    r"(?i)```|\w\([\w, ]*\)|代码|程序|脚本|函数"
    r"|\b(?:code|script|program|function|python|javascript|java|sql|bash|html|css|regex)\b"
)
_OF_CODE = re.compile(r"(?i)code|script|skript|program|query|app|código|код|программ|代码|脚本|程序")
_GIVEN = re.compile(r"[:：]\s*\S.{20}|[\"“„«「].{20}|\n", re.DOTALL)
"""A text of the person in a request: the answer is then about it, and later complaints may name it."""
_LONGEST_REQUEST, _READ = 300, 1000
"""Most characters of a request without such a text, and of a message that are examined."""
_PAYLOAD = re.compile(r"[:：\"“„«「]")
"""A text in the message begins: its words are not about the answer anyway."""
_INFLECTED, _FEWEST_LETTERS = 2, 4
"""Letters at the end of a word that an inflection may change; fewest letters that stay."""
_UNSPACED = ("zh",)
_MARKED = re.compile(r"<(?![=!])([^<>]+)>")
_PART = re.compile(r"\{([a-z]+)\}")
"""Marks of the word that must be new, and of a list, in the file of wordings."""


@dataclass(frozen=True)
class _Language:
    """The wordings of one language as patterns; group `text` is the text that must be new."""

    about: tuple[re.Pattern[str], ...]
    only_for: re.Pattern[str]
    answer: re.Pattern[str]


def without_own_texts(comment: str, language: str, asked: str, response: str) -> str:
    """Returns a message up to the clause that turns to a text or a person other than the answer; all of it if there is
    none, and if the request contains a text of the person."""
    wordings = _WORDINGS.get(language)
    if wordings is None or _GIVEN.search(asked) or len(asked) > _LONGEST_REQUEST:
        return comment
    plain = _PAYLOAD.split(comment.replace("’", "'"), maxsplit=1)[0][:_READ]
    starts = [
        start
        for pattern in wordings.about
        for match in pattern.finditer(plain)
        if (start := _turn(match, wordings, f"{asked}\n{response}")) is not None
    ]
    return comment[: min(starts)].strip() if starts else comment


def _turn(match: re.Match[str], wordings: _Language, conversation: str) -> int | None:
    """Returns where the clause of a match begins; None if the match is about the answer."""
    text = match.groupdict().get("text")
    if text and _is_known(text.lower(), conversation):
        return None
    start = max((one.end() for one in _CLAUSE.finditer(match.string, 0, match.start())), default=0)
    before = match.string[start : match.start()]
    if wordings.only_for.search(before) or wordings.answer.search(before):
        return None
    return start


def _is_known(text: str, conversation: str) -> bool:
    """Returns whether the conversation has the word, in any inflection, or is about code like it."""
    if _OF_CODE.search(text) and _CODE.search(conversation):
        return True
    stem = re.escape(text[: max(len(text) - _INFLECTED, _FEWEST_LETTERS)])
    edge = r"(?<!\w)" if text.isascii() else ""
    return re.search(edge + stem, conversation.lower()) is not None


def _language(name: str, table: Mapping[str, Any]) -> _Language:
    def whole(entry: str) -> re.Pattern[str]:
        marked = _MARKED.sub(r"(?P<text>\1)", entry)
        return re.compile(_PART.sub(lambda part: str(table[part[1]]), marked), re.IGNORECASE)

    begin, end = ("", "") if name in _UNSPACED else (r"(?<!\w)", r"(?!\w)")
    return _Language(
        about=tuple(map(whole, table["about"])),
        only_for=re.compile(rf"{begin}(?:{table['with']})\s*$", re.IGNORECASE),
        answer=re.compile(rf"{begin}(?:{table['answer']}){end}", re.IGNORECASE),
    )


_WORDINGS = {
    name: _language(name, table)
    for name, table in tomllib.loads((FOLDER / "own_texts.toml").read_text("utf-8")).items()
}
