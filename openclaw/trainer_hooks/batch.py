"""A leased batch as the trainer takes it: a dictionary a sample, with the trainer's own field names, and its anchors."""

from __future__ import annotations

import argparse
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from openclaw.errors import ConfigError
from openclaw.methods.anchors import Anchors, read_wishes
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.types import SampleRecord, Turn

ANCHOR = "anchor"
"""The `case` of a row that nobody scored: see `openclaw.methods.anchors`."""


def add_anchor_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "anchors", "What keeps explicit wishes obeyed while a habit is learned."
    )
    group.add_argument(
        "--anchor-share",
        type=_share,
        default=0.0,
        help="anchors a sample: the turn's answer behind a prompt with an explicit wish, where a loss that distils "
        "holds the policy to its teacher; 0: none",
    )
    group.add_argument(
        "--anchor-wishes",
        default=None,
        help="file with a wish a line, instead of openclaw.methods.anchors.WISHES",
    )


def check_anchors(args: Any) -> None:
    """Refuses anchors that nothing could hold. Raises ConfigError."""
    if not getattr(args, "anchor_share", 0.0):
        return
    read_wishes(args.anchor_wishes)
    if getattr(args, "teacher_source", None) == "inference":
        raise ConfigError(
            "--anchor-share needs the teacher in the trainer: with --teacher-source inference nothing says what the "
            "teacher would answer there; drop one of them"
        )
    if getattr(args, "use_tis", False) or getattr(args, "use_rollout_logprobs", False):
        raise ConfigError(
            "--anchor-share does not go with --use-tis or --use-rollout-logprobs: no engine sampled an anchor's answer "
            "behind its prompt, so it has no log-probs of one"
        )


def batch_rows(args: Any, records: Sequence[SampleRecord], rollout_id: int) -> list[dict[str, Any]]:
    """Each record's sample and behind it its anchors; the same records give the same rows."""
    share = getattr(args, "anchor_share", 0.0)
    if not share:
        return [sample_dict(record, rollout_id) for record in records]
    anchors = Anchors(_prompts(str(args.hf_checkpoint)), read_wishes(args.anchor_wishes), share)
    rows = []
    for record in records:
        row = sample_dict(record, rollout_id)
        found = anchors.of(record.turn, f"anchors of sample {record.id}")
        rows += [row, *(anchor_row(row, tokens, number) for number, tokens in enumerate(found))]
    return rows


def anchor_row(row: dict[str, Any], tokens: list[int], number: int) -> dict[str, Any]:
    """The row of a sample's turn as its companion, `tokens` being another prompt and the same answer. No reward, and no
    log-probs of an engine: nobody scored it, and no engine sampled it behind this prompt."""
    same = (
        "group_index",
        "rollout_id",
        "session_id",
        "response",
        "response_length",
        "loss_mask",
        "temperature",
        "status",
    )
    return {
        **{name: row[name] for name in same},
        "index": f"{row['index']}-{ANCHOR}-{number}",
        "prompt": row["prompt"],
        "tokens": tokens,
        "reward": dict.fromkeys(row["reward"], 0.0) if isinstance(row["reward"], dict) else 0.0,
        "teacher_tokens_candidates": [tokens],
        "companion": True,
        "metadata": {"case": ANCHOR, "turn_id": row["metadata"]["turn_id"]},
    }


@functools.lru_cache(maxsize=4)
def _prompts(model_path: str) -> HintedPrompts:
    return HintedPrompts.of(model_path)


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 8:
        raise argparse.ArgumentTypeError(f"{text} is no number of anchors a sample: 0 to 8")
    return share


def batch_metrics(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of a batch: the mean score that people and judge gave, the mean number of hints, how many samples of each kind
    (what a method writes into a sample's metadata as `eval_score` and `case`)."""
    about = [row["metadata"] for row in rows]
    found: dict[str, float] = {}
    scores = [float(one["eval_score"]) for one in about if "eval_score" in one]
    if scores:
        found["rollout/prm_eval_score"] = sum(scores) / len(scores)
    hints = [len(row.get("teacher_tokens_candidates") or ()) for row in rows if not row.get("companion")]
    if any(hints):
        found["rollout/hints"] = sum(hints) / len(hints)
    for case, count in Counter(one["case"] for one in about if "case" in one).items():
        found[f"rollout/samples_{case}"] = float(count)
    return found


def sample_dict(record: SampleRecord, rollout_id: int) -> dict[str, Any]:
    """The fields of a training sample; lists are [completion tokens], `tokens` is prompt and completion."""
    turn = record.turn
    return {
        **sample_dict_of(turn),
        "index": record.id,
        "group_index": record.id,
        "rollout_id": rollout_id,
        "loss_mask": [1] * len(turn.completion_ids) if record.loss_mask is None else record.loss_mask,
        "reward": record.reward,
        **record.teacher_fields(),
        "metadata": {**record.metadata, "turn_id": turn.id, "policy_id": turn.policy_id, "tools": turn.tools},
    }


def sample_dict_of(turn: Turn) -> dict[str, Any]:
    """What a training sample says of its turn, whatever became of it."""
    content = turn.response_message.get("content")
    return {
        "session_id": turn.session_id,
        "prompt": turn.messages,
        "tokens": turn.prompt_ids + turn.completion_ids,
        "response": content if isinstance(content, str) else "",
        "response_length": len(turn.completion_ids),
        "rollout_log_probs": turn.completion_log_probs,
        "version_spans": turn.version_spans,
        "temperature": float(turn.sampling["temperature"]),
        "status": "truncated" if turn.finish_reason == "length" else "completed",
    }
