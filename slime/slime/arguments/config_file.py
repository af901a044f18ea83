"""`--custom-config-path`: a YAML file whose keys are flags, or anything that a plug-in wants to read from `args`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claw_base.settings.declare import Flag, convert
from slime.errors import ConfigError


def config_file(path: str | None, flags: Sequence[Flag]) -> dict[str, Any]:
    """The values of the file by name; they win over the command line, as in slime. {} without a file.

    Dashes in keys are read as underscores. Keys that are no flag become attributes of the arguments as they are.

    Raises:
        ConfigError: no such file, no YAML, not a mapping, or a value that its flag cannot take.
    """
    if path is None:
        return {}
    import yaml

    file = Path(path).expanduser()
    try:
        found = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigError(f"--custom-config-path {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--custom-config-path {path} is not YAML: {' '.join(str(error).split())}"
        ) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(
            f"--custom-config-path {path} must map names to values, and holds a {type(found).__name__}"
        )
    by_name = {item.name: item for item in flags}
    values: dict[str, Any] = {}
    for key, value in found.items():
        name = str(key).replace("-", "_")
        values[name] = _typed(by_name[name], value, path) if name in by_name else value
    return values


def _typed(item: Flag, value: object, path: str) -> Any:
    where = f"{path}: {item.name}"
    if value is None:
        return item.default
    if item.repeatable:
        several = value if isinstance(value, list) else [value]
        return [one for each in several for one in convert(item, where, str(each))]
    if isinstance(value, dict | list):
        raise ConfigError(f"{where} must be one {item.type.__name__}, not a {type(value).__name__}")
    return convert(item, where, str(value))
