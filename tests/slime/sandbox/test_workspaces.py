"""Tests working folders of sandboxes: which files remain, what a sandbox cannot do with them, and that nothing is
left behind."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.errors import DataError, EnvironmentAway
from slime.sandbox import Image, Limits, Shells, Workspace, run
from slime.sandbox import workspace as workspace_module
from slime.sandbox.command import box_arguments
from slime.sandbox.folders import TooLarge
from slime.sandbox.places import base_folder, sweep

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
SECONDS = 60.0


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace(most_bytes=16 << 20, most_entries=500) as found:
        yield found


def test_files_survive_a_sandbox_and_are_visible_in_the_next(workspace: Workspace) -> None:
    assert (
        run("pwd; mkdir a; echo one > a/b; cp /usr/bin/true /tmp/x", SECONDS, workspace).output
        == "/workspace\n"
    )
    assert workspace.read("a/b") == b"one\n"
    found = run("cat a/b; ls -A /tmp; echo two > a/b", SECONDS, workspace)
    assert (found.exit_code, found.output) == (0, "one\n") and workspace.read("a/b") == b"two\n"


def test_a_workspace_starts_as_a_copy_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text("#!/bin/sh\necho went")
    (tmp_path / "bin" / "go").chmod(0o6755)
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    with Workspace(tmp_path, place="/app") as workspace:
        found = run("/app/bin/go; stat -c %a bin/go; readlink link; ls; echo x >> bin/go", SECONDS, workspace)
        assert found.output == "went\n755\n/etc/passwd\nbin\nlink\n"
    assert (tmp_path / "bin" / "go").read_text() == "#!/bin/sh\necho went"


def test_the_host_never_follows_links_left_by_a_sandbox(workspace: Workspace, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not tell")
    script = f"ln -s {secret} file; ln -s {tmp_path} folder; mkfifo fifo; mkdir tests; ln -s {secret} tests/t"
    assert run(script, SECONDS, workspace).exit_code == 0
    for path in ("file", "folder/secret", "fifo", "tests"):
        with pytest.raises(OSError, match=r"."):
            workspace.read(path)
    with pytest.raises(OSError, match=r"."):
        workspace.write("folder/new", b"x")
    for outside in ("../x", "/etc/passwd", "a/../../x", "", "a\0b"):
        with pytest.raises(ValueError, match="not a path inside"):
            workspace.read(outside)
    workspace.write("file", b"own")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "t").write_text("test")
    workspace.copy_in(tmp_path / "given", "tests")
    assert (workspace.read("file"), workspace.read("tests/t")) == (b"own", b"test")
    workspace.remove("folder")
    assert secret.read_text() == "do not tell" and sorted(os.listdir(tmp_path)) == ["given", "secret"]
    assert run("ls; cat tests/t", SECONDS, workspace).output == "fifo\nfile\ntests\ntest"


def test_setuid_bits_are_removed_after_a_sandbox(workspace: Workspace) -> None:
    script = (
        "cp /usr/bin/true own; chmod 6755 own; mkdir d; chmod 2777 d; cp own d/; chmod 4111 d/own; ls -l own"
    )
    assert run(script, SECONDS, workspace).output.startswith("-rwsr-sr-x")
    modes = run("stat -c %a own d d/own", SECONDS, workspace).output.split()
    assert modes == ["755", "777", "111"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another account")
def test_another_account_cannot_reach_a_workspace_that_its_sandbox_has_opened(workspace: Workspace) -> None:
    half = "/".join("a" * 35)
    script = f"mkdir -p {half} b/{half}; cp /usr/bin/true b/{half}/x; chmod 4755 b/{half}/x; chmod 777 ."
    # the move comes last: from then on the sandbox may be ended, because its folders are too deep
    run(f"{script}; mv b {half}/", SECONDS, workspace)
    assert (workspace.path / half / "b" / half / "x").exists()
    others = ["setpriv", "--reuid=61001", "--regid=61001", "--clear-groups", "ls", str(workspace.path)]
    seen = subprocess.run(others, capture_output=True, text=True, check=False)
    assert seen.returncode and "Permission denied" in seen.stderr


def test_setuid_bits_are_removed_beside_a_folder_that_is_too_deep(workspace: Workspace) -> None:
    names = [f"{name}/x" for name in "abcdefgh"]
    deep = "/".join("z" * 70)
    script = f"mkdir {' '.join('abcdefgh')}; for file in {' '.join(names)}; do cp /usr/bin/true $file; "
    # the deep folder comes last: from then on the sandbox may be ended
    run(f"{script} chmod 4755 $file; done; mkdir -p {deep}", SECONDS, workspace)
    assert (workspace.path / deep[:127]).exists()
    assert not any((workspace.path / name).stat().st_mode & 0o6000 for name in names)


ZERO = "a\0--bind\0/etc\0/tmp/host"


def test_a_zero_byte_in_a_path_or_variable_adds_no_mount() -> None:
    """bubblewrap's arguments are separated by zero bytes."""
    for name, value in (("X", ZERO), (ZERO, "x")):
        with pytest.raises(DataError, match="zero byte"):
            run("ls /tmp/host", SECONDS, environment={name: value})
    with Workspace(place=f"/app/{ZERO}") as workspace, pytest.raises(DataError, match="zero byte"):
        run("ls /tmp/host", SECONDS, workspace)
    image = Image("an image", Path("/usr"), {"X": ZERO})
    with pytest.raises(DataError, match="zero byte"):
        box_arguments(Limits(), {}, {}, image=image)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("for i in 1 2 3; do head -c 8000000 /dev/zero > $i; done; sleep 60", "files take more than 16 MiB"),
        ("for i in $(seq 600); do : > $i; done; sleep 60", "more than 500 files"),
        ("for i in $(seq 100); do mkdir d; cd d; done; sleep 60", "deep"),
    ],
)
def test_a_sandbox_that_fills_its_workspace_is_ended_with_an_error(
    workspace: Workspace, script: str, reason: str
) -> None:
    found = run(script, SECONDS, workspace)
    assert found.exit_code is None and reason in str(found.error) and "/workspace" in str(found.error)
    with pytest.raises(TooLarge):
        workspace.check_size()


def test_closing_removes_all_files_of_a_sandbox(workspace: Workspace) -> None:
    script = "mkdir -p a/b; touch a/b/c 'a/-rf' $'a/\\n'; chmod 000 a/b; chmod 111 a; ln -s / root; mkfifo f"
    assert run(script, SECONDS, workspace).exit_code == 0
    deep = "import os\nfor i in range(1200): os.mkdir('d' * 200); os.chdir('d' * 200)"
    run(f'python3 -c "{deep}"', SECONDS, workspace)
    workspace.close()
    workspace.close()
    assert not workspace.path.parent.exists()


def test_an_unwritable_workspace_is_an_infrastructure_failure_and_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Path] = []

    def full(source: Path, here: int) -> None:
        made.append(Path(f"/proc/self/fd/{here}").readlink())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workspace_module, "copy_tree", full)
    with pytest.raises(EnvironmentAway, match=r"could not be created.*No space left"):
        Workspace(tmp_path)
    assert made[0].name == "files" and not made[0].parent.exists()


def test_the_next_process_removes_only_files_of_killed_processes(tmp_path: Path) -> None:
    make = "import os\nfrom slime.sandbox import Workspace\nw = Workspace()\nprint(w.path, flush=True)"
    code = f"{make}\nos.kill(os.getpid(), 9)"
    env = {**os.environ, "TMPDIR": str(base_folder().parent)}
    left = Path(
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout.strip()
    )
    assert left.name == "files"
    with Workspace() as used:
        sweep(base_folder())
        assert not left.parent.exists() and used.path.exists()


def test_a_sandbox_may_end_after_its_workspace_is_closed() -> None:
    workspace = Workspace()
    with Shells(workspace) as shells:
        shells.execute("a", "true", SECONDS)
        workspace.close()
    with pytest.raises(OSError, match="closed"):
        workspace.read("a")


def test_a_mount_place_that_would_hide_the_system_is_rejected() -> None:
    for place in ("/usr", "relative", "/"):
        with pytest.raises(ValueError, match="cannot be at"):
            Workspace(place=place)


def test_a_command_that_hangs_or_floods_ends_at_its_limits() -> None:
    found = run("sleep 600 & yes", 0.5, limits=Limits(output_chars=100))
    assert found.exit_code is None and found.error == "it ran longer than 0.5 s" and len(found.output) < 200
    assert run("sleep 600 & echo end", SECONDS).output == "end\n"
    assert run("kill -9 $$", SECONDS).exit_code == 137
