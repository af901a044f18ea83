"""Is this the same request again? Then the first answer was not what was wanted."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

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
_SAME = 0.75
_LENGTH = 4000
"""Characters compared of a request."""
_FEWEST_WORDS, _MOST_WORDS = 2, 500
_MOST_RESTATED, _LETTERS = 3, 3
"""Content words of a restated part of a request, and letters of each."""
"""Content words (filler not counted) that a request needs before its likeness says anything, and that are
compared."""


def is_repeated(request: str, earlier: str) -> bool:
    """The same words in the same order, filler aside, and the same numbers: a request with other numbers
    is new."""
    words, before = _content_words(request), _content_words(earlier)
    if len(words) < _FEWEST_WORDS or _numbers(words) != _numbers(before):
        return False
    return SequenceMatcher(None, words, before, autojunk=False).ratio() >= _SAME


def restates(said: str, asked: str, response: str) -> bool:
    """A few words that only name what the request had and the answer does not: "bullets", "jazz!!!". An answer that
    asks back gets such words as a reply."""
    words = _content_words(said)
    if not 0 < len(words) <= _MOST_RESTATED or response.rstrip().endswith(("?", "?")):
        return False
    had, given = _stems(_content_words(asked)), _stems(_content_words(response))
    return all(len(word) >= _LETTERS for word in words) and _stems(words) <= had and not _stems(words) & given


def _stems(words: list[str]) -> set[str]:
    return {word.removesuffix("s") for word in words}


def _content_words(text: str) -> list[str]:
    words = _WORD.findall(text[:_LENGTH].lower().replace("'s", " "))
    return [word for word in words if word not in _FILLER][:_MOST_WORDS]


def _numbers(words: list[str]) -> list[str]:
    return sorted(word for word in words if word[0].isdigit())
