from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_base import ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def of_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that names the system's own ports."""
    file = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "SYSTEM_RANGE", file)
    return file


def test_a_free_port_is_none_that_the_system_may_give_to_another_program(of_system: Path) -> None:
    of_system.write_text("24000\t60999\n")
    chosen = [ports.free_port() for _ in range(50)]
    assert all(20000 <= port < 24000 for port in chosen)
    assert len(set(chosen)) > 40  # processes that start together choose different ones


def test_a_taken_port_is_not_chosen(taken: int, of_system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_system.write_text("1 2\n")
    monkeypatch.setattr(ports, "OWN_PORTS", (taken,))
    chosen = ports.free_port()
    assert chosen != taken
    ports.bind("127.0.0.1", chosen).close()


@pytest.mark.parametrize("text", ["1024 65535\n", "nonsense"])
def test_a_system_with_another_range_has_free_ports_too(text: str, of_system: Path) -> None:
    of_system.write_text(text)
    ports.bind("127.0.0.1", ports.free_port()).close()
