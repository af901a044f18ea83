"""Converts a leased sample to the trainer's row, with the trainer's field names, and computes metrics of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from openclaw.methods.rewards import TRUST
from openclaw.types import UNSAMPLED, SampleRecord, Turn

Row = dict[str, Any]
"""A training sample with the trainer's field names."""


def batch_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Returns means over a batch of scores, hints and trust, and the number of samples of each kind (`eval_score` and
    `case` in a sample's metadata, set by a method)."""
    about = [row["metadata"] for row in rows]
    metrics: dict[str, float] = {}
    scores = [float(one["eval_score"]) for one in about if "eval_score" in one]
    if scores:
        metrics["rollout/prm_eval_score"] = sum(scores) / len(scores)
    own = [row for row in rows if not row.get("companion")]
    trust = [float(row["metadata"][TRUST]) for row in own if TRUST in row["metadata"]]
    if trust:
        metrics["rollout/trust"] = sum(trust) / len(trust)
    hints = [len(row.get("teacher_tokens_candidates") or ()) for row in own]
    if any(hints):
        metrics["rollout/hints"] = sum(hints) / len(hints)
    for case, count in Counter(one["case"] for one in about if "case" in one).items():
        metrics[f"rollout/samples_{case}"] = float(count)
    for reason, count in Counter(one[UNSAMPLED] for one in about if UNSAMPLED in one).items():
        metrics[f"rollout/samples_{reason}"] = float(count)
    return metrics


def sample_dict(record: SampleRecord, rollout_id: int) -> Row:
    """Returns the fields of a training sample; lists are [completion tokens], `tokens` is prompt and completion."""
    turn = record.turn
    return {
        **sample_dict_of(turn, record.pictures),
        "index": record.id,
        "group_index": record.id,
        "rollout_id": rollout_id,
        "loss_mask": [1] * len(turn.completion_ids) if record.loss_mask is None else record.loss_mask,
        "reward": record.reward,
        **record.teacher_fields(),
        "metadata": {**record.metadata, "turn_id": turn.id, "policy_id": turn.policy_id, "tools": turn.tools},
    }


def sample_dict_of(turn: Turn, pictures: Mapping[str, str]) -> Row:
    """Returns the fields of a training sample that depend only on its turn and the data URLs of its pictures."""
    content = turn.response_message.get("content")
    images = [
        {
            "start": one.start,
            "length": one.length,
            "grid": (1, one.rows, one.columns),
            "file": pictures[one.sha256],
        }
        for one in turn.pictures
    ]
    return {
        **({"images": images} if images else {}),
        "session_id": turn.session_id,
        "prompt": turn.messages,
        "tokens": turn.prompt_ids + turn.completion_ids,
        "response": content if isinstance(content, str) else "",
        "response_length": len(turn.completion_ids),
        "rollout_log_probs": turn.completion_log_probs,
        "version_spans": turn.version_spans,
        "temperature": turn.temperature,
        "status": "truncated" if turn.finish_reason == "length" else "completed",
    }
