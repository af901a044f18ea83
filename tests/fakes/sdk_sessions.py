"""Sessions of a service's SDK end with the test that opened them.

The SDKs of Tinker and of Fireworks send heartbeats from a thread for as long as nobody closes the session: of a server
that is gone, they complain for the rest of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def sessions_end(holder: type[Any]) -> Iterator[None]:
    """`holder`: the SDK's class that opens a session."""
    opened: list[Any] = []
    construct = holder.__init__

    def remember(self: Any, *args: Any, **words: Any) -> None:
        construct(self, *args, **words)
        opened.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, "__init__", remember)
        yield
    for one in opened:
        one.close()
