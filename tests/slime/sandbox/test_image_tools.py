"""Tests images from podman or docker: the real podman with separate storage, and tools that fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.errors import ConfigError, DataError
from slime.sandbox import run
from slime.sandbox.images import image_of
from slime.sandbox.images.tools import Tool, tool_with
from tests.slime.sandbox.images import open_folder, plain_tar, podman_of, root_folder

needs_podman = pytest.mark.skipif(
    shutil.which("podman") is None or os.getuid() != 0, reason="podman is not installed, or this is not root"
)
SECONDS = 60.0


@pytest.fixture(scope="module")
def podman() -> Iterator[Tool]:
    """Yields podman with the image localhost/mini:1."""
    with open_folder() as folder, podman_of(folder) as tool:
        archive = plain_tar(root_folder(folder / "root", files={"etc/mark": "mini\n"}), folder / "root.tar")
        change = ["--change", "ENV COLOUR=blue", "--change", "WORKDIR /etc"]
        done = subprocess.run(
            [*tool.words, "import", *change, archive, "localhost/mini:1"], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"podman cannot import here: {done.stderr.decode()[-200:]}")
        yield tool


@pytest.fixture
def cache() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder / "cache"


@needs_podman
def test_an_image_of_podman_is_unpacked_once_and_leaves_no_container(podman: Tool, cache: Path) -> None:
    image = image_of("localhost/mini:1", cache, [podman])
    assert image.environment["COLOUR"] == "blue" and image.workdir == "/etc" and image.size > 1 << 20
    assert run("cat /etc/mark; echo $COLOUR", SECONDS, image=image).output == "mini\nblue\n"
    assert podman.ask("ps", "-aq").stdout == ""
    assert image_of("localhost/mini:1", cache, []) is image, "no tool is asked again"
    subprocess.run([*podman.words, "tag", "localhost/mini:1", "localhost/other:1"], check=True)
    assert image_of("localhost/other:1", cache, [podman]).path == image.path, (
        "the same files under another name"
    )


@needs_podman
def test_a_changed_image_name_is_resolved_again(podman: Tool, cache: Path, tmp_path: Path) -> None:
    name = "localhost/moving:1"
    for text in ("old", "new"):
        archive = plain_tar(
            root_folder(tmp_path / text, ("cat", "bash"), {"etc/mark": text}), tmp_path / f"{text}.tar"
        )
        subprocess.run([*podman.words, "import", archive, name], check=True, capture_output=True)
        image_of(name, cache, [podman])
    assert (image_of(name, cache, [podman]).path / "etc/mark").read_text() == "old"
    assert (image_of(name, cache, [podman], again=True).path / "etc/mark").read_text() == "new"


@needs_podman
def test_an_image_saved_by_podman_is_the_same(podman: Tool, cache: Path, tmp_path: Path) -> None:
    for form in ("docker-archive", "oci-archive"):
        path = tmp_path / f"{form}.tar"
        subprocess.run(
            [*podman.words, "save", "--format", form, "-o", path, "localhost/mini:1"],
            check=True,
            capture_output=True,
        )
        image = image_of(str(path), cache)
        assert image.environment["COLOUR"] == "blue" and image.workdir == "/etc"
        assert run("cat /etc/mark", SECONDS, image=image).output == "mini\n"


@needs_podman
def test_an_image_is_built_of_a_dockerfile(podman: Tool, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("data\n")
    (tmp_path / "Dockerfile").write_text(
        "FROM localhost/mini:1\nWORKDIR /app\nCOPY data.txt .\nRUN cat data.txt data.txt > twice.txt\nENV SIZE=2\n"
    )
    podman.build(tmp_path, tmp_path / "Dockerfile", "localhost/built:1")
    image = image_of("localhost/built:1", cache, [podman])
    assert (image.path / "app/twice.txt").read_text() == "data\ndata\n"
    assert image.environment["SIZE"] == "2" and image.workdir == "/app"
    (tmp_path / "Dockerfile").write_text("FROM localhost/mini:1\nRUN exit 3\n")
    with pytest.raises(DataError, match="podman cannot build it: "):
        podman.build(tmp_path, tmp_path / "Dockerfile", "localhost/broken:1")


@needs_podman
def test_a_missing_image_is_rejected_with_the_tools_reason(podman: Tool, cache: Path) -> None:
    with pytest.raises(DataError, match=r"the image localhost/none:1 is not available: podman: \S") as found:
        image_of("localhost/none:1", cache, [podman])
    assert "\n" not in str(found.value)


def scripted(folder: Path, name: str, lines: str) -> Tool:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return Tool((str(path),))


def test_a_container_tool_without_its_daemon_is_skipped(tmp_path: Path, cache: Path) -> None:
    away = scripted(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    here = scripted(tmp_path, "podman", 'echo \'[{"Id": "1"}]\'')
    assert tool_with("x", [away, here])[0] is here
    with pytest.raises(DataError, match="docker: Cannot connect to the Docker daemon"):
        image_of("x", cache, [away])


def test_an_aborted_export_leaves_no_container_or_files(tmp_path: Path, cache: Path) -> None:
    asked = tmp_path / "asked"
    tool = scripted(
        tmp_path,
        "docker",
        f"""echo "$@" >> {asked}
case "$1" in
  image) echo '[{{"Id": "sha256:1", "Config": {{}}}}]' ;;
  create) echo made ;;
  export) head -c 700 /dev/zero | tr '\\0' x; echo 'the daemon went away' >&2; exit 1 ;;
esac""",
    )
    with pytest.raises(DataError, match="the image x: "):
        image_of("x", cache, [tool])
    assert asked.read_text().splitlines()[-1] == "rm -f made"
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_an_image_of_another_architecture_is_not_exported(tmp_path: Path, cache: Path) -> None:
    tool = scripted(tmp_path, "docker", '[ "$1" = image ] && echo \'[{"Id": "1", "Architecture": "s390x"}]\'')
    with pytest.raises(ConfigError, match="is for s390x, this machine is"):
        image_of("x", cache, [tool])


def test_an_option_is_rejected_as_an_image_name(tmp_path: Path, cache: Path) -> None:
    asked = tmp_path / "asked"
    tool = scripted(tmp_path, "podman", f'echo "$@" >> {asked}; echo \'[{{"Id": "1"}}]\'')
    with pytest.raises(DataError, match="is not a name of an image"):
        image_of("--authfile=/x", cache, [tool])
    assert not asked.exists()
