"""Rows of extra steps with a teacher: anchors, which preserve obedience to explicit requests, and answers to prompts
with memory.

An anchor (`openclaw.methods.anchors`) keeps the policy close to its teacher for prompts with an explicit request. An
answer to a prompt with remembered preferences (--memory) is also trained with the prompt without them, toward the
teacher that sees them: context distillation, Snell et al. 2022 (arXiv 2209.15189).
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.errors import HintError
from openclaw.methods.anchors import Anchors, read_wishes
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.rewards import cancel_out
from openclaw.trainer_hooks.arguments import HookSettings, TrainerFlags
from openclaw.trainer_hooks.replay import ExtraStep, in_extra_step, replay_row
from openclaw.trainer_hooks.rows import Row
from openclaw.types import SampleRecord

ANCHOR, MEMORY = "anchor", "memory"
"""The `case` of such a row."""
_SAME = (
    "rollout_id", "session_id", "prompt", "response", "response_length", "loss_mask", "temperature", "status",
)  # fmt: skip


def add_plain_prompts(steps: Sequence[ExtraStep], prompts: HintedPrompts) -> None:
    """Adds to turns whose prompts contain remembered preferences their prompt without these."""
    for step in steps:
        for turn in step.turns:
            turn.plain = without_memory(turn.record, prompts)


def add_anchors(
    steps: Sequence[ExtraStep], settings: HookSettings, prompts: HintedPrompts, rollout_id: int
) -> None:
    """Adds anchors to the turns of each step that changes a habit; deterministic for a rollout."""
    arguments = settings.anchors
    anchors = Anchors(prompts, read_wishes(arguments.anchor_wishes), arguments.anchor_share)
    for step in steps:
        if changes_habit(step, settings.trainer):
            for turn in step.turns:
                seed = f"anchors of sample {turn.record.id}, step {step.number} behind rollout {rollout_id}"
                turn.anchors = anchors.of(turn.record.turn, seed)


def changes_habit(step: ExtraStep, trainer: TrainerFlags) -> bool:
    """Returns whether a step has a hint, different scores or remembered preferences, or follows its own batch.
    Otherwise only anchors would be trained, and would undo the habit until people complain again."""
    if not all(turn.again for turn in step.turns) or any(turn.plain is not None for turn in step.turns):
        return True
    rows, key = [turn.row for turn in step.turns], trainer.reward_key
    if any(row.get("teacher_tokens_candidates") for row in rows):
        return True
    rewards = [float(row["reward"][key] if key else row["reward"]) for row in rows]
    return not cancel_out(trainer.custom_reward_post_process_path, rewards)


def rows_of(steps: Sequence[ExtraStep]) -> list[Row]:
    """Returns all rows of the extra steps, in the order in which they are trained."""
    rows: list[Row] = []
    for step in steps:
        for turn in step.turns:
            if turn.plain is not None:
                sampled = turn.record.turn.prompt_ids + turn.record.turn.completion_ids
                rows.append(memory_row(turn.row, turn.plain, sampled, len(rows), step.number))
        for turn in step.turns:
            if turn.again:
                rows.append(replay_row(turn.row, len(rows), step.number))
            for tokens in turn.anchors:
                rows.append(anchor_row(turn.row, tokens, len(rows), step.number))
    return rows


def without_memory(record: SampleRecord, prompts: HintedPrompts) -> list[int] | None:
    """Returns ids of a turn's prompt without remembered preferences, and of its answer; None if it has none, or if
    that prompt cannot be rendered."""
    if not record.turn.memory:
        return None
    try:
        return prompts.answered(record.turn, record.turn.messages)
    except HintError:
        return None


def anchor_row(row: Row, tokens: list[int], number: int, step: int) -> Row:
    """Returns the row of an anchor: `tokens` is a prompt with an explicit request and the turn's answer."""
    return _taught_row(row, tokens, tokens, ANCHOR, number, step)


def memory_row(row: Row, tokens: list[int], taught: list[int], number: int, step: int) -> Row:
    """Returns the row of a turn without remembered preferences (`tokens`), whose teacher gets the original prompt."""
    return _taught_row(row, tokens, taught, MEMORY, number, step)


def _taught_row(row: Row, tokens: list[int], taught: list[int], case: str, number: int, step: int) -> Row:
    """Returns a turn's answer after another prompt, with that of its teacher. It has no reward, because no score is
    about it, and no log-probs, because no engine sampled it after this prompt."""
    reward = row["reward"]
    return {
        **{name: row[name] for name in _SAME},
        **in_extra_step(row, f"{row['index']}-{case}-{number}", case, step),
        "reward": dict.fromkeys(reward, 0.0) if isinstance(reward, dict) else 0.0,
        "tokens": tokens,
        "teacher_tokens_candidates": [taught],
    }
