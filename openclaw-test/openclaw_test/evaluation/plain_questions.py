"""Everyday questions from another project, and a user who wants short answers: something that a small language model
can learn from talk.

The questions are those of the package chatterbot-corpus (BSD licence), a folder of YAML files:
`pip download --no-deps chatterbot-corpus` and unpack it. Its trivia have answers, by which right answers are counted.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

Split = Literal["talk", "report"]
OPEN = ("ai", "computers", "emotion", "food", "history", "literature", "money", "movies", "politics",
        "psychology", "science", "sports")  # fmt: skip
FACTS = "trivia"
MOST_WORDS, MOST_SENTENCES, MANY_WORDS = 40, 2, 80
IN_DETAIL = "Explain it in detail, in several paragraphs."
COMPLAINTS = (
    "Too long. Please keep it to one or two sentences.",
    "That is far too much text. Just one or two sentences, please.",
    "Shorter, please. I only have time for a sentence or two.",
    "Please be brief: two sentences at most.",
    "I did not want an essay. Keep your answers short, two sentences at most.",
    "Way too wordy. Answer in one or two short sentences.",
)
THANKS = (
    "Thanks, that is just right.",
    "Perfect, thank you!",
    "Great, short and clear. Thanks!",
    "Thank you, exactly.",
)
_SENTENCE = re.compile(r"[.!?](?:\s|$)")
_ARTICLE = re.compile(r"^(?:the|a|an) ")


@dataclass(frozen=True)
class Question:
    """A question; `answer` is empty if there is no single right one."""

    text: str
    answer: str = ""

    @property
    def split(self) -> Split:
        """Returns the split, by the text alone, so that no run trains on another run's test questions."""
        return "report" if zlib.crc32(self.text.encode()) % 2 else "talk"

    def is_right(self, reply: str) -> bool:
        """Returns whether the reply contains the answer."""
        return bool(self.answer) and _plain(self.answer) in _plain(reply)


def read_questions(corpus: Path, names: tuple[str, ...]) -> list[Question]:
    """Returns all texts that end in a question mark, in the files' order, without duplicates. Raises OSError,
    ValueError."""
    folders = sorted(corpus.glob("**/data/english"))
    if not folders:
        raise ValueError(f"{corpus} contains no data/english: give the unpacked package chatterbot-corpus")
    questions: dict[str, Question] = {}
    for name in names:
        for exchange in yaml.safe_load((folders[0] / f"{name}.yml").read_text("utf-8"))["conversations"]:
            if isinstance(exchange, list) and len(exchange) > 1 and str(exchange[0]).strip().endswith("?"):
                text = str(exchange[0]).strip()
                questions.setdefault(text, Question(text, str(exchange[1]).strip() if name == FACTS else ""))
    return list(questions.values())


def drawn(questions: list[Question], split: Split, count: int, seed: int) -> list[Question]:
    """Returns different questions of a split in random order; all of them if there are fewer than `count`."""
    known = [one for one in questions if one.split == split]
    return random.Random(f"{split} {seed}").sample(known, min(count, len(known)))


def is_brief(reply: str) -> bool:
    """Returns whether a reply satisfies a wish for one or two sentences: no list, no essay, and not empty."""
    words = len(reply.split())
    return 1 <= words <= MOST_WORDS and len(_SENTENCE.findall(reply)) <= MOST_SENTENCES


def beginning(reply: str) -> str:
    """Returns the first two sentences, to compare a long answer with a short one."""
    ends = [match.end() for match in _SENTENCE.finditer(reply)]
    return reply[: ends[MOST_SENTENCES - 1]] if len(ends) >= MOST_SENTENCES else reply


def is_detailed(reply: str) -> bool:
    """Returns whether a reply satisfies an explicit request for several paragraphs."""
    return len(reply.split()) >= MANY_WORDS


def _plain(text: str) -> str:
    words = re.sub(r"[^\w\s]", " ", text.lower()).split()
    return f" {_ARTICLE.sub('', ' '.join(words))} "
