"""Sessions of a service's SDK end with the test that opened them.

The SDKs of Tinker and of Fireworks send heartbeats from a thread for as long as nobody closes the session: of a server
that is gone, they complain for the rest of the tests.
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
    """`library`: package of the SDK that opens sessions; without it nothing is done, and tests that need it skip."""
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
