from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from claw_base.run_folder.records import live_processes, record_part, record_self


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="births are told on Linux")
def test_a_process_is_recognised_after_the_clock_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_self(tmp_path, "gateway", "gateway")
    record_part(tmp_path, "gateway", "serving", os.getpid(), os.getpid())
    right = psutil._pslinux.boot_time
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: right() + 3600)
    supervisor, record = live_processes(tmp_path)
    assert (supervisor["role"], record["role"]) == ("door", "gateway")

    assert abs(psutil.Process().create_time() - record["create_time"]) > 3000
    assert record["pid"] == os.getpid()
