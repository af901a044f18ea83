"""Which versions of a service's SDK were tried."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from slime.errors import ConfigError


def check_version(name: str, package: str, tested: tuple[int, int], install: str) -> None:
    """Raises ConfigError for an SDK that is missing or was not tried.

    Args:
        tested: major and minor version that was. install: the command that brings it.
    """
    try:
        found = version(package)
    except PackageNotFoundError:
        raise ConfigError(f"{name} is not installed: {install}") from None
    if tuple(int(part) for part in found.split(".")[:2]) != tested:
        raise ConfigError(f"this is {package} {found}, and {tested[0]}.{tested[1]}.x was tried: {install}")
