from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_test.loop.real_loop import Loop, running_loop


@pytest.fixture(scope="session")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """Yields the whole loop as a user starts it, on a free port and in a separate folder. It is started once: tests
    of a loop must also pass after processes of it were killed."""
    run_dir: Path = tmp_path_factory.mktemp("run")
    with running_loop(run_dir, env={"ROLLOUT_ARGS": "--batch-timeout 2"}) as running:
        yield running
