"""Stored data by person, its location and retention time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson
from sqlalchemy import func, select

from openclaw.store import schema
from openclaw.store.database import shown
from openclaw.views.source import ViewSource

Json = dict[str, Any]

MOST_PEOPLE = 200


def privacy(source: ViewSource) -> Json:
    """Returns `{"stored_in", "retention_days", "people": [{"person", "sessions", "turns", "first_at", "last_at",
    "wishes"}]}`.

    `person` is None for requests without a name.
    """
    people: list[Json] = []
    place = None
    if source.recorder is not None:
        turn = schema.turn.c
        query = select(
            turn.person,
            func.count(func.distinct(turn.session_id)).label("sessions"),
            func.count().label("turns"),
            func.min(turn.created_at).label("first_at"),
            func.max(turn.created_at).label("last_at"),
        )
        query = query.group_by(turn.person).order_by(func.max(turn.created_at).desc()).limit(MOST_PEOPLE)
        with source.store.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        wishes = _wishes(source)
        people = [
            {**{str(name): value for name, value in row.items()}, "wishes": wishes[row["person"]]}
            for row in rows
        ]
        place = shown(source.store.database.url)
    return {
        "object": "privacy",
        "recording": source.recorder is not None,
        "stored_in": place,
        "retention_days": _retention_days(source),
        "people": people,
    }


def _wishes(source: ViewSource) -> defaultdict[str | None, list[Json]]:
    """Returns the preferences of each person, newest first: those in prompts, and those that a version has learned."""
    by_person: defaultdict[str | None, list[Json]] = defaultdict(list)
    for wish in source.store.memory.wishes():
        shown = ("id", "text", "created_at", "in_prompt", "held_by")
        by_person[wish.person].append({name: getattr(wish, name) for name in shown})
    return by_person


def _retention_days(source: ViewSource) -> float | None:
    """Returns the retention time of the last start of the run; 0: unlimited; None: no trainer was started here."""
    if source.run_dir is None:
        return None
    try:
        return float(orjson.loads((source.run_dir / "arguments.json").read_bytes())["retention_days"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
