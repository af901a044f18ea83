"""Shared fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.sdk_sessions import sessions_end


@pytest.fixture(autouse=True)
def sdk_sessions_end() -> Iterator[None]:
    with sessions_end("tinker.lib"):
        yield
