from __future__ import annotations

import pytest

from claw_base import ports


@pytest.fixture
def free_port() -> str:
    return str(ports.free_port())
