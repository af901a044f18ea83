"""Repositories: the source of a package with its tests, fetched once, and the packages that its tests need."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from slime.errors import ConfigError, DataError
from swe_rl.package_index import fetch_source, unpack

PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!_-]+")
PYTEST = "pytest==9.2.0"
FETCH_SECONDS = 600


def environments() -> Path:
    """Returns the folder of sources and test runners: SWE_ENV_DIR, or a cache. For root it is a system folder,
    because code in a sandbox runs as another user, who cannot access root's home."""
    cache = Path("/var/cache" if os.getuid() == 0 else os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(os.environ.get("SWE_ENV_DIR") or cache.expanduser() / "openclaw-rl" / "swe").absolute()


def source_of(repository: str) -> Path:
    """Returns the folder of a repository: an existing folder unchanged, or the source of `name==version`, fetched
    once.

    Raises:
        DataError: it is neither.
        ConfigError: it could not be fetched.
    """
    if Path(repository).is_dir():
        return Path(repository).resolve()
    if not PACKAGE.fullmatch(repository):
        raise DataError(
            f"{repository!r} is neither a folder nor a package with its version, such as idna==3.10"
        )
    return _made_once(
        environments() / "sources" / repository.replace("==", "-"), lambda to: _fetch(repository, to)
    )


@functools.cache
def test_packages(python: str, needs: tuple[str, ...] = ()) -> Path:
    """Returns a folder with pytest and further packages for the sandbox's Python; they are installed once.

    Raises:
        ConfigError: they could not be installed.
    """
    version = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    made = installed(version, (PYTEST, *needs))
    closed = [part for part in made.parents if os.getuid() == 0 and not part.stat().st_mode & 0o001]
    if closed:
        raise ConfigError(
            f"code in a sandbox cannot read {made}, as {closed[0]} is closed to others: set SWE_ENV_DIR"
        )
    return made


def installed(version: str, requirements: tuple[str, ...], alone: tuple[str, ...] = ()) -> Path:
    """Returns a folder with packages for a Python version, installed once; those in `alone` without their
    dependencies.

    Raises:
        ConfigError: they could not be installed.
    """
    every = (*requirements, *alone)
    name = "-".join([f"python{version}", *(re.sub(r"[^A-Za-z0-9.]+", "_", need) for need in every)])

    def install(to: Path) -> None:
        options = ("install", "--target", str(to), "--python-version", version, "--only-binary=:all:")
        _pip(*options, *requirements)
        if alone:
            _pip(*options, "--no-deps", *alone)

    return _made_once(environments() / "packages" / name, install)


def _made_once(place: Path, make: Callable[[Path], None]) -> Path:
    """Returns `place`, which `make` fills atomically, in one process at a time. Any user may read it, because code in
    a sandbox runs as another user."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(place.suffix + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=place.parent) as made:
                new = Path(made) / "new"
                new.mkdir()
                make(new)
                for folder, _, files in os.walk(new):
                    os.chmod(folder, 0o755)
                    for file in files:
                        path = os.path.join(folder, file)
                        if not os.path.islink(path):
                            os.chmod(path, 0o755 if os.access(path, os.X_OK) else 0o644)
                new.rename(place)
    return place


def _fetch(package: str, to: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = fetch_source(package, Path(folder))
        unpacked = Path(folder) / "unpacked"
        unpacked.mkdir()
        unpack(archive, unpacked)
        inner = [path for path in unpacked.iterdir() if path.is_dir() and not path.is_symlink()]
        if len(inner) != 1:
            raise ConfigError(f"{package}: its source has {len(inner)} folders at the top, one is expected")
        shutil.copytree(inner[0], to, dirs_exist_ok=True, symlinks=True)


def _pip(*arguments: str) -> None:
    command: Sequence[str] = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        *arguments,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"pip {arguments[0]} {arguments[-1]} took longer than {FETCH_SECONDS} s") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(f"{arguments[-1]} could not be fetched: {reason}")
