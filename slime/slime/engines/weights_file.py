"""The weights that an engine loads at start: the live ones recorded by the trainer, else the model's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from slime.errors import ConfigError


@dataclass(frozen=True)
class FirstWeights:
    """A version and its folder; `checksum` is set if the weights file contains one."""

    version: int
    path: str
    checksum: str | None


def first_weights(model_path: str, weights_file: str | None) -> FirstWeights:
    """Returns the weights in the weights file, or version 0 of the model if the file does not exist.

    Raises:
        ConfigError: the file lacks version, path or checksum.
    """
    if weights_file is None or not Path(weights_file).is_file():
        return FirstWeights(0, model_path, None)
    file = Path(weights_file)
    try:
        named = json.loads(file.read_text(encoding="utf-8"))
        return FirstWeights(int(named["version"]), str(file.parent / named["path"]), str(named["checksum"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file} is not a valid weights file (version, path, checksum): {error!r}"
        ) from error
