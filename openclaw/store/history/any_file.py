"""Imports a file or folder of any kind: `python -m openclaw.store import`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from openclaw.errors import ConfigError, StoreError
from openclaw.store.files.conversations import read_conversations
from openclaw.store.files.importing import checked_lines, import_lines
from openclaw.store.files.tokenizing import import_conversations
from openclaw.store.history.bringing import describe, import_histories
from openclaw.store.history.reading import history_at, read_histories, values_of
from openclaw.store.rollout_store import RolloutStore


class _Kind(StrEnum):
    STORE = "store"
    CONVERSATIONS = "conversations"
    HISTORY = "history"


@dataclass(frozen=True)
class Import:
    """A file or folder to import, and the model. `person`: the user in the logs, which contain no name."""

    place: str
    model_path: Path | None = None
    person: str | None = None

    def summary(self) -> dict[str, Any]:
        """Returns counts of sessions and turns; with a model also of the turns that can train it. Raises StoreError,
        ConfigError."""

        path = history_at(self.place)
        match _kind(path):
            case _Kind.STORE:
                return {"files": {"store": 1}} | Counter(f"{line.kind}s" for line in checked_lines(path))
            case _Kind.CONVERSATIONS:
                talks = [talk for _, talk in read_conversations(path)]
                return {
                    "files": {"conversations": 1},
                    "sessions": len(talks),
                    "turns": sum(len(one.turns) for one in talks),
                }
            case _:
                histories = read_histories(path)
                return (
                    describe(histories)
                    if self.model_path is None
                    else import_histories(None, histories, self.model_path)
                )

    def into(self, opened: Callable[[], RolloutStore]) -> dict[str, Any]:
        """Import it into the store that `opened` opens, after checking that the import can be done. Returns counts.
        Raises StoreError, ConfigError."""
        path = history_at(self.place)
        kind = _kind(path)
        if kind is _Kind.STORE:
            return dict(import_lines(opened(), path))
        if self.model_path is None:
            raise ConfigError(
                "set --model-path to the folder of the trained model: imported texts are tokenized for it"
            )
        if kind is _Kind.CONVERSATIONS:
            return dict(import_conversations(opened(), path, self.model_path))
        histories = read_histories(path)
        return import_histories(opened(), histories, self.model_path, self.person)


def _kind(path: Path) -> _Kind:
    """Returns the kind, by the first value of the first file. An unreadable file counts as a history: the parser then
    reports the error."""
    file = path if path.is_file() else next(_json_files(path), None)
    if file is None:
        return _Kind.HISTORY
    try:
        first = next(values_of(file), None)
    except (StoreError, OSError):
        return _Kind.HISTORY
    if isinstance(first, dict) and first.get("kind") == "store":
        return _Kind.STORE
    if isinstance(first, dict) and isinstance(first.get("turns"), list):
        return _Kind.CONVERSATIONS
    return _Kind.HISTORY


def _json_files(folder: Path) -> Any:
    return islice(sorted(one for one in folder.iterdir() if one.suffix in (".json", ".jsonl")), 1)
