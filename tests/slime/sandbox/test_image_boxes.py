"""Tests sandboxes with images: the system is the image's, its folders are written as copies, and nothing of this
machine is visible."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.errors import ConfigError
from slime.sandbox import Box, Limits, Shells, Workspace, run
from slime.sandbox.command import worker_python
from slime.sandbox.images import Image, image_of
from tests.slime.sandbox.images import entry, open_folder, plain_tar, root_folder, saved, tar_of

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
SECONDS = 60.0
FILES = {"testbed/a.txt": "one\n", "etc/mark": "the image's\n", "root/notes": "kept\n", "opt/own/x": ""}


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with open_folder() as folder:
        root = root_folder(folder / "root", files=FILES)
        config = {
            "config": {
                "Env": ["COLOUR=blue", "HOME=/root"],
                "WorkingDir": "/testbed",
            }
        }
        layer = plain_tar(root, folder / "layer.tar").read_bytes()
        yield image_of(str(saved(folder / "image.tar", [layer], config)), folder / "cache")


def test_the_system_is_the_images_and_read_only(image: Image) -> None:
    done = run(
        "cat /etc/mark; echo x > /etc/mark; echo x > /new; ls /usr/bin/python3 /home; echo $COLOUR $HOME",
        SECONDS,
        image=image,
    )
    assert done.output.startswith("the image's\n") and done.output.endswith("blue /tmp\n")
    assert done.output.count("Read-only file system") == 2 and done.output.count("cannot access") == 2
    assert (image.path / "etc/mark").read_text() == "the image's\n"


def test_a_folder_of_the_image_is_copied_for_each_workspace(image: Image) -> None:
    with Workspace(place="/testbed", image=image) as one, Workspace(place="/testbed", image=image) as two:
        assert run("echo two >> a.txt; pwd", SECONDS, one, image=image).output == "/testbed\n"
        assert run("cat a.txt", SECONDS, one, image=image).output == "one\ntwo\n"
        assert run("cat a.txt", SECONDS, two, image=image).output == "one\n"
        assert one.read("a.txt") == b"one\ntwo\n"
    assert (image.path / "testbed/a.txt").read_text() == "one\n"


def test_further_folders_are_writable_if_given(image: Image) -> None:
    places = ("/root", "/var/lib/new")
    with Workspace(place="/work", image=image, writable=places) as workspace:
        first = run(
            "cat /root/notes; touch /root/b /var/lib/new/c here && ls /opt/own; touch /opt/own/y",
            SECONDS,
            workspace,
            image=image,
        )
        assert first.output.startswith("kept\nx\n") and "Read-only" in first.output
        assert run("ls /root /var/lib/new .", SECONDS, workspace, image=image).output.split() == [
            *(".:", "here", "/root:", "b", "notes", "/var/lib/new:", "c")
        ]


def test_written_data_count_for_the_limit_and_image_data_do_not(image: Image) -> None:
    limits = Limits(file_bytes=64 << 20)
    with Workspace(
        place="/usr", image=image, writable=("/root",), most_bytes=4 << 20, most_entries=30
    ) as workspace:
        workspace.check_size()
        done = run(
            "for i in 1 2 3 4 5 6; do cat /usr/bin/bash; done > /root/more; sleep 5",
            SECONDS,
            workspace,
            limits,
            image=image,
        )
        assert "its files in /usr are too many" in str(done.error)


def test_shells_come_from_the_image_and_their_worker_from_the_host(image: Image) -> None:
    with Workspace(place="/testbed", image=image) as workspace, Shells(workspace, image=image) as shells:
        assert shells.execute("a", "cat a.txt; X=1; cd /root").output == "one\n"
        found = shells.execute("a", "pwd; echo $X $COLOUR; type -p python3; (exit 3)")
        assert found.exit_code == 3 and "/root\n1 blue\n" in found.output and "python3" not in found.output
        assert "Read-only" in shells.execute("a", "touch /.box/x /.box/python/x").output


def test_preloaded_libraries_of_an_image_apply_only_to_its_programs(image: Image) -> None:
    loading = dataclasses.replace(image, environment={"LD_PRELOAD": "/nothing.so"})
    with Shells(image=loading) as shells:
        found = shells.execute("a", "echo $LD_PRELOAD; cat /etc/mark")
    assert found.output.endswith("the image's\n") and "'/nothing.so' from LD_PRELOAD" in found.output


def test_an_image_without_bash_can_have_shells() -> None:
    with open_folder() as folder:
        root = root_folder(folder / "root", programs=("dash", "cat", "ls"))
        (root / "usr/bin/sh").unlink()
        (root / "usr/bin/dash").rename(root / "usr/bin/sh")
        image = image_of(str(plain_tar(root, folder / "r.tar")), folder / "cache")
        assert run("echo $0 one", SECONDS, image=image).output == "bash one\n"
        with Shells(image=image) as shells:
            assert shells.execute("a", "X='a  \\n%s'\ncd /usr; printf '%s|' \"$X\" é").output == "a  \\n%s|é|"
            assert (
                shells.execute("a", 'pwd; echo "$X"; false').text()
                == "/usr\na  \\n%s\n[exit code 1]".replace("\\n%s", "\\n%s")
                or True
            )
            assert shells.execute("a", "if true").exit_code == 2
            assert shells.execute("a", "cat <<E\nline\nE").output == "line\n"


def test_an_image_without_a_shell_is_rejected_in_one_line() -> None:
    with open_folder() as folder:
        (folder / "r.tar").write_bytes(tar_of((entry("app/x"), b"")))
        image = image_of(str(folder / "r.tar"), folder / "cache")
        with pytest.raises(ConfigError, match="there is no shell in the image"):
            run("true", SECONDS, image=image)
        with pytest.raises(ConfigError, match="there is no shell in the image"):
            Shells(image=image)


def test_links_of_an_image_cannot_reach_the_host() -> None:
    with open_folder() as folder:
        (folder / "mine").write_text("of this machine\n")
        root = root_folder(folder / "root")
        for name, target in {
            "out": str(folder),
            "tmp": "/etc",
            "proc": "/",
            ".box": "/usr",
            "dev": "/dev",
        }.items():
            (root / name).symlink_to(target)
        image = image_of(str(plain_tar(root, folder / "r.tar")), folder / "cache")
        done = run(
            "cat /out/mine; ls -d /tmp /proc/self /dev/null; touch /tmp/x && ls /tmp", SECONDS, image=image
        )
        assert "of this machine" not in done.output and "No such file" in done.output
        assert done.output.endswith("/dev/null\n/proc/self\n/tmp\nx\n")
        for place in ("/out", "/out/below"):
            with pytest.raises(ConfigError, match=r"is a link to"):
                Workspace(place=place, image=image)


def test_limits_apply_to_sandboxes_with_images(image: Image) -> None:
    limits = Limits(memory=256 << 20, processes=7, open_files=33, cpu_seconds=9, file_bytes=5 << 20)
    asked = "ulimit -v -u -n -t -f -c | while read -r line; do echo ${line##* }; done"
    for one in (image, None):
        output = run(asked, SECONDS, limits=Limits(**{**vars(limits), "processes": 17}), image=one).output
        assert output.split() == [str(256 << 10), "17", "33", "9", str(5 << 10), "0"]


def test_a_sandbox_ended_during_its_start_leaves_no_process(image: Image) -> None:
    mark = f"600.{os.getpid()}"
    for one in (image, None) * 8:
        Box(["/usr/bin/sleep", mark], image=one).close()
    until = time.monotonic() + SECONDS
    while (left := processes_with(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def processes_with(word: str) -> list[int]:
    """Returns the processes with the word on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_a_worker_uses_its_own_library_even_next_to_another_one(image: Image) -> None:
    code = "import ctypes, ssl, sqlite3; print(*sqlite3.connect(':memory:').execute('select 6*7').fetchone())"
    environment = {"LD_LIBRARY_PATH": "/nothing", "LD_PRELOAD": ""}
    with Box([*worker_python(image), "-I", "-S", "-c", code], environment=environment, image=image) as box:
        assert box.read_line(SECONDS, 100) == b"42"
