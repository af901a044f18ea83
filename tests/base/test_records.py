"""Tests the records in a run folder, also those of a folder that comes from another person."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from claw_base.run_folder import forgetting
from claw_base.run_folder.records import (
    describe,
    live_processes,
    read_records,
    record_part,
    record_path,
    record_self,
    write_record,
)


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


FOREIGN: dict[str, dict[str, object]] = {
    "a name that leads out": {"name": "../../victim"},
    "the name of another process": {"name": "driver"},
    "no name": {"name": ""},
    "a pid as text": {"pid": "1"},
    "a pid of no number": {"pid": None},
    "a time as text": {"create_time": "now", "birth": ""},
    "a time of no number": {"create_time": None, "birth": ""},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_record_of_another_name_or_type_is_ignored(tmp_path: Path, kind: str) -> None:
    """The name of a record becomes a path when its process has ended."""
    own = vars(describe(os.getpid(), "engine", "engine", None, []))
    record_path(tmp_path, "engine").parent.mkdir()
    record_path(tmp_path, "engine").write_text(json.dumps({**own, **FOREIGN[kind]}))
    assert live_processes(tmp_path) == [] and read_records(tmp_path) == []


def test_a_record_of_a_guessed_process_is_not_alive(tmp_path: Path) -> None:
    """Only its true time of birth names a process, so a foreign folder makes no process of this machine end."""
    own = describe(os.getpid(), "engine", "engine", None, [])
    for birth in ("x/1", own.birth + "0"):
        write_record(tmp_path, type(own)(**{**vars(own), "birth": birth}))
        assert live_processes(tmp_path) == []


@pytest.mark.parametrize("adapter", ["../../../victim", "/victim", "", "..", ".", "a/b", "a/.."])
def test_a_request_to_forget_an_adapter_elsewhere_is_ignored(tmp_path: Path, adapter: str) -> None:
    """Everything in the folder of a forgotten adapter is deleted."""
    forgetting.write(tmp_path, forgetting.Forgetting("ada", adapter, rows_deleted=True))
    assert forgetting.waiting(tmp_path) == [] and forgetting.read(tmp_path, "ada") is None
    forgetting.write(tmp_path, forgetting.Forgetting("ada", "ada", rows_deleted=True))
    assert len(forgetting.waiting(tmp_path)) == 1
