"""Version numbers of adapters in folders. The same weights keep the same number after a restart.

The number is the index of the adapter's digest in `adapters.json`. This file is next to the buffer, or in the run
folder if the buffer is a database server.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from claw_base.files import write_json
from openclaw.engine.adapters import Adapter
from openclaw.errors import ConfigError
from openclaw.settings import Settings

FILE = "adapters.json"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapters_of(settings: Settings) -> dict[str, Adapter]:
    """Returns the configured adapters by name, with their versions. New versions are recorded in `adapters.json`.

    Raises:
        ConfigError: a folder contains no adapter, or `adapters.json` cannot be read or written.
    """
    digests = {name: digest(folder) for name, folder in settings.adapters.items()}
    place = settings.rl_buffer_dir or settings.run_dir
    if not digests or place is None or settings.buffer is None:
        return {name: Adapter(name, str(folder)) for name, folder in settings.adapters.items()}
    versions = _record(Path(place) / FILE, digests)
    return {name: Adapter(name, str(folder), versions[name]) for name, folder in settings.adapters.items()}


def digest(folder: Path) -> str:
    """Returns the hex digest of an adapter's weights and configuration. Raises ConfigError if a file is missing."""
    hasher = hashlib.blake2b(digest_size=16)
    try:
        for name in (CONFIG, WEIGHTS):
            with (folder / name).open("rb") as file:
                hasher.update(hashlib.file_digest(file, "blake2b").digest())
    except OSError as error:
        message = (
            f"{folder} is not a LoRA adapter: {error.strerror or error}: {Path(str(error.filename)).name}"
        )
        raise ConfigError(message) from error
    return hasher.hexdigest()


def _record(file: Path, digests: Mapping[str, str]) -> dict[str, int]:
    """Adds new digests to the file. Returns the version of each adapter."""
    try:
        known: dict[str, list[str]] = json.loads(file.read_text()) if file.is_file() else {}
        before = json.dumps(known)
        for name, one in digests.items():
            if one not in known.setdefault(name, []):
                known[name].append(one)
        if json.dumps(known) != before:
            write_json(file, known)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"cannot read or write {file}: {error}") from error
    return {name: known[name].index(one) for name, one in digests.items()}
