"""Notices of what an action on the page has led to: shown once, on the page that follows."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from starlette.requests import Request

MOST = 100
"""Notices that were not shown yet; the oldest is dropped then."""


@dataclass(frozen=True)
class Notice:
    """`was`: the version that was live before, which may be brought back."""

    text: str
    was: int | None = None


class Notices:
    """Each waits under a name that cannot be guessed, so that no link shows a notice, and is given once."""

    def __init__(self) -> None:
        self._waiting: dict[str, Notice] = {}

    def leave(self, notice: Notice) -> str:
        """Its name, for the address of the page that follows."""
        name = secrets.token_urlsafe(12)
        self._waiting[name] = notice
        while len(self._waiting) > MOST:
            del self._waiting[next(iter(self._waiting))]
        return name

    def take(self, name: str) -> Notice | None:
        """None if there is none of this name, or it was shown."""
        return self._waiting.pop(name, None)


def notices_of(request: Request) -> Notices:
    """Returns the notices of the app that got this request."""
    notices: Notices = request.app.state.notices
    return notices
