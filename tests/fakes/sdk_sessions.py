"""Closes a service SDK's sessions at the end of the test that opened them.

The SDKs of Tinker and Fireworks send heartbeats from a thread until the session is closed; after the server has
ended, they would log errors during all later tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


@contextmanager
def sessions_end(library: str) -> Iterator[None]:
    """`library`: package of the SDK; if it is not installed, nothing is done, and tests that need it are skipped."""
    if find_spec(library.partition(".")[0]) is None:
        yield
        return
    holder = import_module(f"{library}.internal_client_holder").InternalClientHolder
    opened: list[Any] = []
    construct = holder.__init__

    def remember(self: Any, *args: object, **words: object) -> None:
        construct(self, *args, **words)
        opened.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, "__init__", remember)
        yield
    for one in opened:
        one.close()
