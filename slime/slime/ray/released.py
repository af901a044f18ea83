"""Which process of an engine gave its memory back, in the run folder: a driver that comes next could not ask SGLang.

An engine that is told twice to give its memory back ends, and so does one that is told to take back what it holds.
"""

from __future__ import annotations

import logging
from pathlib import Path

from claw_base.run_folder import records
from slime.processes import control

logger = logging.getLogger(__name__)


class ReleasedEngine:
    """The note of one engine. `name`: of its process; None: another machine's, of which nothing is noted."""

    def __init__(self, run_dir: Path, name: str | None) -> None:
        self.run_dir, self.name = run_dir, name

    def process(self) -> str:
        """The process that serves now; "" where that is not known."""
        record = None if self.name is None else records.read_record(self.run_dir, self.name)
        return "" if record is None else f"{record.pid}/{record.birth or record.create_time}"

    def note(self, process: str) -> None:
        """This process gives its memory back from now on; "": none does."""
        if self.name is None:
            return
        path = _folder(self.run_dir) / self.name
        if process:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(process, encoding="utf-8")
        else:
            path.unlink(missing_ok=True)


def end_released(run_dir: Path) -> None:
    """Ends engines that an earlier driver left without their memory, or on the way there; they are started anew."""
    for path in sorted(_folder(run_dir).glob("*")):
        record = records.read_record(run_dir, path.name)
        same = ReleasedEngine(run_dir, path.name).process() == path.read_text(encoding="utf-8")
        if record is not None and record.alive() and same:
            logger.warning(
                "%s has given its memory back to an earlier driver: it is started again", path.name
            )
            control.terminate(record)
        path.unlink(missing_ok=True)


def _folder(run_dir: Path) -> Path:
    return run_dir / "released"
