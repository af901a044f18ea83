"""A real PostgreSQL server for tests, which are skipped if it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from claw_lab.benchmarks.faults.postgresql import PostgresServer


@contextmanager
def running_server() -> Iterator[str]:
    """Yields the URL of a real PostgreSQL server in a temporary folder, on a Unix socket."""
    try:
        server = PostgresServer()
    except FileNotFoundError as error:
        pytest.skip(f"NO POSTGRESQL SERVER TO TEST WITH: {error}")
    try:
        yield server.url
    finally:
        server.remove()
