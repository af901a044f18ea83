"""Reports on learning progress, one file each, and the preferences of people.

Reports are in RUN_DIR/progress. Those about a trained adapter are in the folder of the adapter, and are deleted with
it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson

from claw_base.files import write_json
from openclaw.engine.live_adapter import home_of
from openclaw.errors import ClientError
from openclaw.types import DEFAULT_TRAINER, policy_of
from openclaw.views.source import ViewSource

Json = dict[str, Any]

FOLDER = "progress"
MOST_REPORTS = 200
MOST_PEOPLE = 16
MOST_BYTES = 8 << 20
"""Most bytes of the file of a report; reports on version 0 include the answers."""


def progress(source: ViewSource, adapter: str | None = None) -> Json:
    """Returns `{"live", "wishes": [{"person", "text", "at"}], "reports"}` of the served model or a trained adapter.

    `wishes` and `reports` are ordered oldest first; reports come without answers.
    """
    trainer = None if adapter is None else policy_of(DEFAULT_TRAINER, adapter)
    asked = source.store.memory.asked_last(MOST_PEOPLE, trainer=trainer)
    wishes = [
        {"person": person, "text": one.text, "at": one.at}
        for person, statements in asked.items()
        for one in statements
    ]
    reports = [
        {name: value for name, value in one.items() if name != "answers"}
        for one in stored_reports(source, adapter)
    ]
    return {
        "object": "progress",
        "live": source.store.versions.live(trainer),
        "wishes": wishes,
        "reports": reports,
    }


def recorded(source: ViewSource, adapter: str | None = None) -> Json:
    """Returns the newest report with answers of version 0: `{"time", "max_tokens", "answers": {id: answer}}`.

    Without such a report `answers` is empty.
    """
    for one in reversed(stored_reports(source, adapter)):
        if one.get("live") == 0 and isinstance(one.get("answers"), dict):
            return {name: one.get(name) for name in ("time", "max_tokens", "answers")}
    return {"time": None, "max_tokens": None, "answers": {}}


def stored_reports(source: ViewSource, adapter: str | None = None) -> list[Json]:
    """Returns the newest reports, oldest first; invalid files are skipped."""
    folder = _folder(source, adapter)
    if folder is None:
        return []
    rows = []
    for path in sorted(folder.glob("*.json"))[-MOST_REPORTS:]:
        try:
            one = orjson.loads(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else None
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(one, dict):
            rows.append(one)
    return rows


def save_report(source: ViewSource, report: Json, adapter: str | None = None) -> Path:
    """Writes a report into the run folder. Raises ClientError (409) without a run folder."""
    folder = _folder(source, adapter)
    if folder is None:
        raise ClientError(
            "without a run folder (--run-dir) the server cannot save the report", code="no_run", status=409
        )
    path = folder / f"{time.time_ns():020d}.json"
    write_json(path, report)
    return path


def _folder(source: ViewSource, adapter: str | None) -> Path | None:
    """Returns the folder of the reports; None without a run folder."""
    if source.run_dir is None:
        return None
    return (source.run_dir if adapter is None else home_of(source.run_dir, adapter)) / FOLDER
