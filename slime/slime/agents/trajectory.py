"""The record of an episode: its turns as sampled, converted to one sample or to one sample a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slime.agents.protocol import Step
from slime.types import Sample, fresh


@dataclass
class Turn:
    """One answer of the model and its result.

    Attributes:
        sampled: the prompt ids; the answer's ids, log-probs and weight versions.
        step: the answer as text, its calls, and the environment's observation; None until it is known.
        shown: ids between this answer and the next [T].
        judging: the pending verdict of the judge.
    """

    sampled: Sample
    step: Step | None = None
    shown: list[int] = field(default_factory=list)
    judging: asyncio.Task[dict[str, Any]] | None = None


def as_one(sample: Sample, turns: Sequence[Turn]) -> list[list[int]]:
    """Writes all turns into `sample`; the environment's text gets mask 0. Returns [start, end) of each turn in the
    response. Only for turns whose prompts continue each other, id by id."""
    first = turns[0].sampled
    sample.tokens = first.tokens[: first.prompt_length]
    spans: list[list[int]] = []
    for number, turn in enumerate(turns):
        begin = sample.response_length
        _append(sample, turn.sampled)
        spans.append([begin, sample.response_length])
        if number + 1 < len(turns):
            sample.append_response_tokens(turn.shown, None, trainable=False)
    sample.status, sample.temperature = turns[-1].sampled.status, first.temperature
    sample.images = list(turns[-1].sampled.images)
    return spans


def one_each(sample: Sample, turns: Sequence[Turn]) -> list[Sample]:
    """Returns one sample for each turn, with its prompt and sampled response; all belong to the same trajectory."""
    samples = []
    for number, turn in enumerate(turns):
        turn_sample = fresh(sample)
        turn_sample.tokens = turn.sampled.tokens[: turn.sampled.prompt_length]
        _append(turn_sample, turn.sampled)
        turn_sample.status, turn_sample.temperature = turn.sampled.status, turn.sampled.temperature
        turn_sample.images = list(turn.sampled.images)
        turn_sample.metadata["turn"] = number
        samples.append(turn_sample)
    return samples


def _append(sample: Sample, answer: Sample) -> None:
    ids, log_probs = answer.tokens[answer.prompt_length :], answer.rollout_log_probs or []
    text = answer.response
    spans: list[tuple[int | None, int, int]] = [*answer.version_spans]
    for version, start, end in spans or [(None, 0, len(ids))]:
        sample.append_response_tokens(ids[start:end], log_probs[start:end], True, version, text)
        text = ""
