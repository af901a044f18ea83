"""A leased batch as the trainer takes it: a dictionary a sample, with the trainer's own field names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from openclaw.methods.rewards import TRUST
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.trainer_hooks import standing
from openclaw.trainer_hooks.companions import companion_rows, distils_memory
from openclaw.trainer_hooks.next_states import add_next_states
from openclaw.trainer_hooks.trust import Trust, is_on, without_those_below
from openclaw.types import DEFAULT_TRAINER, SampleRecord, Turn


def trainer_of(args: object) -> str:
    """The name of the trainer's leases."""
    return str(getattr(args, "trainer_id", DEFAULT_TRAINER))


def batch_rows(
    args: Any, store: RolloutStore, records: Sequence[SampleRecord], rollout_id: int
) -> list[dict[str, Any]]:
    """Each record's sample, with teachers that know what people asked for (`standing`) and the trust in its person
    (`trust`), and behind all of them what is trained beside them (`companions`), with what was said next where that is a
    target (`next_states`); the same records and samples of earlier rollouts give the same rows."""
    trust = Trust.of_batch(args, store, records) if is_on(args) else None
    teachers = standing.Teachers.of(args, store, records, trust) if standing.stand(args) else None
    made: dict[int, dict[str, Any]] = {}  # several steps draw the same turn

    def row_of(record: SampleRecord, rollout_id: int) -> dict[str, Any]:
        if record.id not in made:
            row = sample_dict(record, rollout_id)
            if trust is not None:
                row["metadata"][TRUST] = trust.of(record.turn.person)
            made[record.id] = row if teachers is None else teachers.taught(record, row)
        return made[record.id]

    rows, known = [row_of(record, rollout_id) for record in records], list(records)
    if getattr(args, "anchor_share", 0.0) or getattr(args, "replay_steps", 0) or distils_memory(args):
        window = args.replay_window if args.replay_steps else 0
        known += _learned_before(args, store, rollout_id, window, trust) if window else []
        rows += companion_rows(args, rows, known, row_of)
    add_next_states(args, known, rows)
    return rows


def _learned_before(
    args: object, store: RolloutStore, rollout_id: int, window: int, trust: Trust | None
) -> list[SampleRecord]:
    """What may be trained again: nothing of people who are not trusted any more."""

    def ask(apart: Collection[Person]) -> list[SampleRecord]:
        return store.samples.learned_before(rollout_id, window, trainer_of(args), apart)

    return without_those_below(trust, ask, lambda found: {record.turn.person for record in found})


def batch_metrics(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of a batch: the mean score that people and judge gave, of hints and of trust, how many samples of each kind
    (what a method writes into a sample's metadata as `eval_score` and `case`)."""
    about = [row["metadata"] for row in rows]
    found: dict[str, float] = {}
    scores = [float(one["eval_score"]) for one in about if "eval_score" in one]
    if scores:
        found["rollout/prm_eval_score"] = sum(scores) / len(scores)
    trust = [
        float(row["metadata"][TRUST]) for row in rows if TRUST in row["metadata"] and not row.get("companion")
    ]
    if trust:
        found["rollout/trust"] = sum(trust) / len(trust)
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
