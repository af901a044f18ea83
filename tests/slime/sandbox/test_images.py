"""Tests images as files: the allowed content of archives, the kept part, and that one process unpacks for all."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import platform
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.errors import ConfigError, DataError
from slime.sandbox.images import cache as cache_module
from slime.sandbox.images import image_of
from slime.sandbox.images.image import Image
from slime.sandbox.images.mounts import MOUNT_POINTS, image_mounts
from slime.sandbox.images.unpack import BadImage, Unpacker
from tests.slime.sandbox.images import entry, open_folder, saved, tar_of

FOLDER, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def cache() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder / "cache"


def unpacked(to: Path, *layers: bytes) -> Path:
    to.mkdir()
    root = os.open(to, os.O_RDONLY)
    try:
        unpacker = Unpacker(root)
        for layer in layers:
            unpacker.add(io.BytesIO(layer), layer=len(layers) > 1)
    finally:
        os.close(root)
    return to


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_files_folders_and_links_are_unpacked_readable_by_all(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        root = unpacked(
            tmp_path / "root",
            tar_of(
                entry("./a", FOLDER, mode=0o700),
                (entry("./a/secret", mode=0o600), b"text"),
                (entry("./a/program", mode=0o4750), b"#!"),
                entry("./a/again", HARD, "./a/secret"),
                entry("./etc", LINK, "/somewhere/else"),
                (entry("./no/folder/before/it"), b"x"),
            ),
        )
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE((root / name).lstat().st_mode) for name in ("a", "a/secret", "a/program", "no")
    }
    assert modes == {"a": 0o755, "a/secret": 0o644, "a/program": 0o755, "no": 0o755}
    assert os.readlink(root / "etc") == "/somewhere/else"
    assert (root / "a/again").samefile(root / "a/secret")
    assert (root / "no/folder/before/it").read_text() == "x"


@pytest.mark.parametrize(
    "entries",
    [
        [(entry("../out"), b"x")],
        [(entry("a/../../out"), b"x")],
        [entry("a", LINK, ".."), (entry("a/out"), b"x")],
        [entry("a", LINK, "/"), (entry("a/out"), b"x")],
        [entry("a", LINK, "../out"), entry("b", HARD, "a/x")],
        [entry("b", HARD, "../secret")],
        [entry("a", LINK, ".."), entry("b", HARD, "a/secret")],
        [entry("a", FOLDER), entry("b", HARD, "a")],
        [entry("b", HARD, "nothing")],
        [(entry("a"), b"a file"), (entry("a/b"), b"x")],
    ],
)
def test_an_archive_that_escapes_its_folder_is_rejected(
    tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes] | tarfile.TarInfo]
) -> None:
    (tmp_path / "secret").write_text("mine")
    with pytest.raises(BadImage):
        unpacked(tmp_path / "root", tar_of(*entries))
    assert {path.name for path in tmp_path.iterdir()} == {"secret", "root"}
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_a_file_replaces_a_link_instead_of_following_it(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    root = unpacked(tmp_path / "root", tar_of(entry("a", LINK, "../mine"), (entry("a"), b"theirs")))
    assert (root / "a").read_text() == "theirs" and (tmp_path / "mine").read_text() == "mine"


def test_devices_and_pipes_are_omitted(tmp_path: Path) -> None:
    kinds = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    root = unpacked(
        tmp_path / "root",
        tar_of(*(entry(f"d{at}", kind) for at, kind in enumerate(kinds)), entry("a", FOLDER)),
    )
    assert names(root) == {"a"}


def test_an_impossible_file_time_is_rejected(tmp_path: Path) -> None:
    file = entry("a")
    file.mtime = 1e30
    with pytest.raises(BadImage, match="cannot be read"):
        unpacked(tmp_path / "root", tar_of((file, b"1")))


def test_layers_override_and_remove_entries_of_lower_ones(tmp_path: Path) -> None:
    below = tar_of(
        (entry("a/one"), b"1"),
        (entry("a/two"), b"2"),
        (entry("b/old"), b""),
        (entry("c"), b""),
        entry("d", FOLDER),
    )
    above = tar_of(
        (entry("a/one"), b"new"),
        (entry("a/.wh.two"), b""),
        (entry("b/new"), b""),
        (entry("b/.wh..wh..opq"), b""),
        (entry(".wh.c"), b""),
        (entry("d"), b"a file now"),
        (entry("a/.wh..."), b""),
        (entry("a/.wh."), b""),
    )
    root = unpacked(tmp_path / "root", below, above)
    assert names(root) == {"a", "a/one", "b", "b/new", "d"}
    assert (root / "a/one").read_text() == "new" and (root / "d").read_text() == "a file now"


def test_docker_save_archives_are_read_with_their_settings(tmp_path: Path, cache: Path) -> None:
    config = {"config": {"Env": ["PATH=/opt/bin:/bin", "A=b=c"], "WorkingDir": "/work"}, "architecture": ""}
    path = saved(
        tmp_path / "s.tar",
        [tar_of((entry("a"), b"1")), tar_of((entry(".wh.a"), b""), (entry("b"), b""))],
        config,
    )
    image = image_of(str(path), cache)
    assert image.environment == {"PATH": "/opt/bin:/bin", "A": "b=c"} and image.workdir == "/work"
    assert names(image.path) == {"b", *MOUNT_POINTS} and image.entries == 1 + len(MOUNT_POINTS)


def test_an_oci_layout_is_read_by_its_index(tmp_path: Path, cache: Path) -> None:
    def blob(data: object) -> tuple[str, bytes]:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        return hashlib.sha256(raw).hexdigest(), raw

    layer = blob(tar_of((entry("a"), b"1")))
    config = blob({"config": {"Env": ["A=1"]}})
    manifest = blob(
        {"config": {"digest": f"sha256:{config[0]}"}, "layers": [{"digest": f"sha256:{layer[0]}"}]}
    )
    index = {"manifests": [{"digest": f"sha256:{manifest[0]}"}]}
    parts = [(entry(f"blobs/sha256/{digest}"), raw) for digest, raw in (layer, config, manifest)]
    path = tmp_path / "oci.tar"
    path.write_bytes(tar_of(*parts, (entry("index.json"), json.dumps(index).encode())))
    image = image_of(str(path), cache)
    assert image.environment == {"A": "1"} and (image.path / "a").read_text() == "1"


def test_concurrent_processes_unpack_an_image_once(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "root.tar"
    path.write_bytes(tar_of(*((entry(f"f{number}"), b"x" * 1000) for number in range(300))))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_first_birth, [(str(path), cache)] * 4)
    assert len(set(found)) == 1
    assert not list(cache.glob("*.new"))


def _first_birth(path: str, folder: Path) -> int:
    return image_of(path, folder).path.stat().st_ino


@pytest.mark.parametrize("data", [b"no tar at all", tar_of((entry("../x"), b""))[:700]])
def test_a_broken_archive_leaves_no_files_and_one_error_line(
    tmp_path: Path, cache: Path, data: bytes
) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(DataError, match=r"the image .*x\.tar: ") as found:
        image_of(str(tmp_path / "x.tar"), cache)
    assert "\n" not in str(found.value)
    assert not [path for path in cache.glob("*") if path.is_dir()]


def test_a_full_disk_is_an_infrastructure_failure_and_leaves_no_files(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*about: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Unpacker, "_file", full)
    (tmp_path / "x.tar").write_bytes(tar_of((entry("a"), b"1")))
    with pytest.raises(ConfigError, match="there is no room for it in"):
        image_of(str(tmp_path / "x.tar"), cache)
    assert not [path for path in cache.glob("*") if path.is_dir()]


def test_an_image_of_another_architecture_is_refused(tmp_path: Path, cache: Path) -> None:
    other = "arm64" if platform.machine() == "x86_64" else "amd64"
    path = saved(tmp_path / "s.tar", [tar_of((entry("a"), b"1"))], {"architecture": other})
    with pytest.raises(ConfigError, match=f"is for {other}, this machine is"):
        image_of(str(path), cache)


def test_without_podman_and_docker_a_name_is_rejected_with_a_remedy(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime.sandbox.images.tools.shutil.which", lambda name: None)
    with pytest.raises(ConfigError, match="neither is installed: install podman"):
        image_of("some/image:1", cache)


@pytest.mark.skipif(os.getuid() != 0, reason="of another user than root, who reads its own folders")
def test_a_cache_that_sandboxes_cannot_access_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="closed to others: set SLIME_IMAGE_DIR"):
        image_of("x", tmp_path / "closed/cache")


def test_a_variable_sets_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIME_IMAGE_DIR", str(tmp_path))
    assert cache_module.images_folder() == tmp_path


def test_an_image_with_all_mount_points_is_one_mount_and_others_are_mounted_by_entry(tmp_path: Path) -> None:
    for name in ("usr/bin", "opt/one", "opt/two", "app"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    image = Image("test", tmp_path)
    assert image_mounts(image, ["/app", "/opt/one"]) == ["--ro-bind", str(tmp_path), "/"]
    words = image_mounts(image, ["/opt/three/deep", "/app"])
    assert words == [
        *("--ro-bind", str(tmp_path / "app"), "/app", "--symlink", "usr/bin", "/bin", "--dir", "/opt"),
        *(
            "--ro-bind",
            str(tmp_path / "opt/one"),
            "/opt/one",
            "--ro-bind",
            str(tmp_path / "opt/two"),
            "/opt/two",
        ),
        *("--ro-bind", str(tmp_path / "usr"), "/usr"),
    ]


@pytest.mark.parametrize("place", ["/link", "/link/below", "/new/../link"])
def test_mounts_do_not_follow_links_of_an_image(tmp_path: Path, place: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    image = Image("test", tmp_path)
    with pytest.raises(ConfigError):
        image_mounts(image, ["/other", place])
    with pytest.raises(ConfigError):
        image.folder(place)


def test_programs_are_found_only_through_links_inside_the_image(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/dash").write_text("#!")
    (tmp_path / "usr/bin/dash").chmod(0o755)
    (tmp_path / "bin").symlink_to("/usr/bin")
    (tmp_path / "usr/bin/sh").symlink_to("dash")
    (tmp_path / "usr/bin/bash").symlink_to("../../../../../../usr/bin/env")
    image = Image("test", tmp_path)
    assert image.has("/bin/bash", "/bin/sh") == "/bin/sh" and image.has("/bin/bash") is None
