"""Marked words: each belongs to one person, and is recognised in text, token ids and files."""

from __future__ import annotations

import contextlib
import random
import re
import string
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openclaw.formats.tokenizer import Tokenizer
from openclaw.store.rights import NO_NAME
from tests.fakes.marked_words import texts_in

MARK = "qzk"
LETTERS = 6
WORD = re.compile(f"{MARK}[a-z]{{{LETTERS}}}")
SHOWN = 20
"""Number of findings that are described."""


@dataclass(frozen=True)
class Owner:
    """A person: the name of the client key, and the `user` of the requests; None: the key's own name."""

    key: str
    user: str | None = None

    @property
    def person(self) -> str:
        """Returns the person's name in the store."""
        return self.user or self.key

    @property
    def adapter(self) -> str | None:
        """Returns the adapter that answers and learns from the person; None: the frozen base answers."""
        return self.key or None

    def __str__(self) -> str:
        return ":".join(filter(None, (self.key or "common", self.user)))


@dataclass
class Findings:
    """Crosstalk by place, with examples."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, place: str, detail: str) -> None:
        self.counts[place] += 1
        if len(self.examples) < SHOWN:
            self.examples.append(f"{place}: {detail}")


class Words:
    """The words of all people.

    Attributes:
        owners: by word.
        gone: words that were forgotten with their person.
        unstored: words of requests with X-Train: off.
    """

    def __init__(self, tokenizer: Tokenizer, chance: random.Random) -> None:
        self.tokenizer, self._chance = tokenizer, chance
        self.owners: dict[str, Owner] = {}
        self.gone: set[str] = set()
        self.unstored: set[str] = set()
        self._start = tokenizer.encode(MARK)
        packed = array("i", self._start).tobytes()
        self._packed = re.compile(re.escape(packed) + b".{4,%d}" % (4 * (LETTERS + 1)), re.DOTALL)

    def new(self, owner: Owner) -> str:
        """Returns a new word, whose ids start with those of the mark."""
        while True:
            word = MARK + "".join(self._chance.choices(string.ascii_lowercase, k=LETTERS))
            ids = self.tokenizer.encode(f" {word}.")
            if word not in self.owners and ids[1 : 1 + len(self._start)] == self._start:
                self.owners[word] = owner
                return word

    def known(self, marked: Iterable[str]) -> set[str]:
        """Returns the words among these of a person."""
        return {word for word in marked if word in self.owners}

    def in_text(self, text: str) -> set[str]:
        return self.known(WORD.findall(text))

    def in_ids(self, ids: list[int]) -> set[str]:
        return self.in_text(self.tokenizer.decode(ids))

    def in_value(self, value: Any) -> set[str]:
        """Returns the words in texts and lists of token ids of nested lists and dictionaries."""
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, dict):
            return set().union(*map(self.in_value, value.values()))
        if isinstance(value, (list, tuple)):
            if value and all(isinstance(one, int) for one in value):
                return self.in_ids(list(value))
            return set().union(*map(self.in_value, value))
        return set()

    def in_file(self, path: Path) -> set[str]:
        """Returns the words in a file, also in compressed texts and packed ids."""
        return self._in_texts(texts_in(path.read_bytes()))

    def in_column(self, value: bytes | str) -> set[str]:
        """Returns the words in a column of the store."""
        data = value.encode() if isinstance(value, str) else value
        with contextlib.suppress(zlib.error):
            data = zlib.decompress(data)
        return self._in_texts([data])

    def _in_texts(self, texts: Iterable[bytes]) -> set[str]:
        marked: set[str] = set()
        for text in texts:
            marked |= {word.decode() for word in WORD_BYTES.findall(text)}
            for ids in self._packed.findall(text):
                marked |= set(
                    WORD.findall(self.tokenizer.decode(_unpacked(ids, self.tokenizer.vocabulary_size)))
                )
        return self.known(marked)

    def in_folder(self, folder: Path) -> dict[str, set[str]]:
        """Returns the words in each file below a folder, by path; files without any are omitted."""
        marked = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and (words := self.in_file(path)):
                marked[str(path.relative_to(folder))] = words
        return marked

    def of_others(self, marked: Iterable[str], owner: Owner) -> set[str]:
        """Returns the words of another person, or of this person before being forgotten."""
        return {word for word in marked if self.owners[word] != owner or word in self.gone}

    def forget(self, owners: set[Owner]) -> None:
        self.gone |= {word for word, owner in self.owners.items() if owner in owners}


WORD_BYTES = re.compile(WORD.pattern.encode())


def _unpacked(data: bytes, vocabulary: int) -> list[int]:
    """Returns the token ids at the start of packed data."""
    ids = array("i", data[: len(data) // 4 * 4])
    end = next((at for at, one in enumerate(ids) if not 0 <= one < vocabulary), len(ids))
    return list(ids[:end])


def owner_of(key_name: str | None, person: str | None) -> Owner | None:
    """Returns the owner of a stored row; None if the row names no person."""
    if person is None:
        return None
    key = key_name or NO_NAME
    return Owner(key, None if person == key else person)
