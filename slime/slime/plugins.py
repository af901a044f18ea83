"""Loads objects that users specify by path: "package.module.attr", "package.module:attr" or
"folder/file.py[:attr]"."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from slime.errors import ConfigError


def load_attr(path: str, default_attr: str | None = None) -> Any:
    """Returns the object that `path` names.

    Args:
        path: see the module's description.
        default_attr: attribute to take when a file is named without one.

    Raises:
        ConfigError: names the missing part, the searched locations and the right syntax.
    """
    module_name, attr = split_path(path)
    attr = attr or default_attr
    if attr is None:
        raise ConfigError(f"{path!r} names a file but nothing in it; write {path}:NAME")
    module = load_module(path)
    try:
        return getattr(module, attr)
    except AttributeError:
        public = sorted(name for name in vars(module) if not name.startswith("_"))
        raise ConfigError(
            f"{path!r}: {module_name} has no {attr!r}; it has {', '.join(public) or 'nothing'}"
        ) from None


def load_module(path: str) -> ModuleType:
    """Returns the module that contains the object at `path`. A file is loaded once and then reused."""
    module_name, _ = split_path(path)
    if module_name.endswith(".py"):
        return _load_file(Path(module_name))
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"{path!r}: no module {error.name!r}; put its folder on PYTHONPATH, or write file.py:NAME"
            ) from error
        raise ConfigError(
            f"{path!r}: {module_name} needs the module {error.name!r}, which is not installed"
        ) from error


def plugin_modules(paths: list[str]) -> list[ModuleType]:
    """Returns the modules of plug-in paths, without duplicates, in order; a module that only re-exports is followed
    by the defining one."""
    modules: dict[str, ModuleType] = {}
    for path in paths:
        module = load_module(path)
        names = getattr(module, split_path(path)[1] or "", None)
        origin = sys.modules.get(getattr(names, "__module__", None) or "")
        modules |= {each.__name__: each for each in (module, origin) if each is not None}
    return list(modules.values())


def split_path(path: str) -> tuple[str, str | None]:
    """Returns (module or file, attribute or None). Raises ConfigError if `path` is neither of the forms."""
    head, colon, attr = path.partition(":")
    if head.endswith(".py"):
        return head, attr or None
    if colon:
        module_name, name = head, attr
    else:
        module_name, _, name = path.rpartition(".")
    if not module_name or not name:
        raise ConfigError(f"{path!r} is not a plug-in path; write package.module.NAME or folder/file.py:NAME")
    return module_name, name


def _load_file(file: Path) -> ModuleType:
    file = file.expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"plug-in file {file} does not exist")
    name = f"slime_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"plug-in file {file} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
