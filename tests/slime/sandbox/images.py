"""Images for tests, made of programs of this machine: a root folder, and archives of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slime.sandbox.images.tools import Tool

PROGRAMS = (
    "bash",
    "cat",
    "chmod",
    "env",
    "id",
    "ls",
    "mkdir",
    "mkfifo",
    "mknod",
    "ln",
    "rm",
    "sleep",
    "touch",
    "uname",
)


def root_folder(to: Path, programs: Sequence[str] = PROGRAMS, files: Mapping[str, str] | None = None) -> Path:
    """Creates a root with these programs, their libraries, and texts; /bin and similar ones are links."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (to / "usr" / name).mkdir(parents=True, exist_ok=True)
        (to / name).symlink_to(f"usr/{name}")
    for name in programs:
        _copy(Path(shutil.which(name, path="/usr/bin:/bin") or name), to / "usr/bin" / name)
        said = subprocess.run(
            ["ldd", to / "usr/bin" / name], capture_output=True, text=True, check=False
        ).stdout
        for path in re.findall(r"(/\S+) \(0x", said):
            _copy(Path(path), to / "usr" / path.removeprefix("/usr").lstrip("/"))
    (to / "usr/bin/sh").symlink_to("bash")
    for name in ("root", "etc"):
        (to / name).mkdir(exist_ok=True)
    for place, text in (files or {}).items():
        (to / place).parent.mkdir(parents=True, exist_ok=True)
        (to / place).write_text(text)
    return to


def copy_libraries(file: Path, root: Path) -> None:
    """Copies the libraries that a program or a module is linked with."""
    said = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"(/\S+) \(0x", said):
        _copy(Path(path), root / "usr" / path.removeprefix("/usr").lstrip("/"))


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if not to.exists():
        shutil.copy(source.resolve(), to)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Yields a temporary folder that the sandbox's user may enter; pytest's are closed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextlib.contextmanager
def podman_of(folder: Path) -> Iterator[Tool]:
    """Yields podman with separate storage, so that no image of this machine's user is changed; removed at the end."""
    options = ["--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
    tool = Tool((shutil.which("podman") or "podman", *options))
    try:
        yield tool
    finally:
        tool.ask("rm", "-af")
        tool.ask("rmi", "-af")


def plain_tar(root: Path, to: Path) -> Path:
    with tarfile.open(to, "w") as archive:
        archive.add(root, ".")
    return to


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = kind, link, mode
    return found


def tar_of(*entries: tuple[tarfile.TarInfo, bytes] | tarfile.TarInfo) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for one in entries:
            about, text = one if isinstance(one, tuple) else (one, b"")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text))
    return data.getvalue()


def saved(to: Path, layers: Sequence[bytes], config: Mapping[str, object] | None = None) -> Path:
    """Writes an archive as `docker save` does."""
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": ["test:1"], "Layers": names}]
    parts = dict(zip(names, layers, strict=True))
    parts |= {
        "config.json": json.dumps(config or {}).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    to.write_bytes(tar_of(*((entry(name), data) for name, data in parts.items())))
    return to
