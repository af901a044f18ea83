"""launch/env.sh creates the environment once, despite interruptions; ./claw finds it from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw import __version__
from tests import ROOT


def fake_python(path: Path, venv: str) -> Path:
    """Returns an interpreter that find_python accepts; `venv` is the shell code of `-m venv FOLDER` ($3)."""
    made = '#!/bin/sh\necho "PYTHON $*"\n'
    path.write_text(
        f'#!/bin/sh\ncase "$1 $2" in\n-c*) exit 0 ;;\n"-m venv") mkdir -p "$3/bin"; {venv} ;;\nesac\n'
        .replace("MADE", made.replace("\n", "\\n"))
    )  # fmt: skip
    path.chmod(0o755)
    return path


def make_venv(python: Path, venv: Path) -> subprocess.CompletedProcess[str]:
    code = f'set -euo pipefail; ROOT={ROOT}; source "$ROOT/launch/env.sh"; VENV={venv}; PY=$VENV/bin/python; make_venv'
    env = {"PATH": os.environ["PATH"], "PYTHON": str(python)}
    return subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True)


WHOLE = 'printf "#!/bin/sh\\nexit 0\\n" > "$3/bin/python"; chmod +x "$3/bin/python"'
INTERRUPTED = WHOLE + "; kill -INT $PPID; exit 130"


def test_an_interrupted_environment_is_created_again(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    assert make_venv(fake_python(tmp_path / "stopped", INTERRUPTED), venv).returncode != 0
    assert (venv / "bin" / "python").exists()  # which looks complete
    again = make_venv(fake_python(tmp_path / "python", WHOLE), venv)
    assert again.returncode == 0 and "setting up" in again.stderr
    assert "setting up" not in make_venv(tmp_path / "python", venv).stderr


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("3.10", "python3.11 python3.11-venv python3.11-dev"),
        ("3.12", "apt-get install python3.12-venv python3.12-dev"),
    ],
)
def test_a_python_that_is_too_old_or_lacks_venv_is_reported_with_the_packages_to_install(
    tmp_path: Path, version: str, advice: str
) -> None:
    """Ubuntu 22.04's python3 is 3.10, and its python3-venv provides no newer one."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\necho {version}\n')
    python.chmod(0o755)
    code = f'ROOT={ROOT}; source "$ROOT/launch/env.sh"; find_python'
    told = subprocess.run(
        ["/bin/bash", "-c", code], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert told.returncode == 2 and f"(python3 here is {version})" in told.stderr and advice in told.stderr


def test_children_of_a_script_bypass_a_proxy_for_this_machine_and_the_master() -> None:
    code = (
        f'set -euo pipefail; ROOT={ROOT}; source "$ROOT/launch/env.sh"; go_past_proxies; go_past_proxies; env'
    )
    env = {
        "PATH": os.environ["PATH"],
        "http_proxy": "http://proxy:3128",
        "NO_PROXY": "corp",
        "MASTER_ADDR": "10.1.2.3",
    }
    lines = subprocess.run(
        ["bash", "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "no_proxy=127.0.0.1,localhost,::1,10.1.2.3" in lines
    assert "NO_PROXY=corp,127.0.0.1,localhost,::1,10.1.2.3" in lines


@pytest.mark.parametrize(("version", "locked"), [("3.12", True), ("3.11", False)])
def test_locked_packages_are_installed_on_the_python_version_of_the_lock(
    tmp_path: Path, version: str, locked: bool
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    (tmp_path / "uname").write_text("#!/bin/sh\necho Linux x86_64\n")
    (tmp_path / "uname").chmod(0o755)
    code = f'set -euo pipefail; ROOT={ROOT}; source "$ROOT/launch/env.sh"; PY={python}; locked sglang; locked trainer'
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    files = [f"--constraint {ROOT}/instructions/locks/{name}.txt" for name in ("sglang", "trainer")]
    assert told.splitlines() == (files if locked else [])


@pytest.mark.parametrize(("works", "asked"), [(True, 1), (False, 2)])
def test_if_a_locked_version_cannot_be_installed_the_newest_is_used(
    tmp_path: Path, works: bool, asked: int
) -> None:
    python = tmp_path / "python"
    fails = "" if works else "*--constraint*) exit 1 ;;"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *version_info*) echo 3.12; exit ;; esac\necho "$*" >>{tmp_path}/log\n'
        f'case "$*" in {fails} esac\n'
    )
    python.chmod(0o755)
    (tmp_path / "uname").write_text("#!/bin/sh\necho Linux x86_64\n")
    (tmp_path / "uname").chmod(0o755)
    code = f'set -euo pipefail; ROOT={ROOT}; source "$ROOT/launch/env.sh"; PY={python}; install_locked vllm some.txt'
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True)
    calls = (tmp_path / "log").read_text().splitlines()
    assert done.returncode == 0 and len(calls) == asked and "locks/vllm.txt -r some.txt" in calls[0]
    assert ("installing the newest" in done.stderr) != works and ("--constraint" in calls[-1]) == works


def test_no_environment_is_packaged_for_a_ray_job() -> None:
    """Ray respects .gitignore; an environment of several gigabytes exceeds Ray's limit."""
    names = [".venv/x", ".venv-sglang/x", ".venv-vllm/x", ".venv-other/x"]
    found = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.split() == names


def test_another_users_folder_is_not_changed(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / "notes.txt").write_text("mine")
    refused = make_venv(fake_python(tmp_path / "python", WHOLE), venv)
    assert refused.returncode == 2 and "is not a Python environment with pip" in refused.stderr
    assert [path.name for path in venv.iterdir()] == ["notes.txt"]


INSTALLS = f"""#!/bin/sh
case "$*" in
  -c*fcntl*) exec {sys.executable} "$@" ;;
  *"pip install"*) echo "$*" >>"$LOG"; [ ! -p "$HOLD" ] || read -r go <"$HOLD" ;;
esac
"""
"""Replaces an environment's Python: records packages to install, and waits meanwhile if HOLD is a pipe."""


def noting_venv(folder: Path) -> Path:
    """Creates an environment whose Python is INSTALLS."""
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(INSTALLS)
    python.chmod(0o755)
    return folder / "venv"


def ensure(venv: Path, log: Path, hold: Path, *more: str) -> subprocess.Popen[str]:
    """`more`: files of the repository that are installed after its requirements."""
    files = " ".join(f'"$ROOT/{name}"' for name in ("requirements.txt", *more))
    code = f'set -euo pipefail; ROOT={ROOT}; source "$ROOT/launch/env.sh"; ensure_env {files}'
    env = {"PATH": os.environ["PATH"], "VENV": str(venv), "LOG": str(log), "HOLD": str(hold)}
    return subprocess.Popen(["bash", "-c", code], env=env, stderr=subprocess.PIPE, text=True)


def test_two_concurrent_first_starts_install_once_and_the_second_reports_that_it_waits(
    tmp_path: Path,
) -> None:
    venv, log, hold = noting_venv(tmp_path), tmp_path / "log", tmp_path / "hold"
    os.mkfifo(hold)
    first = ensure(venv, log, hold)
    with hold.open("w") as held:  # opens when the first process runs pip
        second = ensure(venv, log, hold)
        assert second.stderr is not None
        assert second.stderr.readline() == f"another start is setting up {venv}: waiting until it is done\n"
        hold.unlink()
        held.write("go\n")
    told = first.communicate(timeout=300)[1]
    assert second.communicate(timeout=300)[1] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert (
        "installing torch==" in told and "installing the packages of requirements.txt (about 200 MB" in told
    )
    assert [line.split()[-1] for line in log.read_text().splitlines()][1:] == [
        f"{ROOT}/requirements.txt", f"{ROOT}/slime",
    ]  # fmt: skip


def test_packages_of_a_provider_are_installed_once_and_do_not_change_common_ones(tmp_path: Path) -> None:
    venv, log, hold = noting_venv(tmp_path), tmp_path / "log", tmp_path / "hold"
    for more in (["openclaw-tinker/requirements.txt"], ["openclaw-fireworks/requirements.txt"]):
        log.write_text("")
        assert ensure(venv, log, hold, *more).wait(300) == 0
        assert log.read_text().splitlines()[-1].endswith(f"-r {ROOT / more[0]}")
    assert log.read_text().count("\n") == 1, "the common packages are not installed again"
    log.write_text("")
    for more in ([], ["openclaw-tinker/requirements.txt"], ["openclaw-fireworks/requirements.txt"]):
        assert ensure(venv, log, hold, *more).wait(300) == 0
    assert log.read_text() == "", "every set was there"


@pytest.mark.parametrize("command", ["chat", "watch", "connect", "versions", "page", "store", "judge"])
def test_claw_finds_the_environment_from_any_folder(command: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [str(ROOT / "claw"), command, "--help"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "VENV": venv_of_the_tests()},
        capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 0 and "usage:" in told.stdout, told.stderr


def test_claw_prints_its_commands_and_version() -> None:
    helped = subprocess.run([str(ROOT / "claw"), "help"], capture_output=True, text=True, check=True)
    assert "./claw chat" in helped.stdout and "set -euo" not in helped.stdout
    version = subprocess.run([str(ROOT / "claw"), "version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip() == f"OpenClaw-RL {__version__}"
    wrong = subprocess.run([str(ROOT / "claw"), "sing"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "there is no command sing" in wrong.stderr


def venv_of_the_tests() -> str:
    return str(Path(sys.executable).parents[1])
