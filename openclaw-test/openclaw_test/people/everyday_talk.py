"""Lines of eight people in everyday conversations: questions, complaints about the form or content of an answer,
thanks.

Each line of `everyday_talk.jsonl` has `writer` (one of eight, A to H), `kind` and `text`. The complaints were written
by people who do not know the judge's rules. No model is trained on these lines, except through conversations. Rules,
thresholds and examples were chosen on lines of A to D; E to H are for reports.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal[
    "question", "brief", "prose", "greeting", "thanks", "long", "list", "wrong", "tone", "vague", "next"
]
WRITERS = "ABCDEFGH"
THANKS: Kind = "thanks"


@dataclass(frozen=True)
class TalkLine:
    """A line; `kind`: a question, thanks, a further question (`next`), or a complaint: one that asks for brief
    answers, plain prose, a greeting, longer answers or a list, or that is about a mistake, the tone, or nothing
    specific (`vague`)."""

    writer: str
    kind: str
    text: str


@functools.cache
def read_talk(kind: Kind) -> tuple[TalkLine, ...]:
    """Returns all lines of a kind, in the order of the file."""
    lines = Path(__file__).with_name("everyday_talk.jsonl").read_text("utf-8").splitlines()
    rows = (TalkLine(**json.loads(line)) for line in lines)
    return tuple(row for row in rows if row.kind == kind)
