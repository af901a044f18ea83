"""Examples for fitting a judge: stored votes, people's ratings, and labelled lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import select

from openclaw.errors import ConfigError
from openclaw.judge.backends.learned import LearnedBackend
from openclaw.judge.learned.classifier import CLASSES, Example
from openclaw.judge.learned.features import features_of
from openclaw.judge.questions import JudgeQuestion, question_about
from openclaw.judge.score_lines import BadLine, Line
from openclaw.store import RolloutStore, schema
from openclaw.types import ENVIRONMENT, USER_JUDGE, Judgement, TurnState

RULES_WEIGHT, MODEL_WEIGHT, PERSON_WEIGHT = 0.1, 1.0, 4.0
"""Weights of examples. Votes of the rules weigh little, because the classifier begins with the rules' score; a person's
rating outranks votes of a model."""


def stored_examples(store: RolloutStore, most: int) -> list[Example]:
    """Of the newest `most` judged turns that something followed, the oldest first. Raises StoreError."""
    turn = schema.turn.c
    query = select(turn.id, turn.session_id).where(
        turn.state == str(TurnState.JUDGED), turn.source != ENVIRONMENT
    )
    with store.database.reading() as connection:
        rows = connection.execute(query.order_by(turn.judged_at.desc(), turn.id).limit(most)).all()
    found = []
    for row in reversed(rows):
        one = store.turns.get(row.id)
        meant = target_of(store.judgements.of_turn(row.id))
        if one is not None and one.next_state and meant is not None:
            found.append(example_of(question_about(one), *meant, group=row.session_id))
    return found


def target_of(judgements: Sequence[Judgement]) -> tuple[tuple[float, float, float], float] | None:
    """Returns the share of the votes for each class, and the example's weight; None if only a learned judge voted.

    If a person rated the turn, only the last rating counts.
    """
    evals = [one for one in judgements if one.kind == "eval" and one.judge != LearnedBackend.name]
    told = [one for one in evals if one.judge == USER_JUDGE]
    for one in reversed(told or evals):
        votes = [vote.score for vote in one.votes if vote.score in CLASSES]
        if votes:
            weight = PERSON_WEIGHT if told else RULES_WEIGHT if one.judge == "rules" else MODEL_WEIGHT
            return _shares(votes), weight
    return None


def _shares(votes: Sequence[Any]) -> tuple[float, float, float]:
    low, none, high = (votes.count(name) / len(votes) for name in CLASSES)
    return low, none, high


def example_of(
    question: JudgeQuestion, target: tuple[float, float, float], weight: float, group: str
) -> Example:
    rules, features = features_of(question)
    return Example(rules, features, target, weight, group)


def labelled_examples(paths: Iterable[str]) -> list[Example]:
    """Of files with a line a question, as `python -m openclaw.judge` reads them, with its `label` -1, 0 or 1. Lines with
    one `group` (default: the response) are on one side of a split. Raises ConfigError."""
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
            said = orjson.loads(text)
            line = Line.parse(text)
            label = said["label"]
            if isinstance(label, bool) or label not in CLASSES:
                raise BadLine(f"label is {label!r}; write -1, 0 or 1")
        except (BadLine, KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise ConfigError(f"--labelled {path}, line {number}: {error or 'no label'}") from error
        group = str(said.get("group", line.response))
        yield example_of(line.question(), _shares([label]), MODEL_WEIGHT, group)
