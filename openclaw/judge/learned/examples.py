"""Training examples of the head: a person's ratings, votes of judge models, and labelled lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from sqlalchemy import select

from openclaw.errors import ConfigError
from openclaw.judge.questions import JudgeQuestion, majority_score, question_about
from openclaw.judge.rules.judge import RulesBackend, read_by_rules
from openclaw.judge.score_lines import BadLine, Line
from openclaw.judge.sentences.backend import remark_of
from openclaw.judge.sentences.features import Remark
from openclaw.store import RolloutStore, schema
from openclaw.types import ENVIRONMENT, USER_JUDGE, Judgement, TurnState

LABELS = (-1, 0, 1)
MODEL_WEIGHT, PERSON_WEIGHT = 1.0, 4.0
"""Weights of examples: a person's rating outranks votes of a model. Votes of the rules are not used: they are among
the head's features."""


@dataclass(frozen=True)
class Example:
    """A message with its score.

    Attributes:
        label: -1, 0 or 1.
        weight: its weight relative to an ordinary example.
        group: its session; a group is never split between training and test.
    """

    remark: Remark
    label: int
    weight: float
    group: str


def stored_examples(store: RolloutStore, most: int) -> list[Example]:
    """Returns examples from the newest `most` judged turns with a next message, oldest first. Raises StoreError."""
    turn = schema.turn.c
    query = select(turn.id, turn.session_id).where(
        turn.state == str(TurnState.JUDGED), turn.source != ENVIRONMENT
    )
    with store.database.reading() as connection:
        rows = connection.execute(query.order_by(turn.judged_at.desc(), turn.id).limit(most)).all()
    examples: list[Example] = []
    for row in reversed(rows):
        one = store.turns.get(row.id)
        meant = target_of(store.judgements.of_turn(row.id))
        if one is not None and one.next_state and meant is not None:
            examples += example_of(question_about(one), *meant, group=row.session_id)
    return examples


def target_of(judgements: Sequence[Judgement]) -> tuple[int, float] | None:
    """Returns the score and the weight of the example; None if the rules alone voted, with or without a helper.

    If a person rated the turn, only the last rating counts.
    """
    evals = [one for one in judgements if one.kind == "eval" and not one.judge.startswith(RulesBackend.name)]
    rated = [one for one in evals if one.judge == USER_JUDGE]
    for one in reversed(rated or evals):
        if any(vote.score in LABELS for vote in one.votes):
            return int(majority_score(one.votes)), PERSON_WEIGHT if rated else MODEL_WEIGHT
    return None


def labelled_examples(paths: Iterable[str]) -> list[Example]:
    """Returns examples from files in the format of `python -m openclaw.judge`, with a `label` -1, 0 or 1 in each
    line. Lines with the same `group` (default: the response) are in the same part of a split. Raises ConfigError."""
    return [example for path in paths for example in _labelled(path)]


def _labelled(path: str) -> Iterator[Example]:
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"--labelled {path}: {error.strerror or error}") from error
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            row = orjson.loads(text)
            line = Line.parse(text)
            label = row["label"]
            if isinstance(label, bool) or label not in LABELS:
                raise BadLine(f"label is {label!r}; write -1, 0 or 1")
        except (BadLine, KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ConfigError(f"--labelled {path}, line {number}: {error or 'no label'}") from error
        yield from example_of(line.question(), label, PERSON_WEIGHT, str(row.get("group", line.response)))


def example_of(question: JudgeQuestion, label: int, weight: float, group: str) -> list[Example]:
    """Returns one example, or none if the head does not handle the question."""
    remark = remark_of(question, read_by_rules(question).on_person)
    return [] if remark is None else [Example(remark, label, weight, group)]
