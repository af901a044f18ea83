from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from openclaw.common.run_folder import live_processes, note_part


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="births are told on Linux")
def test_a_process_is_known_after_somebody_set_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "processes").mkdir()
    note_part(tmp_path, "gateway", "serving", "gateway", os.getpid())
    right = psutil._pslinux.boot_time
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: right() + 3600)
    (record,) = live_processes(tmp_path)
    assert abs(psutil.Process().create_time() - record["create_time"]) > 3000
    assert record["pid"] == os.getpid()
