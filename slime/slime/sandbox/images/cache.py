"""Cache of unpacked images, by name and by digest; others are downloaded and unpacked once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slime.errors import ConfigError, DataError
from slime.sandbox.images.image import Image
from slime.sandbox.images.tools import Tool, tool_with
from slime.sandbox.images.unpack import BadImage, Unpacker, finish, line_of

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
ABOUT = "image.json"
_known: dict[tuple[Path, str], Image] = {}


@dataclass(frozen=True)
class Source:
    """The source of an image's files: its identity, its settings, and a function that unpacks it."""

    identity: str
    architecture: str
    config: Mapping[str, Any]
    export: Callable[[Unpacker], None]


def images_folder() -> Path:
    """Returns the folder of unpacked images: SLIME_IMAGE_DIR, or a cache. For root it is a system folder, because
    code in a sandbox runs as another user, who cannot access root's home."""
    cache = Path("/var/cache" if os.getuid() == 0 else os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(os.environ.get("SLIME_IMAGE_DIR") or cache.expanduser() / "slime" / "images").absolute()


def image_of(
    name: str, folder: Path | None = None, tools: Sequence[Tool] | None = None, again: bool = False
) -> Image:
    """Returns an image from the cache; a missing image is downloaded and unpacked by one process while others wait.

    Args:
        name: name of an image that podman or docker has or can pull, or the path of an archive (`docker save`, an OCI
            layout, a tar of a root folder).
        folder: folder of the cache; None: `images_folder()`.
        tools: tools to use; None: the installed ones.
        again: check whether the name refers to a new image.

    Raises:
        ConfigError: neither podman nor docker is installed, the disk is full, or the architecture differs.
        DataError: there is no such image, or it is broken.
    """
    folder = images_folder() if folder is None else folder
    image = None if again else _known.get((folder, name))
    if image is None:
        try:
            image = _cached(folder, name, tools, again)
        except BadImage as error:
            raise DataError(f"the image {name}: {error}") from error
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = f"there is no room for it in {folder}" if is_full else str(error)
            raise ConfigError(f"the image {name} cannot be unpacked: {reason}") from error
        _known[folder, name] = image
    return image


def _cached(folder: Path, name: str, tools: Sequence[Tool] | None, again: bool) -> Image:
    folder.mkdir(parents=True, exist_ok=True)
    inaccessible = [
        part for part in (folder, *folder.parents) if os.getuid() == 0 and not part.stat().st_mode & 0o001
    ]
    if inaccessible:
        raise ConfigError(
            f"code in a sandbox cannot read {folder}, as {inaccessible[0]} is closed to others: set SLIME_IMAGE_DIR"
        )
    name_file = _file_of(folder, name)
    with _locked(name_file.with_suffix(".lock")):
        cached = None if again or Path(name).is_file() else cached_image(folder, name)
        if cached is not None:
            return cached
        source = _source(name, tools)
        place = folder / hashlib.sha256(source.identity.encode()).hexdigest()[:32]
        with _locked(place.with_suffix(".lock")):
            if not (place / ABOUT).is_file():
                _unpack(source, place, name)
        name_file.write_text(place.name)
        return _read(place, name)


def cached_image(folder: Path, name: str) -> Image | None:
    """Returns the image last found for this name; None if it is not in the cache."""
    name_file = _file_of(folder, name)
    place = folder / name_file.read_text() if name_file.is_file() else None
    return _read(place, name) if place is not None and (place / ABOUT).is_file() else None


def _file_of(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.name"


def _source(name: str, tools: Sequence[Tool] | None) -> Source:
    if Path(name).is_file():
        archive = read_archive(Path(name))
        about: Mapping[str, Any] = archive.config
        source = Source(
            archive.identity, str(about.get("architecture", "")), about.get("config") or {}, archive.export
        )
    else:
        tool, about = tool_with(name, tools)
        identity = str(about["Id"])
        source = Source(
            identity,
            str(about.get("Architecture", "")),
            about.get("Config") or {},
            lambda to: tool.export(identity, to),
        )
    architecture = MACHINES.get(platform.machine(), platform.machine())
    if source.architecture and source.architecture != architecture:
        raise ConfigError(f"the image {name} is for {source.architecture}, this machine is {architecture}")
    return source


def _unpack(source: Source, place: Path, name: str) -> None:
    """Creates the folder atomically."""
    new = place.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)  # left by a process that was killed
    try:
        (new / "files").mkdir(parents=True)
        for folder in (new, new / "files"):
            folder.chmod(0o755)
        root = os.open(new / "files", os.O_RDONLY | os.O_DIRECTORY)
        try:
            source.export(Unpacker(root))
            size, entries = finish(root)
        finally:
            os.close(root)
        variables = [str(one).partition("=") for one in source.config.get("Env") or ()]
        about = Image(
            name,
            Path(),
            {key: value for key, _, value in variables},
            str(source.config.get("WorkingDir") or "/"),
            size,
            entries,
        )
        (new / ABOUT).write_text(json.dumps({**asdict(about), "path": "files"}))
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _read(place: Path, name: str) -> Image:
    about = json.loads((place / ABOUT).read_text())
    return Image(**{**about, "name": name, "path": place / "files"})


@contextlib.contextmanager
def _locked(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Archive:
    """One image in a file.

    Attributes:
        config: the OCI image config; empty for a plain tar.
        layers: members of the file, from the lowest; None: the file itself is the root folder.
    """

    path: Path
    identity: str
    config: Mapping[str, Any]
    layers: tuple[str, ...] | None

    def export(self, to: Unpacker) -> None:
        """Raises BadImage, OSError."""
        if self.layers is None:
            with self.path.open("rb") as stream:
                to.add(stream)
            return
        with tarfile.open(self.path) as archive:
            for layer in self.layers:
                inner = archive.extractfile(_member(archive, layer))
                if inner is None:
                    raise BadImage(f"its layer {layer} is not a file")
                to.add(inner, layer=True)


def read_archive(path: Path) -> Archive:
    """Reads an archive. Raises BadImage: it is not an image, or contains several; OSError."""
    try:
        with tarfile.open(path) as archive:
            first = {}
            for entry in archive:
                first[entry.name.removeprefix("./")] = entry
                if entry.name.removeprefix("./") in ("bin", "etc", "usr"):
                    break  # a root folder; the other names need not be read
            for name, read in (("manifest.json", _saved), ("index.json", _layout)):
                if name in first:
                    config, layers = read(archive, json.loads(_text(archive, name)))
                    identity = hashlib.sha256(json.dumps([config, layers]).encode()).hexdigest()
                    return Archive(path, identity, config, layers)
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise BadImage(f"no archive of an image: {line_of(error)}") from error
    about = path.stat()
    name_file = f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"
    return Archive(path, hashlib.sha256(name_file.encode()).hexdigest(), {}, None)


def _saved(archive: tarfile.TarFile, manifest: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    if len(manifest) != 1:
        raise ValueError(f"it contains {len(manifest)} images, one is expected")
    config = json.loads(_text(archive, manifest[0]["Config"]))
    return config, tuple(manifest[0]["Layers"])


def _layout(archive: tarfile.TarFile, index: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    manifest = index["manifests"]
    while "layers" not in manifest:
        if isinstance(manifest, list):
            if len(manifest) != 1:
                raise ValueError(f"it contains {len(manifest)} images, one is expected")
            manifest = manifest[0]
        elif "manifests" in manifest:
            manifest = manifest["manifests"]
        else:
            manifest = json.loads(_text(archive, _blob(manifest)))
    return json.loads(_text(archive, _blob(manifest["config"]))), tuple(
        _blob(one) for one in manifest["layers"]
    )


def _blob(about: Mapping[str, Any]) -> str:
    algorithm, _, digest = str(about["digest"]).partition(":")
    return f"blobs/{algorithm}/{digest}"


def _member(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """Returns a member, following links inside the archive, which represent repeated layers."""
    try:
        return archive.getmember(name)
    except KeyError:
        return archive.getmember(f"./{name}")


def _text(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(_member(archive, name))
    if file is None:
        raise ValueError(f"{name} in it is not a file")
    return file.read(16 << 20).decode()
