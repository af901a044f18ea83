"""What four people say in everyday conversations: questions, complaints about the form of an answer, and thanks.

Each line of `everyday_talk.jsonl` has `writer` (one of four, A to D), `kind` and `text`. Complaints are in the words of
people who know no rule of the judge. Nothing is trained on these lines but by talk.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["question", "brief", "prose", "greeting", "thanks"]
THANKS: Kind = "thanks"


@dataclass(frozen=True)
class TalkLine:
    """`kind`: a question, thanks, or a complaint that asks for brief answers, plain prose or a greeting."""

    writer: str
    kind: str
    text: str


@functools.cache
def read_talk(kind: Kind) -> tuple[TalkLine, ...]:
    """All lines of a kind, in the order of the file."""
    lines = Path(__file__).with_name("everyday_talk.jsonl").read_text("utf-8").splitlines()
    rows = (TalkLine(**json.loads(line)) for line in lines)
    return tuple(row for row in rows if row.kind == kind)
