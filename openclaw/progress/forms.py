"""The form that a wish asks for, and whether a reply has it.

A wish is read by patterns (`openclaw.common.wish_forms`): brief or long, prose or a list, a greeting or none. What these
do not know has no form, and is measured by likeness instead (see `report.py`).
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
    """One or two sentences of at most 40 words, not cut by the token limit."""
    short = 1 <= word_count(reply.text) <= BRIEF_WORDS and sentence_count(reply.text) <= BRIEF_SENTENCES
    return short and reply.ended


def is_long(reply: Reply) -> bool:
    """At least 80 words."""
    return word_count(reply.text) >= LONG_WORDS


def is_prose(reply: Reply) -> bool:
    """Returns a text without items, headings, bold or a table."""
    patterns = (_ITEM, _MARKUP, _TABLE)
    return bool(reply.text.strip()) and not any(pattern.search(reply.text) for pattern in patterns)


def is_list(reply: Reply) -> bool:
    """At least two items on lines of their own."""
    return len(_ITEM.findall(reply.text)) >= 2


def greets(reply: Reply) -> bool:
    """The first word is a greeting."""
    return answer_form.greets(reply.text)


def greets_not(reply: Reply) -> bool:
    """A text whose first word is no greeting."""
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
        "no_greeting": greets_not,
    }
)
"""Whether a reply has a form."""
OPPOSITES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "brief": frozenset({"long"}),
        "long": frozenset({"short"}),
        "prose": frozenset({"list", "table", "headings"}),
        "list": frozenset({"prose"}),
        "greeting": frozenset({"no_greeting"}),
    }
)
"""By a wish's form: the forms of opposite wishes."""


def pleases(forms: tuple[str, ...], reply: Reply) -> bool:
    """Returns whether a reply has all forms of a wish."""
    return all(FORMS[form](reply) for form in forms)


def obeys(pole: str | None, form: str | None, reply: Reply) -> bool:
    """Returns whether a reply has the form that its own prompt asked for. `form`: a regular expression, before the
    rule."""
    if form is not None:
        return re.search(form, reply.text) is not None
    return pole is not None and FORMS[pole](reply)
