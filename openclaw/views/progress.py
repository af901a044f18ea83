"""Reports on learning progress, stored in RUN_DIR/progress, one file each, and people's preferences."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson

from claw_base.files import write_json
from openclaw.errors import ClientError
from openclaw.views.source import ViewSource

Json = dict[str, Any]

FOLDER = "progress"
MOST_REPORTS = 200
MOST_PEOPLE = 16
MOST_BYTES = 8 << 20
"""Most bytes of a report's file: that of version 0 includes the answers."""


def progress(source: ViewSource) -> Json:
    """Returns `{"live", "wishes": [{"person", "text", "at"}], "reports"}`: people's preferences, oldest first; stored
    reports without answers, oldest first."""
    asked = source.store.memory.asked_last(MOST_PEOPLE)
    wishes = [
        {"person": person, "text": one.text, "at": one.at}
        for person, statements in asked.items()
        for one in statements
    ]
    reports = [{name: value for name, value in one.items() if name != "answers"} for one in kept(source)]
    return {
        "object": "progress",
        "live": source.store.versions.live(),
        "wishes": wishes,
        "reports": reports,
    }


def recorded(source: ViewSource) -> Json:
    """Returns the newest report with answers of version 0: `{"time", "max_tokens", "answers": {id: answer}}`; without
    such a report `answers` is empty."""
    for one in reversed(kept(source)):
        if one.get("live") == 0 and isinstance(one.get("answers"), dict):
            return {name: one.get(name) for name in ("time", "max_tokens", "answers")}
    return {"time": None, "max_tokens": None, "answers": {}}


def kept(source: ViewSource) -> list[Json]:
    """Returns the newest reports, oldest first; invalid files are skipped."""
    if source.run_dir is None:
        return []
    rows = []
    for path in sorted((source.run_dir / FOLDER).glob("*.json"))[-MOST_REPORTS:]:
        try:
            one = orjson.loads(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else None
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(one, dict):
            rows.append(one)
    return rows


def keep(source: ViewSource, report: Json) -> Path:
    """Writes a report. Raises ClientError (409) without a run folder."""
    if source.run_dir is None:
        raise ClientError(
            "this server has no run folder (--run-dir) to save the report in", code="no_run", status=409
        )
    path = source.run_dir / FOLDER / f"{time.time_ns():020d}.json"
    write_json(path, report)
    return path
