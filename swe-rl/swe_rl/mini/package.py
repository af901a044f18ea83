"""The package: fetched once without the clients of model services that it would bring, and its configurations."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from slime.errors import ConfigError
from swe_rl.repository import installed

ALONE = ("mini-swe-agent==2.4.6",)
"""Installed without what it names: of its 80 packages, those that talk to models are not used here."""
WITH = ("platformdirs==4.14.7", "python-dotenv==1.2.4", "rich==15.0.0")
SECTIONS = ("agent", "model")


@functools.cache
def load() -> None:
    """Makes `minisweagent` importable. What is installed already comes first.

    Raises:
        ConfigError: it could not be fetched.
    """
    if importlib.util.find_spec("minisweagent") is None:
        version = "{}.{}".format(*sys.version_info)
        sys.path.append(str(installed(version, WITH, ALONE)))
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    module("minisweagent")


def module(name: str) -> ModuleType:
    """A module of the package. Raises ConfigError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"mini-swe-agent cannot be imported: {error}") from error


@functools.cache
def configuration(name: str) -> dict[str, Any]:
    """A configuration of its own ("swebench", "swebench_backticks") or a file of yours with the same sections.

    Raises:
        ConfigError: there is none, or it lacks the section of the agent or of the model.
    """
    load()
    get = module("minisweagent.config").get_config_from_spec
    try:
        found = get(Path(name))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"SWE_CONFIG_PATH {name}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(found.get(part), dict) for part in SECTIONS):
        raise ConfigError(f"SWE_CONFIG_PATH {name}: it needs the sections {' and '.join(SECTIONS)}")
    return found
