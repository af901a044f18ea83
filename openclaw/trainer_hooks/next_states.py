"""What was said behind an answer, as ids for the trainer: targets of ECHO (--echo-coef, arXiv 2605.24517)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from openclaw.methods.hinted_prompt import HintedPrompts, prompts_of
from openclaw.types import SampleRecord, Turn

ROLES = ("user", "tool")
OTHER = "\u2042"
"""A text that nobody says."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("next states", "What --echo-coef learns to predict.")
    group.add_argument(
        "--echo-roles", nargs="+", choices=ROLES, default=list(ROLES), help="whose words count as targets"
    )
    group.add_argument(
        "--echo-longest", type=int, default=512, help="tokens behind an answer that are read at most"
    )


def add_next_states(args: Any, records: Sequence[SampleRecord], rows: Sequence[dict[str, Any]]) -> None:
    """Gives each of the rows that stands for a whole turn what was said next, with --echo-coef."""
    if not getattr(args, "echo_coef", 0.0):
        return
    turns = {record.turn.id: record.turn for record in records}
    for row in rows:
        turn = turns[row["metadata"]["turn_id"]]
        if row["tokens"] == turn.prompt_ids + turn.completion_ids:
            row |= next_state_fields(
                prompts_of(str(args.hf_checkpoint)), turn, args.echo_roles, args.echo_longest
            )


def next_state_fields(
    prompts: HintedPrompts, turn: Turn, roles: Sequence[str], longest: int
) -> dict[str, list[int]]:
    """`next_tokens` and `observed` of the turn's sample; {} where nothing was said, or the template rewrites history.

    The ids are those of the next prompt. Only the texts of `roles` are to be predicted: not the template around them.
    """
    said, start = turn.next_state or [], len(turn.prompt_ids) + len(turn.completion_ids)
    ids = prompts.behind(turn, said) if said else None
    if ids is None:
        return {}
    seen = [0] * len(ids)
    for number, message in enumerate(said):
        if message.get("role") in roles:
            other = [*said[:number], {**message, "content": OTHER}, *said[number + 1 :]]
            for at in _differs(ids, prompts.behind(turn, other) or ids):
                seen[at] = 1
    end = min(max((at + 1 for at, one in enumerate(seen) if one), default=start), start + longest)
    if end <= start:
        return {}
    return {"next_tokens": ids[start:end], "observed": [0] * len(turn.completion_ids) + seen[start:end]}


def _differs(ids: Sequence[int], other: Sequence[int]) -> Iterator[int]:
    """The places of `ids` between the longest common beginning and the longest common end."""
    shorter = min(len(ids), len(other))
    first = next((at for at in range(shorter) if ids[at] != other[at]), shorter)
    last = next((at for at in range(1, shorter - first + 1) if ids[-at] != other[-at]), shorter - first + 1)
    yield from range(first, len(ids) - last + 1)
