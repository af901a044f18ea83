"""Writing files in folders where another user may write, and in folders that another user owns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_base.errors import ConfigError
from claw_base.files import append_to, new_file, own_run_folder, write_bytes, write_json, write_text
from tests import ROOT
from tests.fakes.other_user import NOBODY, needs_root

SERVER = (sys.executable, "-m", "openclaw.server", "--model-path", "/m")


def give_away(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.mark.parametrize("kind", ["link", "dead link", "file", "nothing"])
@pytest.mark.parametrize(
    ("write", "temporary"),
    [
        (lambda path: write_text(path, "mine"), ".out.tmp"),
        (lambda path: write_json(path, "mine"), ".out.tmp"),
        (lambda path: write_bytes(path, b"mine"), ".out.tmp"),
        (lambda path: os.write(new_file(path), b"mine"), "out"),
    ],
    ids=["text", "json", "bytes", "new"],
)
def test_another_users_link_is_not_followed_when_writing(
    tmp_path: Path, write: Callable[[Path], object], temporary: str, kind: str
) -> None:
    victim, trap = tmp_path / "victim", tmp_path / temporary
    victim.write_text("precious")
    if "link" in kind:
        trap.symlink_to(victim if kind == "link" else tmp_path / "new")
    elif kind == "file":
        trap.write_text("theirs")
        reader = trap.open()
    write(tmp_path / "out")
    assert victim.read_text() == "precious" and not (tmp_path / "new").exists()
    assert "mine" in (tmp_path / "out").read_text() and not (tmp_path / "out").is_symlink()
    if kind == "file":
        assert reader.read() == "theirs"
        reader.close()


@needs_root
@pytest.mark.parametrize(
    "name", [".", "logs", "processes", "driver.out", "logs/gateway.log", "processes/x.json"]
)
@pytest.mark.parametrize("kind", ["link", "file"])
def test_another_users_run_folder_is_rejected(tmp_path: Path, name: str, kind: str) -> None:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "processes").mkdir()
    assert own_run_folder(run) == run
    foreign = run / name
    if not foreign.exists():
        foreign.symlink_to(tmp_path / "victim") if kind == "link" else foreign.write_text("theirs")
    give_away(foreign)
    with pytest.raises(ConfigError, match="another user"):
        own_run_folder(run)


def test_own_links_and_volumes_are_accepted(tmp_path: Path) -> None:
    run, disk = tmp_path / "run", tmp_path / "disk"
    (disk / "logs").mkdir(parents=True)
    run.mkdir()
    (run / "logs").symlink_to(disk / "logs")
    (run / "checkpoints").symlink_to(disk)
    (run / "buffer").mkdir()
    assert own_run_folder(run) == run and not list(run.glob(".*")) and not list(run.glob("tmp*"))
    (disk / "logs" / "there.log").write_text("a")
    (run / "logs" / "own.log").symlink_to(disk / "logs" / "there.log")
    os.write(append_to(run / "logs" / "own.log"), b"b")
    assert (disk / "logs" / "there.log").read_text() == "ab"


@needs_root
def test_folders_and_files_of_root_are_accepted() -> None:
    """In a cluster, root owns a volume, and a user may write to it by its group."""
    code = (
        "import os, pathlib, sys; os.setuid(65534); from claw_base.files import own_run_folder; "
        "own_run_folder(pathlib.Path(sys.argv[1]))"
    )
    shared = Path(tempfile.mkdtemp())
    try:
        (shared / "lost+found").touch()
        shared.chmod(0o777)
        env = {**os.environ, "PYTHONPATH": str(ROOT / "base")}
        done = subprocess.run(
            [sys.executable, "-c", f"import claw_base.files; {code}", str(shared)], env=env, check=False
        )
        assert done.returncode == 0
    finally:
        shutil.rmtree(shared)


@needs_root
def test_a_mounted_volume_in_the_folder_may_have_any_owner(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    give_away(tmp_path / "checkpoints")
    own_run_folder(tmp_path)


@needs_root
@pytest.mark.parametrize("kind", ["link", "file"])
def test_another_users_log_is_not_appended_to(tmp_path: Path, kind: str) -> None:
    victim, log = tmp_path / "victim", tmp_path / "x.log"
    victim.write_text("precious")
    log.symlink_to(victim) if kind == "link" else log.write_text("")
    give_away(log)
    with pytest.raises(OSError, match=r"another user|symbolic links"):
        append_to(log)
    assert victim.read_text() == "precious"


@needs_root
@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", "RUN", "--", "true"],
        [*SERVER, "--run-dir", "RUN"],
        [
            sys.executable,
            "-m",
            "openclaw.server",
            "--model-path",
            "/m",
            "--enable-rl-intercept",
            "--rl-buffer-dir",
            "RUN",
        ],
        ["bash", "-c", f"ROOT={ROOT}; source {ROOT}/launch/launch.sh; own_run_dir RUN"],
    ],
    ids=["supervisor", "gateway", "buffer", "scripts"],
)
def test_programs_write_nothing_to_another_users_run_folder(tmp_path: Path, command: list[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    give_away(run)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [word.replace("RUN", str(run)) if "RUN" in word else word for word in command]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "belongs to another user" in done.stderr
    assert list(run.iterdir()) == []
