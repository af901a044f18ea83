"""Archives of images: what `docker save` and `podman save` write, OCI image layouts, and plain tars of a root folder."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.agents.sandbox.images.unpack import BadImage, Unpacker, line_of


@dataclass(frozen=True)
class Archive:
    """One image in a file.

    Attributes:
        config: what its makers set (OCI image config); empty for a plain tar.
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
                    raise BadImage(f"its layer {layer} is no file")
                to.add(inner, layer=True)


def read_archive(path: Path) -> Archive:
    """Raises BadImage: it is none, or holds several images; OSError."""
    try:
        with tarfile.open(path) as archive:
            first = {}
            for entry in archive:
                first[entry.name.removeprefix("./")] = entry
                if entry.name.removeprefix("./") in ("bin", "etc", "usr"):
                    break  # a root folder, of which not all names need be read
            for name, read in (("manifest.json", _saved), ("index.json", _layout)):
                if name in first:
                    config, layers = read(archive, json.loads(_text(archive, name)))
                    identity = hashlib.sha256(json.dumps([config, layers]).encode()).hexdigest()
                    return Archive(path, identity, config, layers)
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise BadImage(f"no archive of an image: {line_of(error)}") from error
    about = path.stat()
    named = f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"
    return Archive(path, hashlib.sha256(named.encode()).hexdigest(), {}, None)


def _saved(archive: tarfile.TarFile, manifest: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    if len(manifest) != 1:
        raise ValueError(f"it holds {len(manifest)} images, one is expected")
    config = json.loads(_text(archive, manifest[0]["Config"]))
    return config, tuple(manifest[0]["Layers"])


def _layout(archive: tarfile.TarFile, index: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    found = index["manifests"]
    while "layers" not in found:
        if isinstance(found, list):
            if len(found) != 1:
                raise ValueError(f"it holds {len(found)} images, one is expected")
            found = found[0]
        elif "manifests" in found:
            found = found["manifests"]
        else:
            found = json.loads(_text(archive, _blob(found)))
    return json.loads(_text(archive, _blob(found["config"]))), tuple(_blob(one) for one in found["layers"])


def _blob(about: Mapping[str, Any]) -> str:
    algorithm, _, digest = str(about["digest"]).partition(":")
    return f"blobs/{algorithm}/{digest}"


def _member(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """Follows links inside the archive, which layers that occur twice are."""
    try:
        return archive.getmember(name)
    except KeyError:
        return archive.getmember(f"./{name}")


def _text(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(_member(archive, name))
    if file is None:
        raise ValueError(f"{name} in it is no file")
    return file.read(16 << 20).decode()
