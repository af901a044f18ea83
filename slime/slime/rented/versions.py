"""A weight version at a service: its folder contains an address instead of tensors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from claw_base.files import commit_folder, fresh_folder, write_text
from slime.errors import EngineError

FILE = "rented_weights.json"
PREFIX = "xxh3:"
"""Prefix of checksums in the current format, as in `slime.weights.versions`."""


@dataclass(frozen=True)
class RentedWeights:
    """Address of a version at the service for sampling; None: the base model."""

    model: str
    sampler: str | None

    @property
    def checksum(self) -> str:
        """Returns the checksum of the address: weights at an address never change, and their tensors cannot be read
        here."""
        return PREFIX + hashlib.sha256(f"{self.model}|{self.sampler or ''}".encode()).hexdigest()


def write_version(folder: Path, weights: RentedWeights) -> str:
    """Writes the folder of a version atomically; returns its checksum."""
    temporary = fresh_folder(folder)
    write_text(temporary / FILE, json.dumps(asdict(weights)))
    commit_folder(temporary, folder)
    return weights.checksum


def is_rented(folder: Path) -> bool:
    """Returns whether a folder records a version at a service."""
    return (folder / FILE).is_file()


def read_version(folder: Path) -> RentedWeights:
    """Reads the folder of a version. Raises EngineError if it records none."""
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return RentedWeights(str(content["model"]), content["sampler"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{folder} records no weights of a service: {error!r}") from error
