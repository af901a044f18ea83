"""English glosses of frequent Hindi words.

The encoder was trained without Hindi. English words in the place of the known Hindi ones give it the topic of a
message; word order matters little to it.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

_WORD = re.compile(r"\w+")
_TYPICAL = frozenset(
    (
        "hai", "hain", "kya", "nahi", "nahin", "tha", "thi", "bhi", "yaar", "bhai", "aap", "mujhe", "maine", "kyun",
        "kyon", "jyada", "zyada", "bahut", "itna", "itni", "kar", "karo", "gaya", "gayi", "raha", "rahe", "rahi",
        "mat", "likho", "likha", "bolo", "batao", "jawab", "namaste", "lamba", "toh", "pehle", "yeh", "hota", "sab",
        "bas", "aur", "ek",
    )
)  # fmt: skip
"""Frequent words that few other languages have. A text in Latin letters with one of them is Hindi if half of its words
are known or typical."""
_ALIKE = tuple(
    (re.compile(pattern), letters)
    for pattern, letters in (
        (r"(.)\1+", r"\1"), ("z", "j"), ("w", "v"), ("ph", "f"), ("ch+h?", "c"), ("m(?=[bp])", "n"),
        ("(?<=[eiou])n$", ""),
    )
)  # fmt: skip
"""Spellings of the same sound, and an n that only makes the vowel before it nasal."""
_VOWELS = re.compile("[aeiouy]")
_SHORT = 3
"""Longest word that is compared with its vowels only."""


def glossed(text: str, hindi: bool = False) -> str:
    """Returns a text in Latin letters with the known Hindi words in English; the same text if it is not Hindi.

    Args:
        hindi: the text is Hindi; otherwise its words decide.
    """
    words = _WORD.findall(text.lower())
    if not hindi and (_TYPICAL.isdisjoint(words) or 2 * sum(map(_is_known, words)) < len(words)):
        return text
    return " ".join(_meaning(word) or word for word in words)


def _is_known(word: str) -> bool:
    return word in _TYPICAL or _meaning(word) != ""


def _meaning(word: str) -> str:
    """Returns the English word, by sound or else by consonants; "" if it is unknown."""
    known, sound = _meanings(), _sound(word)
    return known.get(sound) or (known.get(_consonants(sound), "") if len(sound) > _SHORT else "")


def _sound(word: str) -> str:
    """Returns the same letters for the usual spellings of a word."""
    for pattern, letters in _ALIKE:
        word = pattern.sub(letters, word)
    return word


def _consonants(sound: str) -> str:
    """Returns the first letter and the consonants: the vowels of Hindi endings and their spellings differ."""
    return f"{sound[0]}{_VOWELS.sub('', sound[1:])}-"


@functools.cache
def _meanings() -> Mapping[str, str]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["words"]
    known: dict[str, str] = {}
    for english, words in table.items():
        for sound in map(_sound, words.split()):
            known.setdefault(sound, english)
            if len(sound) > _SHORT:
                known.setdefault(_consonants(sound), english)
    return known
