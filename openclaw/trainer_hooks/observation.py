"""Observation loss: the messages after an answer as token ids, targets of ECHO (--echo-coef, arXiv 2605.24517)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.trainer_hooks.arguments import ObservationArguments
from openclaw.trainer_hooks.rows import Row
from openclaw.types import SampleRecord, Turn

OTHER = "\u2042"
"""A placeholder text that people do not write."""


def add_targets(
    arguments: ObservationArguments,
    prompts: HintedPrompts,
    records: Sequence[SampleRecord],
    rows: Sequence[Row],
) -> None:
    """Adds the next messages to each row that contains a whole turn."""
    turns = {record.turn.id: record.turn for record in records}
    for row in rows:
        turn = turns[row["metadata"]["turn_id"]]
        if row["tokens"] == turn.prompt_ids + turn.completion_ids:
            row |= next_state_fields(prompts, turn, arguments.echo_roles, arguments.echo_longest)


def next_state_fields(
    prompts: HintedPrompts, turn: Turn, roles: Sequence[str], longest: int
) -> dict[str, list[int]]:
    """Returns `next_tokens` and `observed` of the turn's sample; {} if no message followed, or the template rewrites
    history.

    The ids are those of the next prompt. Only texts of `roles` are targets, not the template around them.
    """
    messages, start = turn.next_state or [], len(turn.prompt_ids) + len(turn.completion_ids)
    ids = prompts.behind(turn, messages) if messages else None
    if ids is None:
        return {}
    seen = [0] * len(ids)
    for number, message in enumerate(messages):
        if message.get("role") in roles:
            other = [*messages[:number], {**message, "content": OTHER}, *messages[number + 1 :]]
            for at in _differs(ids, prompts.behind(turn, other) or ids):
                seen[at] = 1
    end = min(max((at + 1 for at, one in enumerate(seen) if one), default=start), start + longest)
    if end <= start:
        return {}
    return {"next_tokens": ids[start:end], "observed": [0] * len(turn.completion_ids) + seen[start:end]}


def _differs(ids: Sequence[int], other: Sequence[int]) -> Iterator[int]:
    """Yields the positions of `ids` between the longest common prefix and suffix."""
    shorter = min(len(ids), len(other))
    first = next((at for at in range(shorter) if ids[at] != other[at]), shorter)
    last = next((at for at in range(1, shorter - first + 1) if ids[-at] != other[-at]), shorter - first + 1)
    yield from range(first, len(ids) - last + 1)
