"""The labelled lines that train the head of the judge's sentence model, and those of its report."""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from claw_lab import ROOT
from openclaw.common.answer_form import LONG_CHARACTERS
from openclaw.judge.sentences.head import KINDS, SCORES

DATA = ROOT / "tests" / "openclaw" / "judge" / "data"
EXAMPLES = ROOT / "tests" / "openclaw" / "judge" / "examples"
TALK = ROOT / "openclaw-test" / "openclaw_test" / "people" / "everyday_talk.jsonl"
READER = ROOT / "openclaw" / "judge" / "reader" / "examples.jsonl"
TRAINING_WRITERS = "ABCD"
"""Writers of everyday talk for training; the others are for reports."""
LONG = "The moon is far from the earth and moves around it in about a month. " * 8
LIST = "Here is what you can do:\n" + "".join(
    f"- step {number} of what you need today\n" for number in range(9)
)
SHORT = "It takes about a month."
ASKED = "How far is the moon?"
_KIND_OF = {
    "short": "brief",
    "greet": "greeting",
    "question": "next",
    "new": "next",
    "person-new-request": "next",
}
"""Names of kinds in other lists, and the kinds that they stand for."""
_ALIKE = 0.7
"""Share of common character trigrams from which two lines count as the same."""
_BUCKETS, _RUN = 4096, 3
_WORD = re.compile(r"\w+")

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A message with the answer that it follows.

    Attributes:
        writer: who wrote it; no writer is on both sides of a split.
        kind: one of `KINDS`; None if the list has only scores.
        rules_know: the rules were written with this line in view.
    """

    writer: str
    language: str
    kind: str | None
    label: int
    request: str
    answer: str
    text: str
    rules_know: bool = False


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def training_lines() -> list[Line]:
    """Returns the lines that train all weights, without those nearly equal to a line for reports."""
    lines = [*written("train"), *about_form("train"), *_people("recorded/tune", True)]
    lines += _user_lines("seen", True)
    lines += [*_people("tuning", True), *_talk(TRAINING_WRITERS, True), *_of_reader()]
    return unlike(lines, report_lines())


def indirect_training_lines() -> list[Line]:
    """Returns the lines that only train the weights of forms, next to `training_lines`."""
    return unlike(indirect("train"), report_lines())


def report_lines() -> list[Line]:
    """Returns all lines that neither train the head nor choose a threshold."""
    lines = [*written("held_out"), *written("held_out_2"), *about_form("held_out"), *indirect("held_out")]
    lines += _people("recorded/held_out")
    lines += _user_lines("held_out")
    lines += [*_people("next_states"), *_people("after_the_rules"), *_talk("EFGH")]
    return lines


def written(part: str) -> list[Line]:
    """Returns the lines of one part of data/written, with answers of realistic length."""
    return [Line(**{**row, "answer": lengthened(row)}) for row in rows(DATA / "written" / f"{part}.jsonl")]


def about_form(part: str) -> list[Line]:
    """Returns the lines of one part of data/form, whose answers are complete."""
    return [Line(**row) for row in rows(DATA / "form" / f"{part}.jsonl")]


def indirect(part: str) -> list[Line]:
    """Returns the lines of one part of data/indirect, whose answers are complete."""
    return [Line(**row) for row in rows(DATA / "indirect" / f"{part}.jsonl")]


def lengthened(row: Row) -> str:
    """Returns a realistic answer for a line of data/written, which only has a summary of it. The summary of a long
    answer becomes a long text on the request. Half of the other answers without a complaint about shortness are
    lengthened too: otherwise long answers would only precede complaints, and the head would learn length as a sign of
    a complaint."""
    answer: str = row["answer"]
    if answer.lstrip().startswith("["):
        return _repeated(row["request"])
    by_chance = zlib.crc32(row["text"].encode()) % 2 == 0
    if row["kind"] == "brief" or (by_chance and row["kind"] != "long"):
        return f"{answer}\n\n{_repeated(answer)}"
    return answer


def _repeated(text: str) -> str:
    return "\n".join([text] * max(2, LONG_CHARACTERS // max(len(text), 1) + 1))


def _people(name: str, rules_know: bool = False) -> Iterator[Line]:
    """Yields the people's messages in a list of next states that have a clear label."""
    for row in rows(DATA / f"{name}.jsonl"):
        texts = [message["content"] for message in row["next"]]
        if row["clear"] and all(message["role"] == "user" for message in row["next"]):
            yield Line(
                writer=name, language=row["language"], kind=_KIND_OF.get(row.get("kind", "")), label=row["label"],
                request=row["asked"], answer=row["response"], text="\n".join(texts), rules_know=rules_know,
            )  # fmt: skip


def _user_lines(part: str, rules_know: bool = False) -> Iterator[Line]:
    for row in rows(DATA / "user_lines" / f"{part}.jsonl"):
        kind = _KIND_OF.get(row["kind"], "thanks" if row["kind"] == "thanks" else None)
        yield Line(
            writer=f"user_lines/{part}", language=row["language"], kind=kind, label=row["reward"],
            request=row["request"], answer=row["answer"], text=row["text"], rules_know=rules_know,
        )  # fmt: skip


def _talk(writers: str, rules_know: bool = False) -> Iterator[Line]:
    for row in rows(TALK):
        if row["writer"] in writers:
            yield _about_the_moon(f"talk {row['writer']}", row["kind"], row["text"], rules_know)


def _of_reader() -> Iterator[Line]:
    for row in rows(READER):
        for text in (*row["texts"], *row["checks"]):
            yield _about_the_moon("reader", row["kind"], text, True)


def _about_the_moon(writer: str, kind: str, text: str, rules_know: bool) -> Line:
    """Returns the line of a list without answers, after an answer of the form that its kind of complaint concerns."""
    kind = _KIND_OF.get(kind, kind)
    answer = {"prose": LIST, "long": SHORT}.get(kind, LONG)
    label = SCORES.get(kind, -1)
    assert kind in KINDS, kind
    return Line(
        writer=writer, language="en", kind=kind, label=label, request=ASKED, answer=answer, text=text,
        rules_know=rules_know,
    )  # fmt: skip


def unlike(lines: Sequence[Line], others: Sequence[Line]) -> list[Line]:
    """Returns the lines that are neither equal nor nearly equal to one of the others."""
    near = likeness([line.text for line in lines], [line.text for line in others]).max(axis=1)
    return [line for line, share in zip(lines, near, strict=True) if share < _ALIKE]


def likeness(texts: Sequence[str], others: Sequence[str]) -> npt.NDArray[np.float32]:
    """Returns `[texts, others]`: the share of common character trigrams (Jaccard); 1 for equal texts."""
    one, other = _runs(texts), _runs(others)
    common = one @ other.T
    shares: npt.NDArray[np.float32] = common / np.maximum(one.sum(1)[:, None] + other.sum(1) - common, 1)
    return shares


def _runs(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    counts = np.zeros((len(texts), _BUCKETS), dtype=np.float32)
    for number, text in enumerate(texts):
        words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
        plain = f" {' '.join(words)} "
        for at in range(max(len(plain) - _RUN + 1, 1)):
            counts[number, zlib.crc32(plain[at : at + _RUN].encode()) % _BUCKETS] = 1
    return counts
