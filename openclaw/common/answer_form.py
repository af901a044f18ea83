"""The form of an answer, as far as complaints can be about it: length, list or not, greeting."""

from __future__ import annotations

import re

from openclaw.common.plain_sentences import Pole

LONG_ANSWER, LONG_CHARACTERS = 50, 300
"""Words, or characters, from which an answer counts as long."""
SHORT_ANSWER, SHORT_SENTENCES = 40, 2
"""Most words and sentences of an answer that satisfies a request for one or two short sentences."""
VERY_SHORT_ANSWER, VERY_SHORT_CHARACTERS = 15, 100
"""Words and characters below which a request for brevity is unlikely."""
LIST_LINES = 2
"""Number of lines with a bullet or number that make a list."""
_ITEM = re.compile(r"^[ \t]*(?:[-*•‣–・]|\d{1,2}[.)、])\s*\S", re.MULTILINE)
_MARKUP = re.compile(
    r"^[ \t]*#{1,6}\s|\*\*[^*\n]+\*\*|^\|?[^|\n]+\|[^\n]*\n(?:[ \t]*\|)?[ \t]*:?-{2,}", re.MULTILINE
)
"""Headings, bold text, a table."""
_SENTENCE_ENDS = re.compile(
    r"""(?<![.!?…])[.!?…]+["'”’)\]]*\s+(?=[^\sa-z])|(?<![。！？।؟])[。！？।؟]+["'”’」』)\]]*\s*(?=[^\s。！？।؟])|\n\s*"""
)
"""Ends of all sentences and lines but the last."""
_WIDE = re.compile(r"[぀-ヿ㐀-鿿가-힯]")
_GREETING = re.compile(
    r"\A\W*(?:(?:hi+|hello|hey+|hiya|howdy|greetings|welcome|dear|good (?:morning|afternoon|evening|day)|hallo|"
    r"hallöchen|guten (?:tag|morgen|abend)|servus|moin|hola+|buen[oa]s|(?:muy )?buen[oa]s? d[ií]as?|bonjour|bonsoir|"
    r"salut|coucou|ciao|buongiorno|oi+e*|olá|bom dia|boa (?:tarde|noite)|merhaba|selam|g[uü]nayd[ıi]n|"
    r"iyi (?:g[uü]nler|ak[sş]amlar)|cześć|dzień dobry|привет|приветик|здравствуйте|добрый (?:день|вечер)|доброе утро|"
    r"مرحبا|أهلا|السلام عليكم|namaste|नमस्ते|नमस्कार)(?!\w)|你好|您好|哈喽|嗨|こんにちは|おはよう|こんばんは|やっほー)",
    re.IGNORECASE,
)


def count_words(text: str) -> int:
    """Returns the number of words; two characters of a script without spaces count as one."""
    wide = len(_WIDE.findall(text))
    return wide // 2 + len(_WIDE.sub(" ", text).split())


def count_sentences(text: str) -> int:
    """Returns the number of sentences; each line is one, at least. "" has 0."""
    text = text.strip()
    return len(_SENTENCE_ENDS.findall(text)) + 1 if text else 0


def is_short(answer: str) -> bool:
    """Returns whether an answer has one or two short sentences."""
    return count_words(answer) <= SHORT_ANSWER and count_sentences(answer) <= SHORT_SENTENCES


def is_long(answer: str) -> bool:
    """Returns whether an answer is long, by words or characters: a small model in a loop writes few words and much
    text."""
    return count_words(answer) >= LONG_ANSWER or len(answer) >= LONG_CHARACTERS


def is_very_short(answer: str) -> bool:
    return count_words(answer) < VERY_SHORT_ANSWER and len(answer) < VERY_SHORT_CHARACTERS


def is_list(answer: str) -> bool:
    """Returns whether there are at least two list items."""
    return len(_ITEM.findall(answer)) >= LIST_LINES


def is_prose(answer: str) -> bool:
    """Returns whether there is no list, heading, bold text or table."""
    return not is_list(answer) and _MARKUP.search(answer) is None


def greets(answer: str) -> bool:
    """Returns whether the first word is a greeting."""
    return _GREETING.match(answer) is not None


def has_form(pole: Pole, answer: str) -> bool:
    """Returns whether an answer has the requested form."""
    if pole == "no_greeting":
        return not greets(answer)
    checks = {"short": is_short, "long": is_long, "prose": is_prose, "list": is_list, "greet": greets}
    return checks[pole](answer)


def already_has(answer: str) -> frozenset[Pole]:
    """Returns the forms that a complaint about this answer cannot ask for, because it has them already. `long` and
    `no_greeting` are never among them: a person may want an even longer answer, and a compliment before an answer
    annoys like a greeting."""
    poles: set[Pole] = {"prose"} if is_prose(answer) else set()
    if is_list(answer):
        poles.add("list")
    if is_very_short(answer):
        poles.add("short")
    if greets(answer):
        poles.add("greet")
    return frozenset(poles)
