"""Reads the live version of a trained adapter, which the trainer records in the run folder."""

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
    """Returns the live version of an adapter; an adapter without weights if there is none, or it cannot be read."""
    home = home_of(run_dir, name)
    without_weights = Adapter(name, "", trained=True)
    try:
        content = json.loads((home / LIVE).read_text(encoding="utf-8"))
        folder, version = home / str(content["path"]), int(content["version"])
    except FileNotFoundError:
        return without_weights
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("cannot read %s, the base model answers for adapter %r: %r", home / LIVE, name, error)
        return without_weights
    return Adapter(name, str(folder), version, trained=True)
