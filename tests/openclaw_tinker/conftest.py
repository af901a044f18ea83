"""What tests of the SDK share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.fakes.sdk_sessions import sessions_end


@pytest.fixture(autouse=True)
def sdk_sessions_end() -> Iterator[None]:
    if find_spec("tinker") is None:
        yield  # tests that need the SDK skip by themselves
        return
    from tinker.lib.internal_client_holder import InternalClientHolder

    with sessions_end(InternalClientHolder):
        yield
