"""Detects the language of a message, and judges by messages in languages with a word list.

For other languages only language-independent signs are used.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Container

from openclaw.judge.rules.wordings import FOLDER, LISTED, SIGNS

_WORD = re.compile(r"(?:[^\W\d_]|[\u0900-\u0963\u064b-\u065f])+(?:'\w+)?")
_SENTENCE = re.compile(r"(?<=[.!?…؟।])\s+|(?<=。)|(?<=[!?])(?=[ぁ-ヿ一-鿿])|\n+")
_QUOTED = re.compile(r"[\"“„«「][^\"“”»」]*[\"“”»」]")
_PAYLOAD = re.compile(r":\s*\S.{7,}|[\"“„«].{8,}|「.{4,}")
_PLAIN = str.maketrans("’？！：؟", "'?!:?")
_DOUBT = re.compile(r"\?[?!]")
_LATIN = re.compile(r"[a-zà-öø-ÿ]", re.IGNORECASE)
_HINDI = re.compile(r"[\u0904-\u0939]")
_ARABIC = re.compile(r"[\u0621-\u064a]")
_OTHER_ARABIC = re.compile(r"[پچژگکیےٹڈںہ]")
"""Letters of Persian and Urdu."""
_RUSSIAN = re.compile(r"[а-яё]", re.IGNORECASE)
_OTHER_CYRILLIC = re.compile(r"[ґєіїўђјљњћџ]", re.IGNORECASE)
_JAPANESE_WORD = re.compile(r"[一-鿿]+|[ァ-ヴー]{2,}")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA = re.compile(r"[ぁ-ヿ]")
_ONLY_CHINESE = re.compile(r"[么吗这们说谢对请给还嗎麼這們什]")
"""Characters that Japanese does not use in this form."""
_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")
_TEXT_LENGTH = 4000
_SHORT_WORDS = 5
_TOPIC_LETTERS = 4
_NEW_FROM = 2
"""Number of unknown words that make a new topic."""
_LETTERS = {
    "de": re.compile("[äöß]"), "es": re.compile("[¿¡ñ]|[áíóú](?=n?\\b)"), "fr": re.compile("œ|\\b(?:j|n|s|m|qu)'"),
    "pl": re.compile("[ąęłńśźż]"), "tr": re.compile("[ğşı]"),
    "pt": re.compile("[ãõ]|á\\b|[nl]h[aeo]s?\\b|ê\\b|[âô]ni|ência"),
}  # fmt: skip
"""Letters that indicate a language."""
_FEW_MARKS = 2
"""Fewest indicating words or letters; a single one may be a loan word."""


def is_japanese(text: str) -> bool:
    """Returns whether a text has Japanese kana, and no character that only Chinese uses."""
    read = text[:_TEXT_LENGTH]
    return _KANA.search(read) is not None and not _ONLY_CHINESE.search(read)


def has_latin_words(text: str) -> bool:
    return _LATIN_WORD.search(text[:_TEXT_LENGTH]) is not None


def without_han(text: str) -> str:
    """Returns a text without Chinese characters."""
    return _HAN.sub(" ", text[:_TEXT_LENGTH])


def language_of(text: str, conversation: str = "") -> str:
    """Returns the language with most indicating words in a message, else (none, or only one) that of the
    conversation; "zh" for any text with Chinese characters that is not Japanese; "other" for a language without a list.
    English by default."""
    script = _language_of_script(text[:_TEXT_LENGTH], conversation)
    if script:
        return script
    language, marks = _most_marked(text)
    if marks < _FEW_MARKS:
        language = _most_marked(f"{conversation} {text}")[0] or _most_marked(conversation)[0] or language
    language = language or "en"
    return language if language in ("en", *LISTED) else "other"


def _most_marked(text: str) -> tuple[str, int]:
    """Returns the language with most indicating words and letters, and their number; "" for a tie."""
    read = text[:_TEXT_LENGTH].lower().replace("’", "'")
    words = _WORD.findall(read)
    counts = {name: sum(word in known for word in words) for name, known in _known_words().items()}
    for name, letters in _LETTERS.items():
        counts[name] += len(letters.findall(read))
    most = max(counts.values())
    best = [name for name, count in counts.items() if count == most]
    return (best[0], most) if most and len(best) == 1 else ("", 0)


def _language_of_script(read: str, conversation: str) -> str:
    """Returns the language identified by the script alone; "" for Latin script."""
    if is_japanese(read) or (_JAPANESE_WORD.search(read) and is_japanese(conversation)):
        return "ja"
    if _HAN.search(read):
        return "zh"
    latin = len(_LATIN.findall(read))
    if len(_RUSSIAN.findall(read)) > latin and not _OTHER_CYRILLIC.search(read):
        return "ru"
    if len(_HINDI.findall(read)) > latin:
        return "hi"
    if len(_ARABIC.findall(read)) > latin and not _OTHER_ARABIC.search(read):
        return "ar"
    return "" if latin or not _WORD.search(read) else "other"


def read_signs(text: str) -> tuple[int, str]:
    """Returns (score, reason) by language-independent signs."""
    read = text[:_TEXT_LENGTH].lower()
    good, bad = SIGNS["praise"].search(read), SIGNS["complaint"].search(read)
    if bool(good) != bool(bad):
        sign = good or bad
        return (1 if good else -1), f"sign: {sign.group() if sign else ''}"
    if not bad and "?" not in read and len(_WORD.findall(read)) <= _SHORT_WORDS:
        thanks = SIGNS["short_thanks"].search(read)
        if thanks:
            return 1, f"praise: {thanks.group().strip()}"
    return 0, "no feedback"


def read_listed(text: str, language: str, conversation: str) -> tuple[int, str]:
    """Returns (score, reason) of a message in a language with a list."""
    reader = _Reader(language, conversation)
    sentences = [
        reader.wordings["delight"].sub(" ☺ ", sentence) for sentence in reader.sentences_before_task(text)
    ]
    plain = [_QUOTED.sub(" ", sentence) for sentence in sentences]
    if reader.doubts(text):
        return -1, "complaint: doubts words of the answer"
    complained = reader.complaint(plain)
    if complained:
        return -1, f"complaint: {complained}"
    score, why = read_signs(text)
    if score < 0:
        return score, why
    if any("☺" in part for part in plain):
        return 1, "praise"
    praise = _first(reader.wordings["praise"], plain)
    if praise:
        return 1, f"praise: {praise}"
    denied = reader.denial(plain)
    return (-1, f"complaint: {denied}") if denied else (score, why)


def _first(pattern: re.Pattern[str], sentences: list[str]) -> str:
    return next((match.group().strip() for part in sentences if (match := pattern.search(part))), "")


class _Reader:
    """Judges sentences of one language, given a conversation."""

    def __init__(self, language: str, conversation: str) -> None:
        self.wordings = LISTED[language]
        self._is_japanese = language == "ja"
        plain = conversation.lower().translate(_PLAIN)
        self._asks_back = plain.rstrip().endswith("?")
        self._known: Container[str] = plain if self._is_japanese else frozenset(_WORD.findall(plain))

    def doubts(self, text: str) -> bool:
        """Returns whether a message only repeats words of the conversation, with "??" or "?!"."""
        plain = text.lower().translate(_PLAIN)
        words = _WORD.findall(plain)
        return bool(_DOUBT.search(plain) and words) and all(word in self._known for word in words)

    def complaint(self, sentences: list[str]) -> str:
        """Returns the complaining words: anywhere, or (`slip`) in a sentence without a new topic."""
        slip = self.wordings["slip"]
        on_topic = [part for part in sentences if not self._new_topics(slip.sub(" ", part))]
        return (
            _first(self.wordings["complaint"], sentences)
            or _first(self.wordings["wish"], sentences)
            or _first(slip, on_topic)
        )

    def denial(self, sentences: list[str]) -> str:
        """Returns a statement that denies something about the answer, with words of the conversation and few
        others."""
        if self._asks_back:
            return ""
        tied = [
            part
            for part in sentences
            if not part.endswith("?")
            and any(word in self._known for word in self._topics(part))
            and len(self._new_topics(part)) < _NEW_FROM
        ]
        return _first(self.wordings["denial"], tied)

    def sentences_before_task(self, text: str) -> list[str]:
        before = []
        for sentence in _SENTENCE.split(text[:_TEXT_LENGTH].lower().translate(_PLAIN)):
            bare = sentence.strip(" ,;:-¡¿،।")
            if self._is_task(bare):
                break
            before.append(bare)
        return before

    def _is_task(self, sentence: str) -> bool:
        asks = sentence.endswith("?") or self.wordings["asks"].search(sentence) is not None
        if not asks:
            return False
        payload = _PAYLOAD.search(sentence)
        if payload and not all(word in self._known for word in _WORD.findall(payload.group())):
            return True
        bare = self.wordings["wish"].sub(" ", self.wordings["complaint"].sub(" ", sentence))
        fewest = 1 if sentence.endswith("?") or self._is_japanese else _NEW_FROM
        return len(self._new_topics(bare)) >= fewest

    def _new_topics(self, sentence: str) -> set[str]:
        return {word for word in self._topics(sentence) if word not in self._known}

    def _topics(self, sentence: str) -> set[str]:
        """Returns the words that may be a topic; for Japanese, runs of kanji and kana."""
        words = (_JAPANESE_WORD if self._is_japanese else _WORD).findall(sentence)
        few = 1 if self._is_japanese else _TOPIC_LETTERS
        return {word for word in words if len(word) >= few and word not in common_words()}


@functools.cache
def _known_words() -> dict[str, frozenset[str]]:
    return _words_in("words")


@functools.cache
def common_words() -> frozenset[str]:
    """Returns words that are no topic: frequent ones, and the vocabulary about answers, in all languages."""
    return frozenset[str]().union(*_known_words().values(), *_words_in("form").values())


def _words_in(table: str) -> dict[str, frozenset[str]]:
    words = tomllib.loads((FOLDER / "signs.toml").read_text("utf-8"))[table]
    return {name: frozenset(text.split()) for name, text in words.items()}
