"""Imports a file or folder of any supported format: `python -m openclaw.store import`."""

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
    """A request to import a file or folder.

    Attributes:
        place: path, or openclaw, hermes or claude for the log folder of that program.
        model_path: folder of the trained model; None for an exported store.
        person: person of the turns, for logs, which do not name the user.
    """

    place: str
    model_path: Path | None = None
    person: str | None = None

    def summary(self) -> dict[str, Any]:
        """Returns the number of sessions and turns, and with a model also of turns that can train it. Stores nothing.
        Raises StoreError, ConfigError."""

        path = history_at(self.place)
        match _kind(path):
            case _Kind.STORE:
                return {"files": {"store": 1}} | Counter(f"{line.kind}s" for line in checked_lines(path))
            case _Kind.CONVERSATIONS:
                conversations = [conversation for _, conversation in read_conversations(path)]
                return {
                    "files": {"conversations": 1},
                    "sessions": len(conversations),
                    "turns": sum(len(one.turns) for one in conversations),
                }
            case _:
                histories = read_histories(path)
                return (
                    describe(histories)
                    if self.model_path is None
                    else import_histories(None, histories, self.model_path)
                )

    def into(self, open_store: Callable[[], RolloutStore]) -> dict[str, Any]:
        """Imports the files. Returns the number of stored entries by kind.

        Args:
            open_store: opens or creates the store; called after the files and flags are checked.

        Raises:
            StoreError, ConfigError.
        """
        path = history_at(self.place)
        kind = _kind(path)
        if kind is _Kind.STORE:
            return dict(import_lines(open_store(), path))
        if self.model_path is None:
            raise ConfigError(
                "set --model-path to the folder of the trained model: imported texts are tokenized for it"
            )
        if kind is _Kind.CONVERSATIONS:
            return dict(import_conversations(open_store(), path, self.model_path))
        histories = read_histories(path)
        return import_histories(open_store(), histories, self.model_path, self.person)


def _kind(path: Path) -> _Kind:
    """Returns the kind of a file or folder, by the first JSON value of the first file. An unreadable file counts as a
    history, whose parser then reports the error."""
    file = path if path.is_file() else next(_first_json_file(path), None)
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


def _first_json_file(folder: Path) -> Any:
    return islice(sorted(one for one in folder.iterdir() if one.suffix in (".json", ".jsonl")), 1)
