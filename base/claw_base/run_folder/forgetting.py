"""Requests to forget people: one file a person in the run folder, until all data of that person is removed.

RUN_DIR/forgetting/DIGEST.json   {"person", "adapter", "rollouts", "rows_deleted"}

The gateway writes the file before it deletes anything, and records when the rows of the store are gone. The driver of
the run then removes weights and files, and this file last. Each step can be repeated: after a kill, the next process
that finds the file continues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import orjson

from claw_base.files import is_file_name, temporary_path, write_json

FOLDER = "forgetting"


@dataclass(frozen=True)
class Forgetting:
    """A pending request to forget a person.

    Attributes:
        adapter: name of the person's own adapter, which is deleted too; None: there is none.
        rollouts: ids of the rollouts whose files may contain text of the person.
        rows_deleted: whether the store's rows of the person are deleted.
    """

    person: str
    adapter: str | None = None
    rollouts: Sequence[int] = ()
    rows_deleted: bool = False

    def with_rows_deleted(self, rollouts: Sequence[int]) -> Forgetting:
        """Returns the request after the rows were deleted. `rollouts`: ids found while deleting."""
        return replace(self, rollouts=sorted({*self.rollouts, *rollouts}), rows_deleted=True)


def write(run_dir: Path, request: Forgetting) -> None:
    """Writes the request; it stays until `finish`. Raises OSError."""
    (run_dir / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        write_json(_file(run_dir, request.person), asdict(request))
    except FileNotFoundError:  # `finish` of an earlier request removed the temporary file
        write_json(_file(run_dir, request.person), asdict(request))


def is_waiting(run_dir: Path, person: str) -> bool:
    """Returns whether a request to forget this person is pending."""
    return _file(run_dir, person).exists()


def waiting(run_dir: Path) -> list[Forgetting]:
    """Returns all pending requests."""
    files = sorted((run_dir / FOLDER).glob("[!.]*.json"))
    return [request for file in files if (request := _read(file)) is not None]


def read(run_dir: Path, person: str) -> Forgetting | None:
    """Returns the pending request of a person; None if there is none."""
    return _read(_file(run_dir, person))


def finish(run_dir: Path, person: str) -> None:
    """Removes the request, after all data of the person has been removed."""
    file = _file(run_dir, person)
    temporary_path(file).unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def _file(run_dir: Path, person: str) -> Path:
    """Returns the file's path; its name is a digest, because a person's name may contain any character."""
    return run_dir / FOLDER / f"{hashlib.blake2b(person.encode(), digest_size=12).hexdigest()}.json"


def _read(file: Path) -> Forgetting | None:
    """Returns the request; None if there is none, or if its adapter's name would lead to another folder."""
    try:
        request = Forgetting(**orjson.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
    return request if request.adapter is None or is_file_name(request.adapter) else None
