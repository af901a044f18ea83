"""Notices about the result of an action, shown once on the next page."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from starlette.requests import Request

MOST = 100
"""Most pending notices; above this number the oldest are dropped."""


@dataclass(frozen=True)
class Notice:
    """A notice. `was`: the version that was live before the action, which the page offers to restore."""

    text: str
    was: int | None = None


class Notices:
    """Pending notices.

    Each has a random name, so that a forged link cannot show one, and is returned only once.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Notice] = {}

    def leave(self, notice: Notice) -> str:
        """Stores a notice. Returns its name, for the URL of the next page."""
        name = secrets.token_urlsafe(12)
        self._waiting[name] = notice
        while len(self._waiting) > MOST:
            del self._waiting[next(iter(self._waiting))]
        return name

    def take(self, name: str) -> Notice | None:
        """Returns and removes a notice; None if there is none with this name."""
        return self._waiting.pop(name, None)


def notices_of(request: Request) -> Notices:
    """Returns the notices of the application that handles this request."""
    notices: Notices = request.app.state.notices
    return notices
