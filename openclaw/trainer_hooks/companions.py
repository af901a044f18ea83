"""What is trained behind a batch: earlier turns again, and anchors that hold explicit wishes.

A person says little, and one step a turn leaves most of it unlearned; but more steps on the same few turns make a
habit that overrides what people ask for in so many words. So each further step takes several turns, old and new, with
their hints and scores, beside anchors (`openclaw.methods.anchors`), and finds what is right for both. Experience
replay, Lin 1992. An answer to a prompt with what was remembered of its person (--memory) is trained behind the prompt
without it, too, toward the teacher that reads it: context distillation, Snell et al. 2022 (arXiv 2209.15189).

A turn's score counts from the weights that wrote it: the importance ratio of a replayed token is to the log-prob that
the engine sampled it with, so that PPO's clip (Schulman 2017) bounds how far all its trainings together move it. Without
that, one score pushes in the same direction in every step that draws its turn. What a teacher says is compared with the
policy of now, which it draws to a point and not beyond.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from typing import Any

from openclaw.errors import ConfigError, HintError
from openclaw.methods.anchors import Anchors, read_wishes
from openclaw.methods.hinted_prompt import prompts_of
from openclaw.methods.method import Method
from openclaw.methods.rewards import TRUST, cancel_out
from openclaw.types import SampleRecord

ANCHOR, REPLAY, MEMORY = "anchor", "replay", "memory"
"""The `case` of a row that is no sample of the batch."""
_KEPT = ("turn_id", TRUST)
"""What a row says of its turn that holds beside the batch too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "companions",
        "What is trained behind each batch, so that hints are learned sooner and wishes stay obeyed.",
    )
    group.add_argument(
        "--replay-steps",
        type=_count(0, 64),
        default=0,
        help="optimizer steps behind each batch's, on turns from this and earlier batches; 0: none",
    )
    group.add_argument(
        "--replay-samples", type=_count(1, 1024), default=4, help="turns in each of these steps"
    )
    group.add_argument(
        "--replay-window",
        type=_count(1, 4096),
        default=16,
        help="the newest samples, of which those of a step are drawn",
    )
    group.add_argument(
        "--anchor-share",
        type=_share,
        default=0.0,
        help="anchors a replayed turn, or a sample without --replay-steps: the turn's answer behind a prompt with an "
        "explicit wish, where a loss that distils holds the policy to its teacher; 0: none",
    )
    group.add_argument(
        "--anchor-wishes",
        default=None,
        help="file with a wish a line, instead of openclaw.methods.anchors.WISHES",
    )


def check(args: Any) -> None:
    """Refuses companions that nothing could teach. Raises ConfigError."""
    flags = [
        flag
        for flag, value in (("--anchor-share", "anchor_share"), ("--replay-steps", "replay_steps"))
        if getattr(args, value, 0)
    ]
    flags += ["--memory"] if distils_memory(args) else []
    if not flags:
        return
    if (
        getattr(args, "use_tis", False)
        or getattr(args, "use_rollout_logprobs", False)
        or getattr(args, "train_epochs", 1) > 1
    ):
        raise ConfigError(
            f"{flags[0]} does not go with --use-tis, --use-rollout-logprobs or --train-epochs above 1: what is trained "
            "behind a batch brings its own correction: scores count from the weights that wrote a turn, what a teacher "
            "says from those that it meets"
        )
    if not getattr(args, "anchor_share", 0.0):
        return
    read_wishes(args.anchor_wishes)
    if getattr(args, "teacher_source", None) == "inference":
        raise ConfigError(
            "--anchor-share needs the teacher in the trainer: with --teacher-source inference nothing says what the "
            "teacher would answer there; drop one of them"
        )


def distils_memory(args: Any) -> bool:
    """Whether answers under a memory are distilled: it is on, and the method has its teacher in the trainer. Without, it
    stands in the prompts for good, unless the weights come to hold it otherwise."""
    return bool(getattr(args, "memory", False)) and teaches_in_trainer(args)


def teaches_in_trainer(args: Any) -> bool:
    """Whether the method has a teacher, and that is in the trainer."""
    if getattr(args, "teacher_source", None) == "inference":
        return False
    method = Method.load(args.method_path)
    return (
        method.needs({"eval_mode": getattr(args, "eval_mode", None) or 1, **method.chosen(args)}).teacher
        != "none"
    )


def companion_rows(
    args: Any, rows: Sequence[dict[str, Any]], records: Sequence[SampleRecord], of_record: Callable[..., Any]
) -> list[dict[str, Any]]:
    """What is trained behind the batch `rows`; the same arguments give the same rows.

    Args:
        records: those of the batch, and behind them earlier ones that may be trained again.
        of_record: (record, rollout id) -> its row.
    """
    share, steps = getattr(args, "anchor_share", 0.0), getattr(args, "replay_steps", 0)
    anchors = (
        Anchors(prompts_of(str(args.hf_checkpoint)), read_wishes(args.anchor_wishes), share)
        if share
        else None
    )
    distils = distils_memory(args)
    rollout_id = rows[0]["rollout_id"]
    found: list[dict[str, Any]] = []

    def add_anchors(record: SampleRecord, row: dict[str, Any], step: int) -> None:
        seed = f"anchors of sample {record.id}, step {step} behind rollout {rollout_id}"
        for tokens in anchors.of(record.turn, seed) if anchors else ():
            found.append(anchor_row(row, tokens, len(found), step))

    def add_memory(record: SampleRecord, row: dict[str, Any], step: int) -> bool:
        tokens = without_memory(args, record) if distils else None
        if tokens is not None:
            taught = record.turn.prompt_ids + record.turn.completion_ids
            found.append(memory_row(row, tokens, taught, len(found), step))
        return tokens is not None

    if not steps:
        for record, row in zip(records, rows, strict=True):
            add_memory(record, row, 1)
            add_anchors(record, row, 1)
        return found
    newest = sorted(records, key=lambda one: one.id)[-args.replay_window :]
    for step in range(1, steps + 1):
        rng = random.Random(f"step {step} behind rollout {rollout_id}")
        drawn = rng.sample(newest, min(args.replay_samples, len(newest)))
        replayed = [of_record(record, rollout_id) for record in drawn]
        remembered = [add_memory(record, row, step) for record, row in zip(drawn, replayed, strict=True)]
        teaches = any(remembered) or _teaches(args, replayed)
        for record, row in zip(drawn, replayed, strict=True):
            found.append(replay_row(row, len(found), step))
            if teaches:
                add_anchors(record, row, step)
    return found


def _teaches(args: Any, rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a step on these turns changes a habit: with a hint, or with scores that differ. Where none does, anchors
    would be all that is trained, and would pull the habit back until people complain again."""
    if any(row.get("teacher_tokens_candidates") for row in rows):
        return True
    key = args.reward_key
    rewards = [float(row["reward"][key] if key else row["reward"]) for row in rows]
    return not cancel_out(args, rewards)


def replay_row(row: dict[str, Any], number: int, step: int) -> dict[str, Any]:
    """The row of a turn that is trained again, hints and reward, and the engine's log-probs, see above."""
    return {
        **row,
        **_beside(row, f"{row['index']}-{REPLAY}-{number}", REPLAY, step),
        "version_spans": [],
    }


def anchor_row(row: dict[str, Any], tokens: list[int], number: int, step: int) -> dict[str, Any]:
    """The row of a turn with a wish in its prompt: `tokens` is that prompt and the turn's answer."""
    return _taught_row(row, tokens, tokens, f"{ANCHOR}-{number}", step)


def without_memory(args: Any, record: SampleRecord) -> list[int] | None:
    """Ids of a turn's prompt without what was remembered, and of its answer; None where nothing was, or where it cannot
    be written."""
    if not record.turn.memory:
        return None
    try:
        return prompts_of(str(args.hf_checkpoint)).answered(record.turn, record.turn.messages)
    except HintError:
        return None


def memory_row(
    row: dict[str, Any], tokens: list[int], taught: list[int], number: int, step: int
) -> dict[str, Any]:
    """The row of a turn without what its prompt remembered (`tokens`), whose teacher reads the prompt as it was."""
    return _taught_row(row, tokens, taught, f"{MEMORY}-{number}", step)


def _taught_row(
    row: dict[str, Any], tokens: list[int], taught: list[int], name: str, step: int
) -> dict[str, Any]:
    """A turn's answer behind another prompt, and that of its teacher. No reward, and no log-probs of an engine: nobody
    scored it, and no engine sampled it behind this prompt."""
    same = (
        "rollout_id",
        "session_id",
        "prompt",
        "response",
        "response_length",
        "loss_mask",
        "temperature",
        "status",
    )
    return {
        **{name: row[name] for name in same},
        **_beside(row, f"{row['index']}-{name}", name.partition("-")[0], step),
        "reward": dict.fromkeys(row["reward"], 0.0) if isinstance(row["reward"], dict) else 0.0,
        "tokens": tokens,
        "teacher_tokens_candidates": [taught],
    }


def _beside(row: dict[str, Any], index: str, case: str, step: int) -> dict[str, Any]:
    return {
        "index": index,
        "group_index": index,
        "companion": step,
        "metadata": {
            "case": case,
            **{name: row["metadata"][name] for name in _KEPT if name in row["metadata"]},
        },
    }


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 8:
        raise argparse.ArgumentTypeError(f"{text} is no number of anchors a sample: 0 to 8")
    return share


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return int(text)

    return read
