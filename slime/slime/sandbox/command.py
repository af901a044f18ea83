"""The command line of a sandbox: bubblewrap around prlimit around a program.

A sandbox has separate namespaces for users, processes, network (none), IPC and host name. Its system is read-only,
its /tmp is empty and is the home folder, its environment is cleared, and it can get no capability. If this process is
root, the sandbox runs as a normal user outside too.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slime.errors import ConfigError, DataError
from slime.sandbox.images.carried import PLACE, Carried, carry
from slime.sandbox.images.image import Image
from slime.sandbox.images.mounts import image_mounts
from slime.sandbox.limits import Limits

BOX_USER = 61000  # owns no files on usual systems
HOME = "/tmp"
PATH = "/usr/bin:/bin"
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH in a sandbox whose image does not set one; the same as docker's."""
PROGRAMS = ("bwrap", "prlimit")
NAMESPACES = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--disable-userns",
    "--die-with-parent",
    "--new-session",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--hostname",
    "box",
    "--cap-drop",
    "ALL",
    "--clearenv",
]


def programs() -> dict[str, str]:
    """Returns the paths of the programs that set up a sandbox.

    Raises:
        ConfigError: one is missing, or this is not Linux. Code of a model never runs without a sandbox.
    """
    if sys.platform != "linux":
        raise ConfigError("a sandbox needs Linux with bubblewrap; code of a model is not run without one")
    names = (*PROGRAMS, "setpriv") if os.getuid() == 0 else PROGRAMS
    paths = {name: shutil.which(name) for name in names}
    if missing := [name for name, path in paths.items() if path is None]:
        raise ConfigError(
            f"a sandbox needs {', '.join(missing)}, and code of a model is not run without one; install it (Debian: "
            "apt-get install bubblewrap util-linux)"
        )
    return {name: path for name, path in paths.items() if path is not None}


def launcher(
    descriptors: tuple[int, int, int], program: Sequence[str], limits: Limits, image: Image | None = None
) -> list[str]:
    """Returns the command that starts `program` in a sandbox. bubblewrap reads its arguments from the first
    descriptor, because the command line is visible inside and would show paths of this machine. It reads the filter
    of system calls from the second, and writes the id of the first process inside to the third."""
    arguments, rules, info = (str(descriptor) for descriptor in descriptors)
    paths = programs()
    bounds = [
        f"--as={limits.address_space or limits.memory}",
        f"--cpu={limits.cpu_seconds}",
        f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        "--core=0",
    ]
    box = [paths["bwrap"], "--args", arguments, "--seccomp", rules, "--info-fd", info, "--"]
    limiter = [paths["prlimit"]] if image is None else carried().limiter
    return [*_as_box_user(), *box, *limiter, *bounds, "--", *program]


def copy_as_box_user(source: Path, to: Path) -> None:
    """Copies the contents of an image's folder into an empty one of the sandbox's user, with times and hard links;
    blocks are shared if the disk supports it. Raises OSError."""
    copy = [
        shutil.which("cp") or "cp",
        "-R",
        "--no-dereference",
        "--preserve=mode,timestamps,links",
        "--reflink=auto",
    ]
    done = subprocess.run(
        [*_as_box_user(), *copy, "--", f"{source}/.", str(to)],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{source.name} could not be copied: {done.stderr.strip().splitlines()[-1:]}")


def _as_box_user() -> list[str]:
    if os.getuid() != 0:
        return []
    users = [f"--reuid={BOX_USER}", f"--regid={BOX_USER}", "--clear-groups", "--no-new-privs"]
    return [programs()["setpriv"], *users, "--"]


def box_arguments(
    limits: Limits,
    read_only: Mapping[Path, str],
    environment: Mapping[str, str],
    read_write: Sequence[tuple[Path, str]] = (),
    scratch: Sequence[str] = (),
    image: Image | None = None,
) -> bytes:
    """Returns bubblewrap's arguments, each ended by a zero byte.

    Args:
        read_only: folders and files of this machine, with their paths in the sandbox.
        environment: variables beyond PATH, HOME and LANG.
        read_write: writable folders of this machine, with their paths; the program starts in the first.
        scratch: further empty folders, in memory.
        image: the root of the sandbox; otherwise this machine's /usr is its system.

    Raises:
        ConfigError: the image has a file or link in place of a required folder.
        DataError: a path or variable contains a zero byte, which would start another argument.
    """
    empty = (HOME, *scratch)
    places = (*empty, *read_only.values(), *(there for _, there in read_write))
    tool_files = carried().files if image is not None else {}
    words = [*NAMESPACES, *(_system() if image is None else image_mounts(image, places))]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for place in empty:
        words += ["--size", str(limits.disk_bytes), "--tmpfs", place]
    words += ["--tmpfs", PLACE] if tool_files else []
    for here, there in {**tool_files, **read_only}.items():
        words += ["--ro-bind", str(here), there]
    for here, there in read_write:
        words += ["--bind", str(here), there]
    for place in ("/", "/dev", *([PLACE] if tool_files else [])):
        words += ["--remount-ro", place]
    words += ["--chdir", read_write[0][1] if read_write else HOME]
    defaults = {"PATH": PATH if image is None else IMAGE_PATH, "LANG": "C.UTF-8"}
    set_by_image = image.environment if image is not None else {}
    for name, value in {**defaults, **set_by_image, "HOME": HOME, **environment}.items():
        words += ["--setenv", name, value]
    if wrong := next((word for word in words if "\0" in word), None):
        raise DataError(f"a sandbox's paths and variables must not contain a zero byte: {wrong!r}")
    return b"".join(word.encode() + b"\0" for word in words)


def _system() -> list[str]:
    folders = _system_folders()
    return [
        "--ro-bind",
        "/usr",
        "/usr",
        *folders,
        "--dir",
        "/etc",
        "--ro-bind-try",
        *["/etc/ld.so.cache"] * 2,
    ]


def _system_folders() -> list[str]:
    """Returns /bin and similar folders: links into /usr if they are links, else folders."""
    words: list[str] = []
    for name in ("bin", "sbin", "lib", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    return words


def box_python() -> tuple[str, dict[Path, str]]:
    """Returns a Python below /usr, which every sandbox contains, and matching package folders: numpy and sympy, if
    this process has them for the same version and the sandbox's user may read them.

    Raises:
        ConfigError: no such Python exists.
    """
    own = Path(sys.executable).resolve()
    path = str(own) if own.is_relative_to("/usr") else shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if path is None:
        raise ConfigError("a sandbox for Python needs a python3 in /usr/bin or /usr/local/bin")
    same_version = f"python{sys.version_info.major}.{sys.version_info.minor}" == Path(path).resolve().name
    return path, _packages() if same_version else {}


def worker_python(image: Image | None) -> list[str]:
    """Returns the command of a worker's Python in a sandbox. Raises ConfigError."""
    return [box_python()[0]] if image is None else carried().python


@functools.cache
def carried() -> Carried:
    """Returns the files of this machine that sandboxes on images get. Raises ConfigError."""
    return carry(box_python()[0], programs()["prlimit"])


def _packages() -> dict[Path, str]:
    names = ("numpy", "numpy.libs", "sympy", "mpmath")
    folders = [Path(entry) / name for name in names for entry in sys.path if entry.endswith("-packages")]
    return {
        folder: f"/packages/{folder.name}" for folder in folders if folder.is_dir() and _open_to_all(folder)
    }


def _open_to_all(folder: Path) -> bool:
    """Returns whether any user may enter the folder, including all its parents."""
    return all(part.stat().st_mode & 0o005 == 0o005 for part in (folder, *folder.resolve().parents))
