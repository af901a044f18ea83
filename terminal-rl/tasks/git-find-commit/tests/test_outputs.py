import subprocess
from pathlib import Path


def git(*words):
    return subprocess.run(
        ["git", "-C", "/app/repo", *words], capture_output=True, text=True, check=True
    ).stdout


def test_the_commit_is_the_first_bad_one():
    wanted = git("log", "--format=%H", "--grep=^Tidy the arguments$", "main").strip()
    assert len(wanted) == 40 and Path("/app/answer.txt").read_text().strip() == wanted


def test_the_repository_is_as_it_was():
    assert Path("/app/answer.txt").exists()
    assert git("rev-list", "--count", "--all").strip() == "9" and git("status", "--porcelain") == ""
    assert git("rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
