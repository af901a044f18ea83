"""The forms that preferences ask for, and checks of replies for them.

Preferences are parsed by patterns (`openclaw.common.wish_forms`): brief or long, prose or list, with or without a
greeting. A preference without a known form is measured by similarity, see `report.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from openclaw.common import answer_form
from openclaw.progress.replies import Reply, sentence_count, word_count

BRIEF_WORDS, BRIEF_SENTENCES, LONG_WORDS = 40, 2, 80

_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_MARKUP = re.compile(r"^[ \t]*#{1,6}\s|\*\*[^*\n]+\*\*", re.MULTILINE)
_TABLE = re.compile(r"^\|?[^|\n]+\|[^|\n].*\n(?:[ \t]*\|)?[ \t]*:?-{2,}", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+\S|\*\*[^*\n]+\*\*:?[ \t]*$)", re.MULTILINE)


def is_brief(reply: Reply) -> bool:
    """Returns whether a reply has one or two sentences, at most 40 words, and was not truncated."""
    short = 1 <= word_count(reply.text) <= BRIEF_WORDS and sentence_count(reply.text) <= BRIEF_SENTENCES
    return short and reply.ended


def is_long(reply: Reply) -> bool:
    """Returns whether a reply has at least 80 words."""
    return word_count(reply.text) >= LONG_WORDS


def is_prose(reply: Reply) -> bool:
    """Returns whether a reply is text without list items, headings, bold or tables."""
    patterns = (_ITEM, _MARKUP, _TABLE)
    return bool(reply.text.strip()) and not any(pattern.search(reply.text) for pattern in patterns)


def is_list(reply: Reply) -> bool:
    """Returns whether a reply has at least two list items."""
    return len(_ITEM.findall(reply.text)) >= 2


def greets(reply: Reply) -> bool:
    """Returns whether a reply starts with a greeting."""
    return answer_form.greets(reply.text)


def has_no_greeting(reply: Reply) -> bool:
    """Returns whether a reply is not empty and does not start with a greeting."""
    return bool(reply.text.strip()) and not greets(reply)


FORMS: Mapping[str, Callable[[Reply], bool]] = MappingProxyType(
    {
        "brief": is_brief,
        "short": is_brief,
        "long": is_long,
        "prose": is_prose,
        "list": is_list,
        "table": lambda reply: _TABLE.search(reply.text) is not None,
        "headings": lambda reply: _HEADING.search(reply.text) is not None,
        "greeting": greets,
        "no_greeting": has_no_greeting,
    }
)
"""Function for each form that checks whether a reply has it."""
OPPOSITES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "brief": frozenset({"long"}),
        "long": frozenset({"short"}),
        "prose": frozenset({"list", "table", "headings"}),
        "list": frozenset({"prose"}),
        "greeting": frozenset({"no_greeting"}),
    }
)
"""Forms of opposite requests, by form."""


def pleases(forms: tuple[str, ...], reply: Reply) -> bool:
    """Returns whether a reply has all forms of a preference."""
    return all(FORMS[form](reply) for form in forms)


def obeys(pole: str | None, form: str | None, reply: Reply) -> bool:
    """Returns whether a reply has the form that its own prompt requests.

    `form`: regular expression that replaces the check for `pole`.
    """
    if form is not None:
        return re.search(form, reply.text) is not None
    return pole is not None and FORMS[pole](reply)
