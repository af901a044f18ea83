"""Replay: trains turns of this and earlier batches again in extra steps after a batch.

A person gives little feedback, and one step for each turn learns only a part of it; but more steps on the same few
turns create a habit that overrides explicit requests. So each extra step uses several turns, old and new, with their
hints and scores, together with anchors (`anchors.py`), which improves both. Experience replay, Lin 1992.

A turn's score is relative to the weights that sampled it: the importance ratio of a replayed token divides by its
sampling probability, so that PPO's clip (Schulman 2017) bounds the total effect of all its trainings. Otherwise one
score would push in the same direction in every step that uses its turn. A teacher is compared with the current
policy: the gradient is zero when both agree, so repeated steps do not overshoot.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openclaw.errors import ConfigError
from openclaw.methods.anchors import read_wishes
from openclaw.methods.rewards import TRUST
from openclaw.trainer_hooks.arguments import HookSettings, ReplayArguments
from openclaw.trainer_hooks.rows import Row
from openclaw.types import SampleRecord

REPLAY = "replay"
"""The `case` of a row that is trained again."""
_KEPT = ("turn_id", TRUST)
"""Metadata of a turn that is also used in extra steps."""


@dataclass
class ExtraTurn:
    """One turn in an extra step.

    Attributes:
        again: whether the turn itself is trained again.
        plain: ids of its prompt without memory and of its answer; None if it is not distilled.
        anchors: ids of prompts with an explicit request, each with the turn's answer.
    """

    record: SampleRecord
    row: Row
    again: bool
    plain: list[int] | None = None
    anchors: list[list[int]] = field(default_factory=list)


@dataclass
class ExtraStep:
    """The turns of one optimizer step after the batch's; `number` counts from 1."""

    number: int
    turns: list[ExtraTurn]


def own_steps(records: Sequence[SampleRecord], row_of: Callable[[SampleRecord], Row]) -> list[ExtraStep]:
    """Splits one step over the batch's own turns, which are not trained again themselves."""
    return [ExtraStep(1, [ExtraTurn(record, row_of(record), again=False)]) for record in records]


def drawn_steps(
    arguments: ReplayArguments,
    rollout_id: int,
    known: Sequence[SampleRecord],
    row_of: Callable[[SampleRecord], Row],
) -> list[ExtraStep]:
    """Draws --replay-samples of the newest `known` samples for each step; deterministic."""
    newest = sorted(known, key=lambda one: one.id)[-arguments.replay_window :]
    steps = []
    for number in range(1, arguments.replay_steps + 1):
        rng = random.Random(f"step {number} behind rollout {rollout_id}")
        drawn = rng.sample(newest, min(arguments.replay_samples, len(newest)))
        steps.append(ExtraStep(number, [ExtraTurn(record, row_of(record), again=True) for record in drawn]))
    return steps


def replay_row(row: Row, number: int, step: int) -> Row:
    """Returns the row of a replayed turn: its hints, reward and the engine's log-probs."""
    return {
        **row,
        **in_extra_step(row, f"{row['index']}-{REPLAY}-{number}", REPLAY, step),
        "version_spans": [],
    }


def in_extra_step(row: Row, index: str, case: str, step: int) -> Row:
    """Returns the fields that assign a row to an extra step; `case` names its kind."""
    kept = {name: row["metadata"][name] for name in _KEPT if name in row["metadata"]}
    return {"index": index, "group_index": index, "companion": step, "metadata": {"case": case, **kept}}


def check(settings: HookSettings) -> None:
    """Raises ConfigError for extra steps that have nothing to train."""
    on = {
        "--anchor-share": settings.anchors.anchor_share,
        "--replay-steps": settings.replay.replay_steps,
        "--memory": settings.distils_memory,
        "--dream-steps": settings.dreams.is_on,
    }
    flags = [name for name, value in on.items() if value]
    if not flags:
        return
    trainer = settings.trainer
    if trainer.use_tis or trainer.use_rollout_logprobs or trainer.train_epochs > 1:
        raise ConfigError(
            f"{flags[0]} cannot be combined with --use-tis, --use-rollout-logprobs or --train-epochs above 1: "
            "extra steps use their own importance correction"
        )
    if not settings.anchors.anchor_share:
        return
    read_wishes(settings.anchors.anchor_wishes)
    if trainer.teacher_source == "inference":
        raise ConfigError(
            "--anchor-share needs the teacher in the trainer: with --teacher-source inference nothing gives the "
            "teacher's answer there; drop one of them"
        )
