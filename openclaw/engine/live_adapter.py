"""Reads the live version of a trained adapter; the trainer records it in the run folder before engines get it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from openclaw.engine.adapters import Adapter

log = logging.getLogger(__name__)

FOLDER, LIVE = "policies", "live_weights.json"


def home_of(run_dir: Path, name: str) -> Path:
    """Returns the folder with the live version of an adapter and the orders about its versions."""
    return run_dir / FOLDER / name


def live_adapter(run_dir: Path, name: str) -> Adapter:
    """Returns the live version. If there is none, or it cannot be read now, the base model answers."""
    home = home_of(run_dir, name)
    new = Adapter(name, "", trained=True)
    try:
        content = json.loads((home / LIVE).read_text(encoding="utf-8"))
        folder, version = home / str(content["path"]), int(content["version"])
    except FileNotFoundError:
        return new
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("the base model answers for adapter %r: %s cannot be read: %r", name, home / LIVE, error)
        return new
    return Adapter(name, str(folder), version, trained=True)
