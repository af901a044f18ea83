"""Measures how a person's ratings improve the head of the judge's sentence model.

`bash lab/run.sh benchmarks.learning.learned_judge` adapts the head to four fifths of the lines of one writer of
`openclaw_test.people.everyday_talk`, as if the writer had rated each, and measures it on the other fifth, five times
for each writer. The last line on standard output is one JSON object: shares by writer, of the shipped head and of the
adapted one.
"""

from __future__ import annotations

import json
from typing import get_args

import numpy as np

from claw_lab.benchmarks.learning.reading import SCORES, question
from openclaw.judge.learned.adapting import measured
from openclaw.judge.learned.examples import PERSON_WEIGHT, Example, example_of
from openclaw.judge.sentences.encoder import Encoder
from openclaw.judge.sentences.features import features_of, form_features_of
from openclaw.judge.sentences.head import Head
from openclaw_test.people.everyday_talk import WRITERS, Kind, read_talk


def examples_of(writer: str) -> list[Example]:
    lines = [line for kind in get_args(Kind) for line in read_talk(kind) if line.writer == writer]
    return [
        example
        for line in lines
        for example in example_of(question(line), SCORES.get(line.kind, -1), PERSON_WEIGHT, line.text)
    ]


def run() -> dict[str, object]:
    encoder = Encoder()
    head = Head(encoder)
    results: dict[str, object] = {}
    for writer in WRITERS[4:]:
        examples = examples_of(writer)
        rows = [features_of(one.remark, encoder) for one in examples]
        of_form = [
            form_features_of(row, one.remark, encoder) for row, one in zip(rows, examples, strict=True)
        ]
        results[writer] = measured(head, np.stack(rows), np.stack(of_form), examples)
    return results


if __name__ == "__main__":
    print(json.dumps(run()))
