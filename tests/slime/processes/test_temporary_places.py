"""Tests that sockets have short addresses: runs work with any TMPDIR, or exit with one line."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from slime.errors import ConfigError
from slime.processes import control

MACOS = "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T"
"""A path as long as macOS's own."""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    place = tmp_path / ("x" * 60)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def longest_socket(run_dir: Path) -> int:
    ray = "r/session_2026-11-27_12-00-00_123456_4194304/sockets/plasma_store"
    return len(os.fsencode(control.scratch_dir(run_dir) / ray))


def test_sockets_of_ray_fit_below_a_long_tmpdir(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert longest_socket(Path("/run")) <= control.SOCKET_ADDRESS
    assert control.scratch_dir(Path("/run")).parent == Path("/tmp")
    assert control.scratch_dir(Path("/run")).name == control.memory_dir(Path("/run")).name
    monkeypatch.setattr(os, "access", lambda place, mode: True)
    monkeypatch.setattr(tempfile, "tempdir", MACOS)
    assert longest_socket(Path("/run")) <= 103


def test_a_short_tmpdir_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    assert control.scratch_dir(Path("/run")).parent == Path("/dev/shm")
    assert control.with_short_temporary({"A": "1"}) == {"A": "1"}


def test_processes_of_a_run_get_a_tmpdir_that_libraries_can_use(temporary: Path) -> None:
    assert control.with_short_temporary({"A": "1", "TMPDIR": str(temporary)}) == {"A": "1", "TMPDIR": "/tmp"}


def test_if_all_temporary_paths_are_too_long_one_line_reports_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "SHORT_PLACES", ("/nowhere",))
    with pytest.raises(ConfigError, match="TMPDIR") as caught:
        control.scratch_dir(Path("/run"))
    assert "\n" not in str(caught.value)
