"""One turn in full: request and answer, its judgements, and the versions that it trained."""

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
    """Raises ClientError (404)."""
    with store.database.reading() as connection:
        found = find(store, completion_id)
        sample = schema.sample
        query = select(sample).where(sample.c.turn_id == found.id)
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
            select(feedback).where(feedback.c.turn_id == found.id).order_by(feedback.c.id)
        ).mappings()
        return {
            "object": "turn",
            **_small(found),
            "prompt": [shown_message(message) for message in found.messages],
            "tools": [str(tool.get("function", {}).get("name", "")) for tool in found.tools or []],
            "answer": shown_message(found.response_message),
            "next_state": None if found.next_state is None else [shown_message(m) for m in found.next_state],
            "judgements": judgements(connection, [found.id])[found.id],
            "feedback": [
                {"score": one["score"], "text": unpack_json(one["text"]), "created_at": one["created_at"]}
                for one in words
            ],
            "sample": None if about is None else _sample(about),
            "trainings": trainings,
            "outcome": outcome({**_states(found), **_sample_states(about)}),
        }


def find(store: RolloutStore, completion_id: str) -> Turn:
    """Returns the stored turn of a completion. Raises ClientError (404)."""
    with store.database.reading() as connection:
        query = select_turns(schema.turn.c.completion_id == completion_id)
        row = connection.execute(query).mappings().first()
    if row is None:
        message = f"there is no recorded turn of completion {completion_id!r}"
        raise ClientError(message, "completion_id", "not_found", 404)
    return turn_from_row(row)


def _small(found: Turn) -> Json:
    return {
        "completion_id": found.completion_id,
        "session_id": found.session_id,
        "person": found.person,
        "turn_index": found.turn_index,
        "turn_type": found.turn_type,
        "created_at": found.created_at,
        "answered_at": found.answered_at,
        "judged_at": found.judged_at,
        "finish_reason": found.finish_reason,
        "render_mode": found.render_mode,
        "sampling": found.sampling,
        "memory": found.memory,
        "prompt_tokens": len(found.prompt_ids),
        "completion_tokens": len(found.completion_ids),
        "weight_versions": [span[0] for span in found.version_spans],
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


def _states(found: Turn) -> Json:
    return {"state": str(found.state), "state_reason": found.state_reason}


def _sample_states(row: Json | None) -> Json:
    if row is None:
        return {"sample_state": None, "sample_reason": None, "trained_version": None}
    return {
        "sample_state": row["state"],
        "sample_reason": row["reason"],
        "trained_version": row["trained_version"],
    }
