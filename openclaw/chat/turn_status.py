"""Watches what becomes of turns, those of a chat or those of all clients, and puts each change into words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Ask = Callable[[str], dict[str, Any] | None]

_ENDS = ("trained", "dropped")
_LOST = ("side", "aborted", "untrainable", "expired")


class FateWatch:
    """The turns that are still under way, by completion id. `ask` looks one up at the server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._names: dict[str, str] = {}
        self._seen: dict[str, str] = {}

    def add(self, completion_id: str, name: str) -> None:
        """`name` is how the turn is called in the reports."""
        self._names[completion_id] = name

    @property
    def open(self) -> int:
        """Turns whose end is not known yet."""
        return len(self._names)

    def news(self) -> list[str]:
        """One line for each turn that has changed since the last call."""
        lines = []
        for completion_id, name in list(self._names.items()):
            fate = self._ask(completion_id)
            if fate is None:
                continue
            told = describe(fate)
            if told != self._seen.get(completion_id):
                self._seen[completion_id] = told
                lines.append(f"{name}: {told}")
            if is_over(fate):
                del self._names[completion_id]
        return lines


class AllTurns:
    """The turns of all clients. `ask` gives the newest ones, newest first; what was over before is not told."""

    def __init__(self, ask: Callable[[], list[dict[str, Any]]]) -> None:
        self._ask = ask
        self._seen = {fate["completion_id"]: describe(fate) for fate in ask() if is_over(fate)}

    def news(self) -> list[str]:
        """One line for each turn that is new or has changed since the last call, oldest first."""
        lines = []
        found = self._ask()
        for fate in reversed(found):
            told = describe(fate)
            if told != self._seen.get(fate["completion_id"]):
                lines.append(told)
                self._seen[fate["completion_id"]] = told
        self._seen = {fate["completion_id"]: self._seen[fate["completion_id"]] for fate in found}
        return lines


def is_over(fate: dict[str, Any]) -> bool:
    return fate["sample_state"] in _ENDS or (fate["sample_state"] is None and fate["state"] in _LOST)


def describe(fate: dict[str, Any]) -> str:
    """One line: session, type, version, score, and how far the turn has come."""
    versions = "+".join(f"v{version}" for version in fate["weight_versions"]) or "v?"
    parts = [
        f"{fate['turn_type']} turn {fate['turn_index']} of session {fate['session_id']}",
        f"written by {versions}",
    ]
    if fate["score"] is not None:
        parts.append(f"judged {fate['score']:+g} by {fate['judge']}")
    parts += [f"hint: {hint}" for hint in fate["hints"]]
    return ", ".join([*parts, _stage(fate)])


def _stage(fate: dict[str, Any]) -> str:
    sample = fate["sample_state"]
    if sample == "trained":
        return f"trained: v{fate['trained_version']} has learned from it"
    if sample == "dropped":
        return f"not trained ({fate['drop_reason']})"
    if sample is not None:
        return "waits for its batch" if sample == "ready" else "is being trained"
    if fate["state"] in _LOST:
        return f"not trained ({fate['state_reason'] or fate['state']})"
    under_way = {"captured": "waits for what you say next", "answered": "is being judged"}
    return under_way.get(fate["state"], str(fate["state"]))
