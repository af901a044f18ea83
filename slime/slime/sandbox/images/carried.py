"""Programs of this machine for sandboxes with images: prlimit, and the Python of the workers.

They are started by this machine's dynamic linker with its libraries, so they do not depend on the image.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from slime.errors import ConfigError

PLACE = "/.box"
"""Their location in the sandbox: an empty folder of every unpacked image."""
INSPECT_SECONDS = 60.0
INSPECT = """
import importlib, json, os, sys
for folder in sys.path:
    for name in sorted(os.listdir(folder)) if folder.endswith("lib-dynload") else ():
        try:
            importlib.import_module(name.partition(".")[0])
        except ImportError:
            pass
maps = [line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line]
print(json.dumps({"prefix": sys.prefix, "path": sys.path, "files": sorted(set(maps))}))
"""


@dataclass(frozen=True)
class Carried:
    """Files of this machine in every sandbox with an image.

    Attributes:
        limiter, python: commands of prlimit and Python in the sandbox.
        files: files and folders of this machine that they need, with their paths below PLACE.
    """

    limiter: list[str]
    python: list[str]
    files: dict[Path, str]


def carry(python: str, prlimit: str) -> Carried:
    """Determines the files that the programs need. Raises ConfigError if that fails."""
    try:
        completed = subprocess.run(
            [python, "-I", "-S", "-c", INSPECT],
            capture_output=True,
            text=True,
            check=True,
            timeout=INSPECT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{python} cannot be inspected for sandboxes with images: {error}") from error
    inspected = json.loads(completed.stdout)
    modules = [Path(folder) for folder in inspected["path"] if os.path.isdir(folder)]
    shared = [Path(file) for file in inspected["files"] if ".so" in Path(file).name and os.path.isfile(file)]
    linker = next((file for file in shared if file.name.startswith("ld-")), None)
    if linker is None:
        raise ConfigError(f"{python} has no dynamic linker, so sandboxes with images do not work here")
    libraries = sorted({linker.parent, *(file.parent for file in shared)} - set(modules))
    program = f"{PLACE}/python/bin/{Path(python).resolve().name}"
    places = {Path(python).resolve(): program, linker: f"{PLACE}/linker", Path(prlimit): f"{PLACE}/prlimit"}
    places |= {folder: f"{PLACE}/libraries/{number}" for number, folder in enumerate(libraries)}
    for folder in modules:
        if not any(folder.is_relative_to(other) for other in modules if other != folder):
            places[folder] = f"{PLACE}/python/{folder.relative_to(inspected['prefix'])}"
    linker_command = [f"{PLACE}/linker", "--library-path", ":".join(places[folder] for folder in libraries)]
    return Carried(
        [*linker_command, f"{PLACE}/prlimit"], [*linker_command, "--argv0", program, program], places
    )
