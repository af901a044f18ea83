"""One turn with all its data: request, answer, judgements, feedback, sample, and the versions trained on it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from openclaw.errors import ClientError
from openclaw.store import RolloutStore, schema
from openclaw.store.rows import select_turns, turn_from_row, unpack_json, unpack_teacher
from openclaw.types import Turn
from openclaw.views.sessions import judgements, outcome
from openclaw.views.texts import shown_message

Json = dict[str, Any]


def turn(store: RolloutStore, completion_id: str) -> Json:
    """Returns all data of one turn. Raises ClientError (404)."""
    with store.database.reading() as connection:
        stored = find(store, completion_id)
        sample = schema.sample
        query = select(sample).where(sample.c.turn_id == stored.id)
        row = connection.execute(query).mappings().first()
        about = None if row is None else {str(name): value for name, value in row.items()}
        trainings: list[Json] = []
        if about is not None:
            training = schema.training.c
            of_sample = select(training.trainer, training.version, training.rollout_id, training.created_at)
            of_sample = of_sample.where(training.sample_id == about["id"]).order_by(training.created_at)
            rows = connection.execute(of_sample).mappings()
            trainings = [{str(name): value for name, value in one.items()} for one in rows]
        feedback = schema.feedback
        words = connection.execute(
            select(feedback).where(feedback.c.turn_id == stored.id).order_by(feedback.c.id)
        ).mappings()
        return {
            "object": "turn",
            **_metadata(stored),
            "prompt": [shown_message(message) for message in stored.messages],
            "tools": [str(tool.get("function", {}).get("name", "")) for tool in stored.tools or []],
            "answer": shown_message(stored.response_message),
            "next_state": None
            if stored.next_state is None
            else [shown_message(m) for m in stored.next_state],
            "judgements": judgements(connection, [stored.id])[stored.id],
            "feedback": [
                {"score": one["score"], "text": unpack_json(one["text"]), "created_at": one["created_at"]}
                for one in words
            ],
            "sample": None if about is None else _sample(about),
            "trainings": trainings,
            "outcome": outcome({**_states(stored), **_sample_states(about)}),
        }


def find(store: RolloutStore, completion_id: str) -> Turn:
    """Returns the stored turn with this completion id. Raises ClientError (404)."""
    with store.database.reading() as connection:
        query = select_turns(schema.turn.c.completion_id == completion_id)
        row = connection.execute(query).mappings().first()
    if row is None:
        message = f"there is no recorded turn with completion_id {completion_id!r}"
        raise ClientError(message, "completion_id", "not_found", 404)
    return turn_from_row(row)


def _metadata(stored: Turn) -> Json:
    return {
        "completion_id": stored.completion_id,
        "session_id": stored.session_id,
        "person": stored.person,
        "turn_index": stored.turn_index,
        "turn_type": stored.turn_type,
        "created_at": stored.created_at,
        "answered_at": stored.answered_at,
        "judged_at": stored.judged_at,
        "finish_reason": stored.finish_reason,
        "render_mode": stored.render_mode,
        "sampling": stored.sampling,
        "memory": stored.memory,
        "prompt_tokens": len(stored.prompt_ids),
        "completion_tokens": len(stored.completion_ids),
        "weight_versions": [span[0] for span in stored.version_spans],
    }


def _sample(row: Json) -> Json:
    candidates = unpack_teacher(row["teacher"]).get("teacher_tokens_candidates")
    return {
        "id": row["id"],
        "state": row["state"],
        "reason": row["reason"],
        "reward": unpack_json(row["reward"]),
        "metadata": unpack_json(row["extra"]),
        "trained_version": row["trained_version"],
        "rollout_id": row["rollout_id"],
        "teachers": 0 if candidates is None else len(candidates),
    }


def _states(stored: Turn) -> Json:
    return {"state": str(stored.state), "state_reason": stored.state_reason}


def _sample_states(row: Json | None) -> Json:
    if row is None:
        return {"sample_state": None, "sample_reason": None, "trained_version": None}
    return {
        "sample_state": row["state"],
        "sample_reason": row["reason"],
        "trained_version": row["trained_version"],
    }
