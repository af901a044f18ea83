"""People who are to be forgotten: a file for each in the run folder, until nothing of them is left.

RUN_DIR/forgetting/DIGEST.json   {"person", "adapter", "rollouts", "rows_deleted"}

The gateway writes the file before it deletes anything, and notes when the rows of the store are gone. The driver of the
run then removes weights and files, and this file last. Each step can be repeated: after a kill, the next process that
finds the file goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import orjson

from claw_base.files import temporary_beside, write_json

FOLDER = "forgetting"


@dataclass(frozen=True)
class Forgetting:
    """A person who is to be forgotten.

    Attributes:
        adapter: name of the adapter that learned from this person alone, deleted too; None: there is none.
        rollouts: ids of the rollouts whose files may hold words of the person.
        rows_deleted: whether nothing of the person is left in the store.
    """

    person: str
    adapter: str | None = None
    rollouts: Sequence[int] = ()
    rows_deleted: bool = False

    def with_rows_deleted(self, rollouts: Sequence[int]) -> Forgetting:
        """The next step. `rollouts`: those that were found when the rows were deleted."""
        return replace(self, rollouts=sorted({*self.rollouts, *rollouts}), rows_deleted=True)


def write(run_dir: Path, one: Forgetting) -> None:
    """Keeps it until `finish`. Raises OSError."""
    (run_dir / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(_file(run_dir, one.person), asdict(one))


def is_waiting(run_dir: Path, person: str) -> bool:
    """Returns whether a person is not completely forgotten yet."""
    return _file(run_dir, person).exists()


def waiting(run_dir: Path) -> list[Forgetting]:
    """All people who are not completely forgotten yet."""
    files = sorted((run_dir / FOLDER).glob("[!.]*.json"))
    return [one for file in files if (one := _read(file)) is not None]


def read(run_dir: Path, person: str) -> Forgetting | None:
    """Returns how far a person is forgotten; None: nothing is left to do."""
    return _read(_file(run_dir, person))


def finish(run_dir: Path, person: str) -> None:
    """Nothing of the person is left, this file included."""
    file = _file(run_dir, person)
    temporary_beside(file).unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def _file(run_dir: Path, person: str) -> Path:
    """A name may hold any character, a slash too."""
    return run_dir / FOLDER / f"{hashlib.blake2b(person.encode(), digest_size=12).hexdigest()}.json"


def _read(file: Path) -> Forgetting | None:
    try:
        return Forgetting(**orjson.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
