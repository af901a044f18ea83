"""Finds the part of a message that describes how an answer should be.

Word lists by language (`phrases/advice.toml`) cover many wordings: a feature of an answer next to a word that removes
or limits it ("no emojis", "in two lines"), a comparative ("shorter"), a verb that asks for a change, a correction. A
complaint with none of these contains no advice.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping

from openclaw.common.wish_themes import wish_themes
from openclaw.judge.rules.english import GENERAL
from openclaw.judge.rules.languages import common_words, language_of
from openclaw.judge.rules.wordings import FOLDER

_KINDS = frozenset(
    {
        "more",
        "alone",
        "form",
        "extra",
        "less",
        "count",
        "do",
        "fix",
        "also",
        "too",
        "redo",
        "polite",
        "you",
        "dislike",
    }
)
_SIGN = r"\w\u0300-\u036f\u0900-\u097f\u064b-\u065f"
_WORD = re.compile(rf"[{_SIGN}'’-]+")
_SENTENCE = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])|\n+")
_CLAUSE = re.compile(r"[,;:，、；：—–]\s*|\s-\s|(?<=\w)\.(?=\s|$)")
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」|『[^』]*』")
_TWO_WORDS = r"\S{1,40}\s{1,3}\S{1,40}\s{1,3}\S"
_PAYLOAD = re.compile(rf"[:：]\s{{0,3}}{_TWO_WORDS}|[\"“„«「]{_TWO_WORDS}|[「“][^」”]{{5}}")
"""A text to work on."""
_TURN = re.compile(
    r"(?i)(?:^|[\s,.;!])(?:but|however|though|only|aber|jedoch|pero|mais|mas|però|ma|maar|ale|но|только|ama)\s"
    r"|但是?|不过|就是|けど|でも|लेकिन|\blekin\b|لكن|بس "
)
"""Words that turn praise into a request."""
_UNSPACED = ("zh", "ja")
_VERB_LAST = ("zh", "ja", "hi", "tr", "ar", "ru", "pl")
"""Languages in which a verb, or a limiting word, may follow the form."""
_FEW_WORDS, _NEAR = 6, 24
"""Most words of a clause that is only a request; most characters between two related words."""
_QUESTIONS = ("?", "？", "؟")
_ENDS = " .,!?。，！？؟।"
_FEW_LETTERS, _LONGEST = 40, 200
"""Most characters of a message that may be in another language than its conversation, and of one that only asks for
another form."""
_NEW_WORDS, _NEW_SIGNS = 2, 2
_TOPIC_LETTERS, _NEW_TOPIC = 4, 2
"""Fewest letters of a word that may be a topic; number of new ones that make a sentence a new request."""
_FUNCTION = frozenset(
    "的了吗呢吧啊一下再能可以不请你我把给就也都个是有在用很好要会么想谢过这那太得地着和与点些"
)
_KANA = re.compile(r"[ぁ-ヿー]+")


class Advice:
    """The word lists of one language."""

    def __init__(self, language: str) -> None:
        tables = _tables()
        own = {**tables[language], **tables["any"]}
        self.language = language
        self._so, self._mend = own["so"], own["mend"]
        self._spaced = language not in _UNSPACED
        self._find = {kind: self._pattern(own[kind]) for kind in _KINDS if kind in own}
        polite, verb = own["polite"], own["do"]
        self._begins = re.compile(
            rf"^\W*(?:(?:{polite})(?![{_SIGN}])[\s,]*)*(?:{verb})"
            + (rf"(?![{_SIGN}])" if self._spaced else "")
        )
        self._takes = re.compile(rf"^\W*(?:(?:{polite})(?![{_SIGN}])[\s,]*)*(?:{own['less']})(?![{_SIGN}])")
        question = own.get("question")
        self._question = re.compile(rf"^\W*(?:{question})(?![{_SIGN}])") if question else None
        self._also = re.compile(rf"^\W*(?:{own['also']})" + (rf"(?![{_SIGN}])" if self._spaced else ""))

    def wishes_form(self, sentence: str) -> bool:
        """Returns whether the sentence explicitly asks for another form of the answer."""
        return any(map(self._clause_wishes, _clauses(sentence)))

    def as_sentence(self, comment: str) -> str:
        """Returns a sentence that states what a short comment asks for or complains about."""
        words = comment.strip(_ENDS)
        return (self._mend if self._has("too", words.lower()) else self._so).format(wish=words)

    def advises(self, sentence: str) -> bool:
        """Returns whether a sentence describes how the answer should be, or should have been. A complaint about an
        aspect of the form ("such a long list") counts, because the answer shows what to change."""
        clauses = _clauses(sentence)
        plain = " , ".join(clauses)
        if self._has("fix", plain) or self._has("too", plain) or wish_themes(plain):
            return True
        return any(
            self._clause_wishes(one) or self._asks(one) or self._limits("extra", one) for one in clauses
        )

    def may_be_new(self, comment: str, conversation: str) -> int:
        """Returns the most unknown words allowed in a request for another form: more if it mentions the assistant's
        acts and removes something; none if it only asks for something, because that would be a new request."""
        if not self._spaced:
            return _NEW_SIGNS
        clauses = _clauses(comment)
        if any(map(self._questions, clauses)) or any(
            self._asks(one) and self.unknown(one, conversation) and not self._takes.match(one)
            for one in clauses
        ):
            return 0
        takes = any(
            self._limits("form", one) or self._has("more", one) or self._has("dislike", one)
            for one in clauses
        )
        plain = comment.lower()
        return _NEW_WORDS if takes and (self._has("you", plain) or self._has("dislike", plain)) else 0

    def before_another(self, sentences: list[str], conversation: str) -> list[str]:
        """Returns the sentences before the first that asks for something else."""
        for index, sentence in enumerate(sentences):
            if index and self._is_another(sentence, conversation):
                return sentences[:index]
        return sentences

    def _is_another(self, sentence: str, conversation: str) -> bool:
        unknown = self.unknown(sentence, conversation)
        if not unknown or (self.wishes_form(sentence) and unknown < _NEW_TOPIC):
            return False
        return self.begins_another(sentence) or sentence.endswith(_QUESTIONS)

    def begins_another(self, sentence: str) -> bool:
        """Returns whether a sentence begins like a request for something else."""
        return self._also.match(sentence.lower()) is not None

    def unknown(self, text: str, conversation: str) -> int:
        """Returns the number of words that neither the conversation nor the lists contain; in languages without
        spaces, of characters."""
        plain = text.lower()
        signs = list(plain)
        # Every list reads the whole text: if one removed its words first, the result would depend on the order of lists.
        for pattern in self._find.values():
            for match in pattern.finditer(plain):
                signs[match.start() : match.end()] = " " * (match.end() - match.start())
        rest = "".join(signs)
        if not self._spaced:
            return sum(
                sign not in _FUNCTION and sign not in conversation
                for sign in re.findall(r"[㐀-鿿]", _KANA.sub("", rest))
            )
        known = set(_WORD.findall(conversation.lower()))
        words = {word for word in _WORD.findall(rest) if len(word) >= _TOPIC_LETTERS}
        return len(words - known - common_words() - (GENERAL if self.language == "en" else frozenset()))

    def _pattern(self, text: str) -> re.Pattern[str]:
        """Returns a pattern that begins and ends at word boundaries, in languages with spaces."""
        starts = rf"(?:(?<![{_SIGN}])|(?![{_SIGN}]))"
        return re.compile(rf"{starts}(?:{text})(?![{_SIGN}])" if self._spaced else f"(?:{text})")

    def _has(self, kind: str, text: str) -> bool:
        return kind in self._find and self._find[kind].search(text) is not None

    def _asks(self, clause: str) -> bool:
        if self._has("redo", clause):
            return False
        if self._begins.match(clause):
            return True
        anywhere = self.language in _VERB_LAST or self._has("polite", clause)
        return anywhere and self._has("do", clause)

    def _clause_wishes(self, clause: str) -> bool:
        if self._has("dislike", clause) and self._has("form", clause):
            return True
        if self._questions(clause):
            return False
        bare = self._find["polite"].sub(" ", clause).strip(_ENDS)
        words = len(_WORD.findall(bare)) if self._spaced else len(clause) // 3
        if "alone" in self._find and self._find["alone"].fullmatch(bare):
            return True
        if self._has("more", clause) and (words <= _FEW_WORDS or self._asks(clause)):
            return True
        return self._limits("form", clause) or (self._has("form", clause) and self._asks(clause))

    def _questions(self, clause: str) -> bool:
        """Returns whether a clause asks for information, not for another answer."""
        if self._question is not None:
            return self._question.match(clause) is not None
        return clause.rstrip().endswith(_QUESTIONS) and not self._asks(clause)

    def _limits(self, kind: str, clause: str) -> bool:
        """Returns whether a limiting or counting word stands shortly before a feature of an answer (or after it, if
        the language allows it)."""
        parts = [match.span() for match in self._find[kind].finditer(clause)]
        limits = (
            [match.span() for name in ("less", "count") for match in self._find[name].finditer(clause)]
            if parts
            else ()
        )
        either = self.language in _VERB_LAST
        return any(
            0 <= begin - before <= _NEAR or (either and 0 <= after - end <= _NEAR)
            for begin, end in parts
            for after, before in limits
        )


def _clauses(sentence: str) -> list[str]:
    """Returns a sentence's clauses in lower case, without quotations."""
    return _CLAUSE.split(_QUOTED.sub(" ", sentence.lower().replace("’", "'")))


@functools.cache
def advice_in(language: str) -> Advice | None:
    """Returns the lists of a language; None if it has none."""
    return Advice(language) if language in _tables() and language != "any" else None


def advice_for(text: str, conversation: str) -> Advice | None:
    """Returns the lists for the language of a message. A short request for a form in another language than the
    conversation's ("kürzer" in an English one) uses its own language."""
    language = language_of(text, conversation)
    advice = advice_in(language)
    if language == "zh" or len(text) > _FEW_LETTERS or (advice and advice.wishes_form(text)):
        return advice
    others = (advice_in(name) for name in _tables())
    return next(
        (one for one in others if one and one.wishes_form(text) and not one.unknown(text, "")), advice
    )


def wish_for_form(text: str, conversation: str) -> str:
    """Returns the sentences of a message, up to the next request, if they only ask for another form of the answer; ""
    if they contain anything else."""
    advice = advice_for(text, conversation)
    if advice is None:
        return ""
    wording = " ".join(advice.before_another(sentences_of(text), conversation))
    if (
        not 0 < len(wording) <= _LONGEST
        or _PAYLOAD.search(wording)
        or not advice.wishes_form(wording)
        or advice.begins_another(wording)
    ):
        return ""
    return (
        wording if advice.unknown(wording, conversation) <= advice.may_be_new(wording, conversation) else ""
    )


def request_after_praise(text: str, conversation: str) -> str:
    """Returns the part after a "but" that asks for another form, in a message that begins with praise; "" if there is
    none."""
    turn = _TURN.search(text)
    rest = text[turn.end() :].strip() if turn else ""
    advice = advice_for(rest, conversation) if 0 < len(rest) <= _LONGEST else None
    if advice is None or advice.unknown(rest, conversation) > _NEW_WORDS:
        return ""
    return rest if advice.wishes_form(rest) else ""


def sentences_of(text: str) -> list[str]:
    """Returns the sentences of a message in any language, without separators."""
    return [bare for sentence in _SENTENCE.split(text) if (bare := sentence.strip(" ,;:-"))]


@functools.cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads((FOLDER / "advice.toml").read_text("utf-8"))
