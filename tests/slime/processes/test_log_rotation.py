"""Tests that a large log is copied and truncated while its process writes."""

from __future__ import annotations

from pathlib import Path

from slime.processes.watch import rotate_logs


def test_a_long_log_is_truncated_while_its_writer_continues(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "gateway.log"
    log.parent.mkdir()
    (log.parent / "short.log").write_text("short")
    with log.open("a") as writer:
        for number in range(5):
            writer.write(f"{number}" * 20)
            writer.flush()
            assert rotate_logs(tmp_path, longest=10, kept=3) == [log] and log.read_text() == ""
        writer.write("after")
    copies = sorted(path.name for path in log.parent.glob("gateway.log.*"))
    assert copies == ["gateway.log.1", "gateway.log.2", "gateway.log.3"]
    assert (log.parent / "gateway.log.1").read_text() == "4" * 20 and log.read_text() == "after"
    assert rotate_logs(tmp_path, longest=10) == []
