"""Numbers the versions of an adapter, stable over restarts: the same weights keep the same number.

`adapters.json` next to the buffer, or in the run folder if the buffer is a database server, lists the digests of each
adapter's versions in order.
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
    """Returns the configured adapters by name, with their versions; records new versions.

    Raises:
        ConfigError: a folder without an adapter, or a file of versions that cannot be read or written.
    """
    digests = {name: digest(folder) for name, folder in settings.adapters.items()}
    place = settings.rl_buffer_dir or settings.run_dir
    if not digests or place is None or settings.buffer is None:
        return {name: Adapter(name, str(folder)) for name, folder in settings.adapters.items()}
    versions = _noted(Path(place) / FILE, digests)
    return {name: Adapter(name, str(folder), versions[name]) for name, folder in settings.adapters.items()}


def digest(folder: Path) -> str:
    """Returns the digest of an adapter's weights and configuration. Raises ConfigError."""
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


def _noted(file: Path, digests: Mapping[str, str]) -> dict[str, int]:
    """Returns the version of each adapter; records new ones."""
    try:
        known: dict[str, list[str]] = json.loads(file.read_text()) if file.is_file() else {}
        before = json.dumps(known)
        for name, one in digests.items():
            if one not in known.setdefault(name, []):
                known[name].append(one)
        if json.dumps(known) != before:
            write_json(file, known)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{file} cannot be used: {error}") from error
    return {name: known[name].index(one) for name, one in digests.items()}
