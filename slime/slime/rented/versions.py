"""A weight version that lies at the service: what a folder names instead of tensors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from claw_base.files import commit_folder, fresh_folder, write_text
from slime.errors import EngineError

FILE = "rented_weights.json"
PREFIX = "xxh3:"
"""As `slime.weights.versions` marks checksums of present releases."""


@dataclass(frozen=True)
class RentedWeights:
    """Place of a version at the service, for sampling (None: the base model)."""

    model: str
    sampler: str | None

    @property
    def checksum(self) -> str:
        """Returns the checksum of the address: weights at a service never change under theirs, and their tensors are
        not visible here."""
        return PREFIX + hashlib.sha256(f"{self.model}|{self.sampler or ''}".encode()).hexdigest()


def write_version(folder: Path, weights: RentedWeights) -> str:
    """Makes the folder of a version, whole or not at all; returns its checksum."""
    temporary = fresh_folder(folder)
    write_text(temporary / FILE, json.dumps(asdict(weights)))
    commit_folder(temporary, folder)
    return weights.checksum


def is_rented(folder: Path) -> bool:
    """Returns whether a folder names a version at a service."""
    return (folder / FILE).is_file()


def read_version(folder: Path) -> RentedWeights:
    """Raises EngineError for a folder that names no version."""
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return RentedWeights(str(content["model"]), content["sampler"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{folder} names no weights of a service: {error!r}") from error
