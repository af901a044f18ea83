"""Polls the status of turns, of one chat or of all clients, and describes each change in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openclaw.common.unsampled import advice
from openclaw.common.visible import visible_line

Ask = Callable[[str], dict[str, Any] | None]

_ENDS = ("trained", "dropped")
_LOST = ("side", "aborted", "untrainable", "expired")


class TurnWatch:
    """The turns of one chat that have not ended.

    `ask` returns the status of the turn with a completion id; None while it is not stored.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._names: dict[str, str] = {}
        self._seen: dict[str, str] = {}

    def add(self, completion_id: str, name: str) -> None:
        """Adds a turn; `name` identifies it in reports."""
        self._names[completion_id] = name

    @property
    def open(self) -> int:
        """Returns the number of turns that have not ended."""
        return len(self._names)

    def news(self) -> list[str]:
        """Returns one line for each turn whose status changed since the last call."""
        lines = []
        for completion_id, name in list(self._names.items()):
            status = self._ask(completion_id)
            if status is None:
                continue
            outcome = progress_of(status)
            if outcome != self._seen.get(completion_id):
                self._seen[completion_id] = outcome
                lines.append(f"{name}: {outcome}")
            if is_over(status):
                del self._names[completion_id]
        return lines


class AllTurns:
    """The turns of all clients.

    `ask` returns the status of the newest turns, newest first. Turns that ended before the start are not reported. A
    warning is reported once if most requests are greedy.
    """

    def __init__(self, ask: Callable[[], list[dict[str, Any]]]) -> None:
        self._ask = ask
        self._advised = False
        self._seen = {status["completion_id"]: describe(status) for status in ask() if is_over(status)}

    def news(self) -> list[str]:
        """Returns one line for each new or changed turn since the last call, oldest first."""
        lines = []
        turns = self._ask()
        advised = advice([one.get("unsampled") for one in turns if one["turn_type"] == "main"])
        if advised is not None and not self._advised:
            lines.append(advised)
        self._advised = advised is not None
        for status in reversed(turns):
            description = describe(status)
            if description != self._seen.get(status["completion_id"]):
                lines.append(description)
                self._seen[status["completion_id"]] = description
        self._seen = {status["completion_id"]: self._seen[status["completion_id"]] for status in turns}
        return lines


def is_over(status: dict[str, Any]) -> bool:
    """Returns whether the status of a turn is final."""
    return status["sample_state"] in _ENDS or (status["sample_state"] is None and status["state"] in _LOST)


def describe(status: dict[str, Any]) -> str:
    """Returns one line about a turn: session, type, version, score and training status."""
    versions = "+".join(f"v{version}" for version in status["weight_versions"]) or "v?"
    place = f"{status['turn_type']} turn {status['turn_index']} of session {status['session_id']}"
    return visible_line(f"{place}, written by {versions}, {progress_of(status)}")


def progress_of(status: dict[str, Any]) -> str:
    """Returns the score, hints and training status of a turn, without its session."""
    parts = []
    if status["score"] is not None:
        reason = status.get("reason")
        why = f" ({reason})" if reason else ""
        parts.append(f"judged {status['score']:+g} by {status['judge']}{why}")
    parts += [f'hint: "{hint}"' for hint in status["hints"]]
    return visible_line(", ".join([*parts, _stage(status)]))


def _stage(status: dict[str, Any]) -> str:
    sample = status["sample_state"]
    if sample == "trained":
        return f"trained: v{status['trained_version']} has learned from it"
    if sample == "dropped":
        return f"not trained ({status['drop_reason']})"
    if sample == "quarantined":
        return f"in quarantine: its update was rejected or undone ({status['drop_reason']})"
    if sample is not None:
        return "waits for its batch" if sample == "ready" else "is being trained"
    if status["state"] in _LOST:
        return f"not trained ({status['state_reason'] or status['state']})"
    if status["state"] == "answered" and status["state_reason"]:
        return f"not judged yet: {status['state_reason']}"
    pending = {"captured": "waits for your next message", "answered": "is being judged"}
    return pending.get(status["state"], str(status["state"]))
