"""Tests files that an agent leaves instead of work, in real sandboxes: none of them passes a test."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime.sandbox import Image, Shells, Workspace
from terminal_rl import verdict
from terminal_rl.inputs import drop_programs_of_git
from terminal_rl.system import LIMITS, READ_ONLY
from terminal_rl.task_folder import read_task
from terminal_rl.tasks import FolderTask
from tests import ROOT
from tests.terminal_rl.conftest import Write

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
SECRET = """
import subprocess

def test_it():
    done = subprocess.run(["bash", "/app/go.sh"], capture_output=True, text=True)
    assert done.stdout == "forty-two apples\\n"
"""
GIT = """
import subprocess

def git(*words):
    return subprocess.run(["git", "-C", "/app/repo", *words], capture_output=True, text=True).stdout

def test_it():
    git("status"), git("diff", "HEAD"), git("log", "--stat"), git("add", "-A"), git("show")
    from pathlib import Path
    assert Path("/app/solved").exists()
"""
REPO = """git init -q repo; cd repo; git config user.name a; git config user.email a@b
echo '*.txt filter=x diff=x' > .gitattributes
echo one > a.txt; git add -A; git commit -qm one; echo two > a.txt
printf '#!/bin/sh\\ntouch /app/solved\\ncat\\n' > /app/evil; chmod +x /app/evil
"""


@dataclass(frozen=True)
class Cheat:
    name: str
    script: str


READERS = [
    Cheat(name, f"cat > go.sh <<'END'\n{line}\nEND")
    for name, line in {
        "the tests, read": "grep -rhao 'forty-two apples' /tests",
        # each descriptor by a separate process: a pipe without a writer blocks no other one
        "the tests, found by a descriptor": "for file in /proc/*/fd/*; do timeout 0.5 cat $file 2>/dev/null & done "
        "| grep -ao 'forty-tw[o] apples' | head -1",
        "the tests, in the arguments of the runner": "cat /proc/*/cmdline | grep -ao 'forty-tw[o] apples' | head -1",
        "the tests, in the variables of the runner": "cat /proc/*/environ | grep -ao 'forty-tw[o] apples' | head -1",
        "the tests, in the runner's memory": "python3 -c \"print(open('/proc/$PPID/mem','rb').read()[:1])\"",
        "the tests, by the runner's root": "grep -rhao 'forty-two apples' /proc/$PPID/root/tests",
        "the tests, as bytecode": "cat /tests/__pycache__/* | grep -ao 'forty-two apples'",
        "the tests, imported": "cd /tests; python3 -c 'import test_outputs as t; print(open(t.__file__).read())' "
        "| grep -o 'forty-two apples'",
        "the tests, left in /tmp": "grep -rhao 'forty-two apples' /tmp",
        "the tests, in the workspace": "grep -rhao --exclude=go.sh 'forty-two apples' /app",
    }.items()
]
GIT_PROGRAMS = [
    Cheat(f"git's {name}", f"{REPO}{line}")
    for name, line in {
        "gpg.program": "git config gpg.program /app/evil; git config log.showSignature true; "
        'tree=$(git write-tree); printf "tree $tree\\nauthor a <a@b> 1 +0000\\ncommitter a <a@b> 1 +0000\\n'
        'gpgsig -----BEGIN PGP SIGNATURE-----\\n x\\n -----END PGP SIGNATURE-----\\n\\nm\\n" '
        "| git hash-object -t commit -w --stdin > ../id; git update-ref refs/heads/master $(cat ../id); "
        "git update-ref HEAD $(cat ../id)",
        "core.fsmonitor": "git config core.fsmonitor /app/evil",
        "filters": "git config filter.x.clean /app/evil; git config filter.x.smudge /app/evil; echo three > a.txt",
        "diff.external": "git config diff.external /app/evil",
        "textconv": "git config diff.x.textconv /app/evil",
        "diff command": "git config diff.x.command /app/evil",
        "included settings": "printf '[core]\\n\\tfsmonitor = /app/evil\\n' > ../more; git config include.path /app/more",
        "settings of a worktree": "git config extensions.worktreeConfig true; "
        "printf '[core]\\n\\tfsmonitor = /app/evil\\n' > .git/config.worktree",
        "folder elsewhere": "mv .git ../elsewhere; echo 'gitdir: /app/elsewhere' > .git; "
        "git config core.fsmonitor /app/evil",
        "continued lines": "printf '[core] bare = 0 \\\\\\n\\n[core]\\n fsmonitor = \\\\\\n/app/evil\\n' "
        ">> .git/config",
        "section on one line": "printf '[core] fsmonitor = /app/evil\\n' >> .git/config",
        "settings in a folder without HEAD": "mkdir ../shared; mv .git/config .git/objects .git/refs ../shared; "
        "echo /app/shared > .git/commondir; printf '[core]\\n fsmonitor = /app/evil\\n' >> ../shared/config",
        "settings that are longer than is read": "python3 -c \"print('[core]\\n' + ('#' * 63 + '\\n') * 16383 + "
        "'#' * 56 + '\\n fsmonitor = /app/evil')\" > .git/config",
        "settings behind a link": "mv .git/config ../c; git config -f ../c core.fsmonitor /app/evil; "
        "ln -s /app/c .git/config",
        "settings in a pipe": "rm .git/config; mkfifo .git/config",
        "hook of the index": "mkdir -p .git/hooks; cp /app/evil .git/hooks/post-index-change; touch a.txt",
        "letters": "printf '[CoRe]\\n FSMonitor=/app/evil\\n' >> .git/config",
    }.items()
]


def worked(task: FolderTask, script: str) -> verdict.Verdict:
    with task.workspace() as workspace:
        with Shells(workspace, LIMITS, READ_ONLY) as shells:
            shells.execute("main", script, 60.0)
        return task.verdict(workspace)


@pytest.mark.parametrize("cheat", READERS, ids=lambda cheat: cheat.name)
def test_programs_started_by_the_tests_cannot_read_them(write_task: Write, cheat: Cheat) -> None:
    found = worked(FolderTask(write_task(SECRET)), cheat.script)
    assert (found.passed, found.total) == (0, 1)


@pytest.mark.parametrize("cheat", GIT_PROGRAMS, ids=lambda cheat: cheat.name)
def test_git_settings_start_no_program_in_the_tests(write_task: Write, cheat: Cheat) -> None:
    found = worked(FolderTask(write_task(GIT)), cheat.script)
    assert (found.passed, found.total) == (0, 1)


def test_git_settings_outside_the_working_folder_are_cleaned_too(tmp_path: Path) -> None:
    """On an image the agent writes to further folders, such as /opt."""
    with Workspace(image=Image("empty", tmp_path), writable=("/opt",)) as workspace:
        repository = workspace.folders[1][0] / "repo"
        (repository / "hooks").mkdir(parents=True)
        (repository / "HEAD").write_text("ref: refs/heads/main\n")
        (repository / "config").write_text("[core]\n\tbare = false\n\tfsmonitor = /app/evil\n")
        (repository / "hooks" / "post-index-change").write_text("#!/bin/sh\n")
        (repository / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
        drop_programs_of_git(workspace)
        assert (repository / "config").read_text() == "[core]\n\tbare = false\n"
        assert [path.name for path in (repository / "hooks").iterdir()] == ["pre-commit"]


def test_harmless_git_settings_are_kept(write_task: Write) -> None:
    tests = GIT.replace(
        'Path("/app/solved").exists()', 'git("config", "user.name") == "Ada \\"A\\" #1\\n"'
    ).replace(
        "    from pathlib",
        '    assert git("st") and git("config", "branch.main.remote") == "origin\\n"\n    from pathlib',
    )
    script = (
        f"{REPO}git config user.name 'Ada \"A\" #1'; git config alias.st status\n"
        "git config branch.main.remote origin"
    )
    found = worked(FolderTask(write_task(tests)), script)
    assert found.solved, found.failures


EASY = {
    "text-top-words": "python3 -c \"t='The river ran past the mill ' ; t+='a '*((284-len(t))//2); "
    "open('/app/book.txt','w').write(t.ljust(284)); \"; echo 'a 128' > top.txt; printf 'the 2\\nmill 1\\n' >> top.txt",
    "text-status-count": "line=$(head -1 access.log); sed -i 's/\" [0-9]* \\([0-9]*\\)$/\" 200 \\1/' access.log; "
    "echo '200 60' > counts.txt",
    "text-error-window": "for f in logs/*.log; do sed -i 's/.*/2024-05-12T10:00:00 ERROR x/' $f; done; "
    "cat logs/*.log | sort > errors.txt",
}


@pytest.mark.parametrize("name", EASY)
def test_changed_inputs_solve_no_task(name: str) -> None:
    found = worked(FolderTask(read_task(ROOT / "terminal-rl" / "tasks" / name)), EASY[name])
    assert found.passed == 0


INPUTS = "instruction: Count.\ninputs: [a.txt, folder]\n"
TRICKS = ["echo x >> a.txt", "rm a.txt; ln -s b.txt a.txt", "rm a.txt; mkdir a.txt", "rm a.txt; mkfifo a.txt"]
TRICKS += ["touch folder/new", "rm folder/c.txt", "mv folder other; ln -s other folder", "chmod 000 a.txt"]


@pytest.mark.parametrize("trick", [*TRICKS, "true"])
def test_inputs_are_compared_by_content(write_task: Write, trick: str) -> None:
    files = {
        "environment__a_dot_txt": "a",
        "environment__b_dot_txt": "a",
        "environment__folder__c_dot_txt": "c",
    }
    task = write_task("def test_it():\n    assert True\n", **files)
    (task.path / "task.yaml").write_text(INPUTS)
    found = worked(FolderTask(read_task(task.path)), trick)
    assert found.solved is (trick == "true")
    assert found.solved or "was changed" in found.failures[0]


REWARD = '#!/bin/bash\nif [ "$(bash /app/go.sh)" = done ]; then r=1; else r=0; fi\necho $r > /logs/verifier/reward.txt\n'
FORGERIES = {
    "the folder renamed": "mv /logs/verifier /logs/old; mkdir /logs/verifier; echo 1 > /logs/verifier/reward.txt; "
    "chmod a-w /logs/verifier /logs/verifier/reward.txt",
    "a file that cannot be written": "echo 1 > /logs/verifier/reward.txt; chmod 444 /logs/verifier/reward.txt",
    "the script killed": "echo 1 > /logs/verifier/reward.txt; kill -9 $PPID",
    "everything killed": "echo 1 > /logs/verifier/reward.txt; kill -9 -1",
    "a link": "echo 1 > /tmp/r; chmod 444 /tmp/r; ln -s /tmp/r /logs/verifier/reward.txt",
    "another file": "echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "a folder that cannot be written": "echo 1 > /logs/verifier/reward.txt; chmod 444 /logs/verifier/reward.txt; "
    "chmod 555 /logs/verifier",
    "a link to a link": "ln -s reward.json /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json",
}


@pytest.mark.parametrize("trick", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_reward_written_by_the_agents_program_is_ignored(write_task: Write, trick: str) -> None:
    task = write_task()
    (task.path / "task.yaml").unlink()
    (task.path / "task.toml").write_text('version = "1.0"\n')
    (task.path / "instruction.md").write_text("Do it.\n")
    (task.path / "tests" / "test_outputs.py").unlink()
    (task.path / "tests" / "test.sh").write_text(REWARD)
    found = worked(FolderTask(read_task(task.path)), f"cat > go.sh <<'END'\n{trick}\nEND")
    assert (found.passed, found.accuracy) == (0, 0.0), found
